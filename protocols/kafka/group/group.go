package group

import (
	"slices"
	"time"
)

// State is where a group stands.
type State uint8

// The states, with Kafka's names (String).
const (
	Empty      State = iota // no members
	Preparing               // waiting for the members to join the next generation
	Completing              // waiting for the leader's assignment
	Stable                  // working
	Dead                    // does not exist
)

// String returns Kafka's name of the state.
func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"}[s]
}

// newMemberPatience is how long a member may wait in its first join, during
// which it cannot send heartbeats.
const newMemberPatience = 5 * time.Minute

// group is the state machine of one group. It is not safe for concurrent use.
// Answers to members that wait go into out, for the driver to send.
type group struct {
	limits       *Limits
	state        State
	generation   int32
	protocolType string
	protocol     string
	leader       string
	members      []*member            // in the order in which they came
	pending      map[string]time.Time // ids given out, until when they may be used
	joinBy       time.Time            // Preparing: when those who have not joined are left behind
	initial      time.Time            // Preparing for the first time: when it may end at the earliest; zero otherwise
	syncBy       time.Time            // when those who have not synced are removed; zero = all have
	assigned     bool                 // Completing: the leader has assigned, which is being kept
	ahead        int32                // by how much more than one the next generation is higher
	size         int                  // bytes of all members
	out          []func()
	keep         []kept // what waits until the membership, as it is now, is kept
}

// kept is told what has come of keeping a membership: OK, or why the group is forgotten.
type kept func(err Error, now time.Time)

func newGroup(limits *Limits) *group {
	return &group{limits: limits, pending: map[string]time.Time{}}
}

func (g *group) byID(id string) *member {
	for _, m := range g.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

func (g *group) byInstance(instance string) *member {
	for _, m := range g.members {
		if m.instance != "" && m.instance == instance {
			return m
		}
	}
	return nil
}

// find returns the member that a request is from. The instance id, if given,
// must be that member's.
func (g *group) find(id, instance string) (*member, Error) {
	if instance != "" {
		m := g.byInstance(instance)
		switch {
		case m == nil:
			return nil, UnknownMember
		case m.id != id:
			return nil, FencedInstance
		}
		return m, OK
	}
	if m := g.byID(id); m != nil {
		return m, OK
	}
	return nil, UnknownMember
}

// heartbeat is a sign of life; it tells the member to join again.
func (g *group) heartbeat(id, instance string, generation int32, now time.Time) Error {
	m, err := g.find(id, instance)
	switch {
	case err != OK:
		return err
	case generation != g.generation:
		return IllegalGeneration
	}
	m.seen = now
	if g.state == Preparing {
		return RebalanceInProgress
	}
	return OK
}

// commit tells whether a member may commit offsets; generation < 0 without
// member is somebody who assigns partitions by himself.
func (g *group) commit(id, instance string, generation int32, now time.Time) Error {
	if generation < 0 && id == "" && instance == "" {
		if len(g.members) == 0 {
			return OK
		}
		return UnknownMember
	}
	m, err := g.find(id, instance)
	switch {
	case err != OK:
		return err
	case generation != g.generation:
		return IllegalGeneration
	case g.state == Completing:
		return RebalanceInProgress
	}
	m.seen = now
	return OK
}

// leave removes a member. A static member may be named by its instance alone.
func (g *group) leave(id, instance string, now time.Time) Error {
	if instance == "" {
		if _, ok := g.pending[id]; ok {
			delete(g.pending, id)
			g.tryGeneration(now)
			return OK
		}
	}
	var m *member
	var err Error
	if instance != "" && id == "" {
		if m = g.byInstance(instance); m == nil {
			err = UnknownMember
		}
	} else {
		m, err = g.find(id, instance)
	}
	if err != OK {
		return err
	}
	g.remove(m, now)
	return OK
}

// remove takes a member out and lets the others share its work.
func (g *group) remove(m *member, now time.Time) {
	g.drop(m)
	switch g.state {
	case Stable, Completing:
		g.rebalance(now)
	case Preparing:
		g.tryGeneration(now)
	case Empty, Dead: // no members
	}
}

func (g *group) drop(m *member) {
	g.fail(m, UnknownMember)
	g.size -= m.size()
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	if g.leader == m.id {
		g.leader = ""
		if len(g.members) > 0 {
			g.leader = g.members[0].id
		}
	}
}

// fail answers what a member waits for with an error.
func (g *group) fail(m *member, err Error) {
	if reply := m.joining; reply != nil {
		id := m.id
		g.out = append(g.out, func() { reply(Joined{Err: err, Generation: -1, Member: id}) })
		m.joining = nil
	}
	if reply := m.syncing; reply != nil {
		g.out = append(g.out, func() { reply(Synced{Err: err}) })
		m.syncing = nil
	}
}

// close answers everybody who waits.
func (g *group) close(why Error) {
	for _, m := range g.members {
		g.fail(m, why)
	}
}

// tick does what is due at now.
func (g *group) tick(now time.Time) {
	for id, until := range g.pending {
		if !now.Before(until) {
			delete(g.pending, id)
		}
	}
	for _, m := range slices.Clone(g.members) {
		if !now.Before(m.expires()) {
			g.remove(m, now)
		}
	}
	if g.state == Preparing {
		if !now.Before(g.joinBy) {
			g.leaveBehind(now)
		}
		if !now.Before(g.initial) {
			g.initial = time.Time{}
		}
		g.tryGeneration(now)
	}
	if !g.syncBy.IsZero() && !now.Before(g.syncBy) {
		g.syncLate(now)
	}
}

// never is later than any timer.
var never = time.Unix(1<<60, 0)

// expires is when the member is taken for dead unless it is heard of.
func (m *member) expires() time.Time {
	switch {
	case m.joining != nil && m.isNew:
		return m.seen.Add(newMemberPatience)
	case m.joining != nil, m.syncing != nil:
		return never // it waits for us
	default:
		return m.seen.Add(m.session)
	}
}

// next is when tick has something to do, or never.
func (g *group) next() time.Time {
	at := never
	earlier := func(t time.Time) {
		if t.Before(at) {
			at = t
		}
	}
	for _, until := range g.pending {
		earlier(until)
	}
	for _, m := range g.members {
		earlier(m.expires())
	}
	if g.state == Preparing {
		earlier(g.joinBy)
		if !g.initial.IsZero() {
			earlier(g.initial)
		}
	}
	if !g.syncBy.IsZero() {
		earlier(g.syncBy)
	}
	return at
}

// idle tells whether nothing would be lost with the group.
func (g *group) idle() bool { return len(g.members) == 0 && len(g.pending) == 0 }
