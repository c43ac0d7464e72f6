package group

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// checkMembership has a group that works survive its coordinator.
func checkMembership(t *rapid.T, g *group) {
	if g.state != Stable {
		return
	}
	b := g.appendMembership(nil)
	m, err := readMembership(b)
	if err != nil {
		t.Fatal(err)
	}
	next := newGroup(g.limits)
	next.restore(m, t0)
	if got := next.appendMembership(nil); !bytes.Equal(got, b) {
		t.Fatalf("%q becomes %q", b, got)
	}
	if next.size != g.size || next.state != Stable || next.generation != g.generation || next.leader != g.leader {
		t.Fatalf("%+v becomes %+v", g, next)
	}
	if len(b) > g.size+len(g.protocolType)+len(g.protocol)+len(g.leader)+64 {
		t.Fatalf("%d bytes for a group of %d", len(b), g.size)
	}
}

// restored is a rig whose group is that of another one, as the next coordinator has it.
func (r *rig) restored() *rig {
	r.t.Helper()
	m, err := readMembership(r.g.appendMembership(nil))
	if err != nil {
		r.t.Fatal(err)
	}
	next := newRig(r.t)
	next.now, next.ids = r.now, r.ids
	next.g.restore(m, r.now)
	return next
}

func (c *client) to(r *rig) { c.r = r }

// TestNextCoordinatorGoesOn: members of a group whose coordinator has changed go on in the same
// generation, with the same leader; who is not heard of is removed when its session is over, and
// the others share its work.
func TestNextCoordinatorGoesOn(t *testing.T) {
	r, a, b := stable(t)
	next := r.restored()
	a.to(next)
	b.to(next)
	next.wantState(Stable, 1)
	if err := a.heartbeat(); err != OK {
		t.Errorf("heartbeat: %d", err)
	}
	if err := next.g.commit(b.id, "", 1, next.now); err != OK {
		t.Errorf("commit: %d", err)
	}
	b.sync(nil) // it has missed the answer
	if s := b.wantSync(OK); string(s.Assignment) != "for "+b.id {
		t.Errorf("assigned %q", s.Assignment)
	}
	b.join() // not the leader, and nothing has changed
	if j := b.wantJoin(OK); j.Generation != 1 || j.Leader != a.id {
		t.Errorf("%+v", j)
	}
	for range 3 {
		next.after(4 * time.Second)
		_ = a.heartbeat()
	}
	if next.g.byID(b.id) != nil {
		t.Fatal("a member that died with its coordinator is still there")
	}
	a.join()
	if j := a.wantJoin(OK); j.Leader != a.id || len(j.Members) != 1 {
		t.Errorf("%+v", j)
	}
}

// TestSessionsBeginAtTheLoad: nobody is removed for having been silent while there was no
// coordinator.
func TestSessionsBeginAtTheLoad(t *testing.T) {
	r, a, b := stable(t)
	r.now = r.now.Add(time.Hour)
	next := r.restored()
	a.to(next)
	b.to(next)
	next.after(9 * time.Second)
	for _, c := range []*client{a, b} {
		if err := c.heartbeat(); err != OK {
			t.Errorf("heartbeat: %d", err)
		}
	}
}

// TestGenerationsDoNotComeTwice: a coordinator has told its members of a generation, and
// died before it was kept. The next one goes on with that before; it does not give the number again,
// so that nobody commits in a generation that he was told of and that has become another one.
func TestGenerationsDoNotComeTwice(t *testing.T) {
	r, a, b := stable(t)
	before := r.restored()
	c := r.client("range")
	c.enter()
	a.join()
	b.join()
	for _, m := range []*client{a, b, c} {
		if j := m.wantJoin(OK); j.Generation != 2 {
			t.Fatalf("%+v", j)
		}
		m.to(before)
	}
	for _, m := range []*client{a, b} {
		if err := m.heartbeat(); err != IllegalGeneration {
			t.Errorf("heartbeat in a generation that nobody has kept: %d", err)
		}
		if err := before.g.commit(m.id, "", m.generation, before.now); err != IllegalGeneration {
			t.Errorf("commit in a generation that nobody has kept: %d", err)
		}
	}
	c.sync(nil)
	c.wantSync(UnknownMember)
	for _, m := range []*client{a, b} {
		m.sync(nil)
		m.wantSync(IllegalGeneration)
	}
	a.join()
	b.join()
	if j := a.wantJoin(OK); j.Generation != 2+leap {
		t.Errorf("%+v", j)
	}
	b.wantJoin(OK)
	a.sync(map[string][]byte{a.id: []byte("a")})
	a.wantSync(OK)
	a.join() // as the leader, so that there is one more
	b.join()
	if j := a.wantJoin(OK); j.Generation != 3+leap {
		t.Errorf("%+v", j)
	}
}

// TestGenerationsEnd: what comes after the highest one is positive.
func TestGenerationsEnd(t *testing.T) {
	for _, last := range []int32{math.MaxInt32, math.MaxInt32 - 1, math.MaxInt32 - leap} {
		g := &group{generation: last, ahead: leap}
		if g.advance(); g.generation <= 0 || g.ahead != 0 {
			t.Errorf("after %d: %d", last, g.generation)
		}
	}
}

// TestNobodyIsToldBeforeItIsKept: the answers to SyncGroup wait until the membership is kept; a new
// member meanwhile makes them join again.
func TestNobodyIsToldBeforeItIsKept(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range"), r.client("range")
	a.enter()
	b.enter()
	r.after(time.Second)
	a.wantJoin(OK)
	b.wantJoin(OK)
	r.hold = true
	b.sync(nil)
	a.sync(map[string][]byte{a.id: []byte("a"), b.id: []byte("b")})
	a.waits()
	b.waits()
	if err := a.heartbeat(); err != OK {
		t.Errorf("heartbeat: %d", err)
	}
	if err := r.g.commit(a.id, "", 1, r.now); err != RebalanceInProgress {
		t.Errorf("commit: %d", err)
	}
	a.sync(map[string][]byte{a.id: []byte("other")}) // again: its first request is answered, and the assignment stays
	a.wantSync(RebalanceInProgress)
	r.wantState(Completing, 1)
	if len(r.held) != 1 {
		t.Fatalf("%d memberships are to be kept", len(r.held))
	}
	r.kept(OK)
	r.flush()
	r.wantState(Stable, 1)
	if s := a.wantSync(OK); string(s.Assignment) != "a" {
		t.Errorf("assigned %q", s.Assignment)
	}
	b.wantSync(OK)

	c := r.client("range")
	c.enter()
	a.join()
	b.join()
	for _, m := range []*client{a, b, c} {
		m.wantJoin(OK)
	}
	b.sync(nil)
	a.sync(nil)
	d := r.client("range")
	d.enter()
	a.wantSync(RebalanceInProgress)
	b.wantSync(RebalanceInProgress)
	r.kept(OK) // of a generation that is over
	r.flush()
	r.wantState(Preparing, 2)
	d.waits()
}

// TestStaticMemberIsToldWhenItIsKept: who takes the place of a static member is told so when
// the next coordinator would know it, too.
func TestStaticMemberIsToldWhenItIsKept(t *testing.T) {
	r := newRig(t)
	a, b := r.client("range"), r.client("range")
	a.instance, b.instance = "i1", "i2"
	r.settle(a, b)
	again := r.client("range")
	again.instance = "i2"
	r.hold = true
	again.join()
	again.waits()
	next := r.restored()
	r.kept(OK)
	r.flush()
	if j := again.wantJoin(OK); j.Generation != 1 || next.g.byInstance("i2").id != j.Member {
		t.Errorf("%+v", j)
	}
	third := r.client("range")
	third.instance = "i2"
	third.join()
	r.kept(NotAvailable)
	r.flush()
	third.wantJoin(NotAvailable)
}

// TestMalformedMemberships: what no group could be is refused.
func TestMalformedMemberships(t *testing.T) {
	r, _, _ := stable(t)
	good := r.g.appendMembership(nil)
	for i := range good {
		if m, err := readMembership(good[:i]); err == nil || !errors.Is(err, errMembership) {
			t.Fatalf("of the first %d bytes: %+v, %v", i, m, err)
		}
	}
	if _, err := readMembership(append(bytes.Clone(good), 0)); err == nil {
		t.Error("with a byte too many")
	}
	for name, change := range map[string]func(g *group){
		"version":     nil,
		"generation":  func(g *group) { g.generation = 0 },
		"too high":    func(g *group) { g.generation = maxRestored + 1 },
		"leader":      func(g *group) { g.leader = "nobody" },
		"type":        func(g *group) { g.protocolType = "" },
		"protocol":    func(g *group) { g.protocol = "sticky" },
		"twice":       func(g *group) { g.members[1].id = g.members[0].id },
		"instances":   func(g *group) { g.members[0].instance, g.members[1].instance = "i", "i" },
		"no session":  func(g *group) { g.members[0].session = 0 },
		"long":        func(g *group) { g.members[0].session = 25 * time.Hour },
		"rebalance":   func(g *group) { g.members[0].rebalance = 25 * time.Hour },
		"long id":     func(g *group) { g.members[0].clientID = string(make([]byte, maxText+1)) },
		"no protocol": func(g *group) { g.members[0].protocols = nil },
		"nobody":      func(g *group) { g.members = nil },
	} {
		r, _, _ := stable(t)
		bad := r.g.appendMembership(nil)
		if change == nil {
			bad[0] = 2
		} else {
			change(r.g)
			bad = r.g.appendMembership(nil)
		}
		if m, err := readMembership(bad); err == nil || !errors.Is(err, errMembership) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// FuzzMembership: what is read is a group that can be kept again, and go on.
func FuzzMembership(f *testing.F) {
	limits := Limits{}
	limits.defaults()
	g := newGroup(&limits)
	g.generation, g.protocolType, g.protocol, g.leader = 7, "consumer", "range", "m1"
	f.Add(g.appendMembership(nil))
	for i := range 3 {
		g.members = append(g.members, &member{
			id: fmt.Sprint("m", i), clientID: "c", clientHost: "/10.0.0.1", session: 10 * time.Second, rebalance: time.Minute,
			protocols: []Protocol{{"range", []byte("topics")}, {"sticky", nil}}, assignment: []byte("work"),
		})
		f.Add(g.appendMembership(nil))
	}
	g.members[0].instance = "i"
	f.Add(g.appendMembership(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readMembership(b)
		if err != nil {
			return
		}
		next := newGroup(&limits)
		next.restore(m, t0)
		again, err := readMembership(next.appendMembership(nil))
		if err != nil {
			t.Fatal(err)
		}
		if len(again.members) != len(next.members) || again.leader != next.leader || next.size < len(b)/2 && len(b) > 4096 {
			t.Fatalf("%+v, %d bytes for %d", again, next.size, len(b))
		}
		now := t0
		for range 200 {
			if now = now.Add(time.Hour); next.idle() {
				break
			}
			next.tick(now)
		}
		if !next.idle() || next.size != 0 {
			t.Fatalf("%d members stay, %d bytes", len(next.members), next.size)
		}
	})
}
