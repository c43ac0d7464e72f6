package group

import (
	"fmt"
	"testing"
	"time"
)

// The tests drive the state machine by hand, with a clock that is a variable.

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

type rig struct {
	t   *testing.T
	g   *group
	now time.Time
	ids int

	hold bool   // memberships are not kept by themselves
	held []kept // see hold
}

func newRig(t *testing.T) *rig {
	limits := Limits{}
	limits.defaults()
	return &rig{t: t, g: newGroup(&limits), now: t0}
}

// flush sends the answers that are due, and has memberships kept.
func (r *rig) flush() {
	r.held, r.g.keep = append(r.held, r.g.keep...), nil
	if !r.hold {
		r.kept(OK)
	}
	out := r.g.out
	r.g.out = nil
	for _, reply := range out {
		reply()
	}
}

// kept says what has come of the memberships that are to be kept.
func (r *rig) kept(err Error) {
	held := r.held
	r.held = nil
	for _, k := range held {
		k(err, r.now)
	}
}

// after lets time pass, with the timers that fall into it.
func (r *rig) after(d time.Duration) {
	end := r.now.Add(d)
	for steps := 0; !r.g.next().After(end); steps++ {
		if steps > 1000 {
			r.t.Fatal("the group's timers do not come to rest")
		}
		if at := r.g.next(); at.After(r.now) {
			r.now = at
		}
		r.g.tick(r.now)
		r.flush()
	}
	r.now = end
}

// client is one member's side of the conversation.
type client struct {
	r                    *rig
	id, instance         string
	protocols            []Protocol
	session              time.Duration
	joined               []Joined
	synced               []Synced
	rebalance            time.Duration
	version4, canSkip    bool
	generation           int32
	protocol, leaderSeen string
}

func (r *rig) client(protocols ...string) *client {
	c := &client{r: r, session: 10 * time.Second, rebalance: 20 * time.Second, version4: true}
	for _, p := range protocols {
		c.protocols = append(c.protocols, Protocol{Name: p, Metadata: []byte("m")})
	}
	return c
}

func (c *client) join() {
	c.r.ids++
	q := &Join{
		Group: "g", Member: c.id, Instance: c.instance, ProtocolType: "consumer", Protocols: c.protocols, Session: c.session,
		Rebalance: c.rebalance, NewID: fmt.Sprintf("id%d", c.r.ids), MustKnow: c.version4, CanSkip: c.canSkip,
	}
	c.r.g.join(q, c.r.now, func(j Joined) {
		c.joined = append(c.joined, j)
		if j.Err == OK || j.Err == MemberIDRequired {
			c.id = j.Member
		}
		if j.Err == OK {
			c.generation, c.protocol, c.leaderSeen = j.Generation, j.Protocol, j.Leader
		}
	})
	c.r.flush()
}

// enter joins with the detour over MEMBER_ID_REQUIRED.
func (c *client) enter() {
	c.join()
	if c.version4 && c.instance == "" {
		c.wantJoin(MemberIDRequired)
		c.join()
	}
}

func (c *client) sync(assignments map[string][]byte) {
	q := &Sync{Group: "g", Member: c.id, Instance: c.instance, Generation: c.generation, Assignments: assignments}
	c.r.g.sync(q, c.r.now, func(s Synced) { c.synced = append(c.synced, s) })
	c.r.flush()
}

func (c *client) heartbeat() Error {
	err := c.r.g.heartbeat(c.id, c.instance, c.generation, c.r.now)
	c.r.flush()
	return err
}

func (c *client) leave() Error {
	err := c.r.g.leave(c.id, c.instance, c.r.now)
	c.r.flush()
	return err
}

// wantJoin takes the one answer to join that must be there.
func (c *client) wantJoin(want Error) Joined {
	c.r.t.Helper()
	if len(c.joined) != 1 || c.joined[0].Err != want {
		c.r.t.Fatalf("answers to join: %+v, want one with error %d", c.joined, want)
	}
	j := c.joined[0]
	c.joined = nil
	return j
}

func (c *client) wantSync(want Error) Synced {
	c.r.t.Helper()
	if len(c.synced) != 1 || c.synced[0].Err != want {
		c.r.t.Fatalf("answers to sync: %+v, want one with error %d", c.synced, want)
	}
	s := c.synced[0]
	c.synced = nil
	return s
}

func (c *client) waits() {
	c.r.t.Helper()
	if len(c.joined)+len(c.synced) != 0 {
		c.r.t.Fatalf("answered too early: %+v %+v", c.joined, c.synced)
	}
}

func (r *rig) wantState(s State, generation int32) {
	r.t.Helper()
	if r.g.state != s || r.g.generation != generation {
		r.t.Fatalf("state %v generation %d, want %v %d", r.g.state, r.g.generation, s, generation)
	}
}

// stable makes a stable group of two, the first of which leads.
func stable(t *testing.T) (r *rig, a, b *client) {
	t.Helper()
	r = newRig(t)
	a, b = r.client("range"), r.client("range")
	r.settle(a, b)
	return r, a, b
}

func (r *rig) settle(clients ...*client) {
	r.t.Helper()
	for _, c := range clients {
		c.enter()
		c.waits()
	}
	r.after(time.Second)
	assignments := map[string][]byte{}
	for _, c := range clients {
		c.wantJoin(OK)
		assignments[c.id] = []byte("for " + c.id)
	}
	for _, c := range clients[1:] {
		c.sync(nil)
		c.waits()
	}
	clients[0].sync(assignments)
	for _, c := range clients {
		if s := c.wantSync(OK); string(s.Assignment) != "for "+c.id {
			r.t.Fatalf("%s was assigned %q", c.id, s.Assignment)
		}
	}
	r.wantState(Stable, 1)
}

func TestFirstGeneration(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range", "sticky"), r.client("sticky", "range")
	a.enter()
	r.after(400 * time.Millisecond)
	b.enter() // extends the wait
	r.after(400 * time.Millisecond)
	a.waits()
	r.after(200 * time.Millisecond)
	ja, jb := a.wantJoin(OK), b.wantJoin(OK)
	if ja.Leader != a.id || jb.Leader != a.id || len(ja.Members) != 2 || len(jb.Members) != 0 {
		t.Errorf("leader's answer %+v, member's %+v", ja, jb)
	}
	if ja.Protocol != "range" || ja.ProtocolType != "consumer" || ja.Generation != 1 {
		t.Errorf("protocol %q of %q, generation %d", ja.Protocol, ja.ProtocolType, ja.Generation)
	}
	r.wantState(Completing, 1)
	if err := b.heartbeat(); err != OK {
		t.Errorf("heartbeat while the leader assigns: %d", err)
	}
}

func TestInconsistentProtocols(t *testing.T) {
	r, _, _ := stable(t)
	c := r.client("sticky")
	c.join()
	c.wantJoin(InconsistentProtocol)
	none := r.client()
	none.join()
	none.wantJoin(InconsistentProtocol)
	r.wantState(Stable, 1)
}

func TestVoting(t *testing.T) {
	r := newRig(t)
	a, b, c := r.client("x", "y", "z"), r.client("y", "x"), r.client("y", "x")
	for _, m := range []*client{a, b, c} {
		m.enter()
	}
	r.after(time.Second)
	if j := a.wantJoin(OK); j.Protocol != "y" {
		t.Errorf("protocol %q, want y: two of three prefer it and all support it", j.Protocol)
	}
}

func TestThirdMemberRebalances(t *testing.T) {
	r, a, b := stable(t)
	c := r.client("range")
	c.enter()
	c.waits()
	r.wantState(Preparing, 1)
	if err := a.heartbeat(); err != RebalanceInProgress {
		t.Errorf("heartbeat: %d", err)
	}
	a.join()
	a.waits()
	b.join()
	r.wantState(Completing, 2)
	if j := a.wantJoin(OK); len(j.Members) != 3 {
		t.Errorf("%d members", len(j.Members))
	}
	b.wantJoin(OK)
	c.wantJoin(OK)
	old := *b
	old.generation = 1
	old.sync(nil)
	old.wantSync(IllegalGeneration)
	if err := old.heartbeat(); err != IllegalGeneration {
		t.Errorf("heartbeat of an old generation: %d", err)
	}
}

func TestMemberThatDoesNotRejoinIsLeftBehind(t *testing.T) {
	r := newRig(t)
	a, b, c := r.client("range"), r.client("range"), r.client("range")
	b.session = time.Hour // it is not its silence that ends its membership
	r.settle(a, b)
	c.enter()
	a.join()
	r.after(19 * time.Second)
	a.waits()
	r.after(2 * time.Second)
	if j := a.wantJoin(OK); len(j.Members) != 2 || j.Generation != 2 {
		t.Errorf("answer %+v, want a generation of two", j)
	}
	c.wantJoin(OK)
	if err := b.heartbeat(); err != UnknownMember {
		t.Errorf("heartbeat of the one left behind: %d", err)
	}
}

func TestSilentMemberExpires(t *testing.T) {
	r, a, b := stable(t)
	for range 4 {
		r.after(4 * time.Second)
		if err := a.heartbeat(); err != OK && err != RebalanceInProgress {
			t.Fatalf("heartbeat: %d", err)
		}
	}
	if r.g.byID(b.id) != nil {
		t.Fatal("a member without heartbeats is still there")
	}
	if err := b.heartbeat(); err != UnknownMember {
		t.Errorf("heartbeat of the removed member: %d", err)
	}
	a.join()
	a.wantJoin(OK)
	r.wantState(Completing, 2)
}

func TestLeaveRebalancesAndEmpties(t *testing.T) {
	r, a, b := stable(t)
	if err := b.leave(); err != OK {
		t.Fatalf("leave: %d", err)
	}
	r.wantState(Preparing, 1)
	if err := b.leave(); err != UnknownMember {
		t.Errorf("second leave: %d", err)
	}
	a.join()
	a.wantJoin(OK)
	if err := a.leave(); err != OK {
		t.Fatalf("leave: %d", err)
	}
	r.wantState(Empty, 3)
	if !r.g.idle() || r.g.size != 0 {
		t.Errorf("idle %v, %d bytes", r.g.idle(), r.g.size)
	}
}

func TestLeaderLeaves(t *testing.T) {
	r, a, b := stable(t)
	if err := a.leave(); err != OK {
		t.Fatalf("leave: %d", err)
	}
	b.join()
	if j := b.wantJoin(OK); j.Leader != b.id || len(j.Members) != 1 {
		t.Errorf("answer %+v, want to lead alone", j)
	}
	_ = r
}

func TestLeaderThatDoesNotSyncIsRemoved(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range"), r.client("range")
	a.session, b.session = time.Minute, time.Minute
	a.enter()
	b.enter()
	r.after(time.Second)
	a.wantJoin(OK)
	b.wantJoin(OK)
	b.sync(nil)
	b.waits()
	r.after(21 * time.Second)
	b.wantSync(RebalanceInProgress)
	if r.g.byID(a.id) != nil {
		t.Error("the silent leader is still a member")
	}
	b.join()
	if j := b.wantJoin(OK); j.Leader != b.id {
		t.Errorf("leader %q", j.Leader)
	}
}

func TestRepeatedRequests(t *testing.T) {
	r, a, b := stable(t)
	b.join() // unchanged, not the leader: told of the present generation
	if j := b.wantJoin(OK); j.Generation != 1 || len(j.Members) != 0 {
		t.Errorf("answer %+v", j)
	}
	b.sync(nil)
	if s := b.wantSync(OK); string(s.Assignment) != "for "+b.id {
		t.Errorf("assigned %q", s.Assignment)
	}
	r.wantState(Stable, 1)
	a.join() // the leader asks for a rebalance by joining again
	a.waits()
	r.wantState(Preparing, 1)
}

func TestStaticMemberReturns(t *testing.T) {
	for _, canSkip := range []bool{false, true} {
		r := newRig(t)
		a, b := r.client("range"), r.client("range")
		a.instance, b.instance = "i1", "i2"
		r.settle(a, b)
		oldID := a.id
		again := r.client("range")
		again.instance, again.canSkip = "i1", canSkip
		again.join()
		j := again.wantJoin(OK)
		r.wantState(Stable, 1)
		if j.Member == oldID || j.Generation != 1 || j.SkipAssignment != canSkip {
			t.Errorf("answer %+v", j)
		}
		if canSkip && (j.Leader != j.Member || len(j.Members) != 2) {
			t.Errorf("a leader that may skip learns the members: %+v", j)
		}
		if !canSkip && (j.Leader != oldID || len(j.Members) != 0) {
			t.Errorf("a leader that cannot skip must not think it leads: %+v", j)
		}
		again.sync(nil)
		if s := again.wantSync(OK); string(s.Assignment) != "for "+oldID {
			t.Errorf("assigned %q", s.Assignment)
		}
		if err := a.heartbeat(); err != FencedInstance {
			t.Errorf("heartbeat of the old incarnation: %d", err)
		}
		if err := r.g.commit(oldID, "i1", 1, r.now); err != FencedInstance {
			t.Errorf("commit of the old incarnation: %d", err)
		}
	}
}

func TestStaticMemberWithOtherMetadataRebalances(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range"), r.client("range")
	a.instance, b.instance = "i1", "i2"
	r.settle(a, b)
	again := r.client("range")
	again.instance = "i2"
	again.protocols[0].Metadata = []byte("other topics")
	again.join()
	again.waits()
	r.wantState(Preparing, 1)
}

func TestStaticMemberKeepsItsPlace(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range"), r.client("range")
	b.instance, b.session = "i2", time.Hour
	r.settle(a, b)
	c := r.client("range")
	c.enter()
	a.join()
	a.waits()
	r.after(21 * time.Second) // b is silent, but its session is not over
	if j := a.wantJoin(OK); len(j.Members) != 3 {
		t.Errorf("%d members, want the silent static one among 3", len(j.Members))
	}
	c.wantJoin(OK)
}

func TestCommit(t *testing.T) {
	r, a, _ := stable(t)
	for _, c := range []struct {
		id         string
		generation int32
		want       Error
	}{
		{a.id, 1, OK}, {a.id, 0, IllegalGeneration}, {"stranger", 1, UnknownMember}, {"", -1, UnknownMember},
	} {
		if err := r.g.commit(c.id, "", c.generation, r.now); err != c.want {
			t.Errorf("commit(%q, %d) = %d, want %d", c.id, c.generation, err, c.want)
		}
	}
	if err := newRig(t).g.commit("", "", -1, t0); err != OK {
		t.Errorf("commit outside of a group: %d", err)
	}
}

func TestPendingIDsExpire(t *testing.T) {
	r := newRig(t)
	a := r.client("range")
	a.join()
	a.wantJoin(MemberIDRequired)
	if r.g.idle() {
		t.Fatal("the id was forgotten")
	}
	r.after(11 * time.Second)
	if !r.g.idle() {
		t.Fatal("an unused id is kept")
	}
	a.join()
	a.wantJoin(UnknownMember)
}

func TestLimits(t *testing.T) {
	r := newRig(t)
	r.g.limits.Members, r.g.limits.GroupBytes = 2, 4096
	big := r.client("range")
	big.protocols[0].Metadata = make([]byte, 5000)
	big.join()
	big.wantJoin(Full)
	for range 2 {
		r.client("range").enter()
	}
	c := r.client("range")
	c.join()
	c.wantJoin(Full)
}
