package placement

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestOrphans: what is pinned to a session that ends goes to nobody else: it is
// dead-lettered, or archived. So it is where the number is freed before the record is
// taken. What the session's member held without a pin is given back.
func TestOrphans(t *testing.T) {
	for _, deadLetter := range []bool{false, true} {
		for _, away := range []bool{false, true} { // nobody is there when the session ends
			t.Run(fmt.Sprint("deadLetter=", deadLetter, ",away=", away), func(t *testing.T) {
				n, dead := newNode(t, vfs.NewMem(), "data"), &cemetery{stopped: away}
				n.bury = dead.bury
				g := n.open()
				defer func() { n.close(g) }()
				part, id := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) { l.DeadLetter = deadLetter }))
				publish(t, g, g.Targets(part), 0, 6)
				to := newPinner()
				m := join(t, g, id, kernel.MemberOptions{Session: "c"}, to)
				m.Credit(5)
				to.sink.wait(t, 5)
				for i := range uint16(4) {
					m.Pin(pid(i), 0, int64(i))
				}
				to.waitPins(t, 4, 0)
				m.Take(pid(0), 0, 0)
				to.waitPins(t, 4, 1)
				name := kernel.SessionName("/", "c")
				must(t, g.Unpin(name, pid(1)))
				m.Leave()
				if away {
					n.close(g)
					g = n.open()
				}
				var other *sink
				if !away {
					other = newSink()
					join(t, g, id, kernel.MemberOptions{AutoSettle: true}, other).Credit(100)
					other.wait(t, 2)
				}
				must(t, g.ForgetSession(soon(t), name))
				if deadLetter {
					dead.wait(t, "1 rejected", "2 rejected", "3 rejected")
				}
				for range 2 {
					if !comesTrue(func() bool { return g.machine.orphans() == 0 }) {
						t.Fatal("there are still orphans")
					}
					if len(g.Sessions()) > 0 || len(g.Pins(name)) > 0 {
						t.Fatal(g.Sessions(), g.Pins(name))
					}
					if away {
						n.close(g)
						g = n.open()
					}
				}
				if other == nil {
					other = newSink()
					join(t, g, id, kernel.MemberOptions{AutoSettle: true}, other).Credit(100)
				}
				publish(t, g, g.Targets(part), 6, 7)
				var numbers []uint64
				for _, d := range other.wait(t, 3) {
					numbers = append(numbers, d.number)
				}
				if !slices.Equal(numbers, []uint64{4, 5, 6}) {
					t.Fatalf("others got %v", numbers)
				}
				barrier(t, g)
				if ready, held, _ := g.Count(id); ready != 0 || held != 0 {
					t.Fatal(ready, held)
				}
			})
		}
	}
}

// TestOrphansAfterACrash: an entry that ends a session is the last one of a life. In
// the next one its records are refused before anybody gets any.
func TestOrphansAfterACrash(t *testing.T) {
	s := newStepped(t)
	part := s.topic(t, 1)[0]
	id := GroupID(s.command(t, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1)).ids[0])
	for i := range uint64(2) {
		must(t, s.Append(s.Targets(part), numbered(i), nil, 0))
		s.commit(len(s.log.entries)-1, 1)
	}
	s.command(t, appendPinRun([]byte{cmdPins}, "s", 1, appendPin(nil, pid(1), id, part, 0)))
	s.command(t, appendString([]byte{cmdForget}, "s"))
	s.step()
	w := s.machine.groups[id].window(0)
	if w.Settled(0) || s.machine.orphans() != 1 {
		t.Fatal("the record is settled before that is committed")
	}
	s.onUnlead()
	s.step()
	s.log.term = 2
	s.onLead(2)
	to := newSink()
	join(t, s.Group, id, kernel.MemberOptions{}, to).Credit(10)
	s.step()
	if got := to.wait(t, 1); got[0].number != 1 {
		t.Fatalf("got %+v", got)
	}
}

// orphans counts what is not refused yet.
func (m *machine) orphans() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, l := range m.ledgers {
		if isOrphanage(name) {
			n += len(l.pins)
		}
	}
	return n
}
