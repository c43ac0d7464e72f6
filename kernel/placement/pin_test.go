package placement

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// pinner is a sink that pins.
type pinner struct {
	*sink
	mu      sync.Mutex
	pinned  []uint16
	taken   []uint16
	errs    []error
	changed chan struct{}
}

func newPinner() *pinner { return &pinner{sink: newSink(), changed: make(chan struct{}, 1)} }

func (p *pinner) Pinned(numbers []uint16, err error) { p.note(&p.pinned, numbers, err) }
func (p *pinner) Taken(numbers []uint16, err error)  { p.note(&p.taken, numbers, err) }

func (p *pinner) note(list *[]uint16, numbers []uint16, err error) {
	p.mu.Lock()
	*list = append(*list, numbers...)
	if err != nil {
		p.errs = append(p.errs, err)
	}
	p.mu.Unlock()
	signal(p.changed)
}

func (p *pinner) waitPins(t testing.TB, pinned, taken int) {
	t.Helper()
	ctx := soon(t)
	for {
		p.mu.Lock()
		done := len(p.pinned) >= pinned && len(p.taken) >= taken
		p.mu.Unlock()
		if done {
			return
		}
		select {
		case <-p.changed:
		case <-ctx.Done():
			t.Fatalf("pinned %d, taken %d", p.pinned, p.taken)
		}
	}
}

func pid(number uint16) kernel.PinID {
	return kernel.PinID{Number: number, Count: uint64(number) + 1000}
}

func barrier(t testing.TB, g *Group) {
	t.Helper()
	for range 2 { // the second is served after all that was there at the first
		for _, s := range g.shards {
			s.call(func() {})
		}
	}
	_, err := g.do(soon(t), barrierCommand())
	must(t, err)
}

// TestPins: what is pinned to a session stays with it while others work off the
// rest, when its member leaves, and when the node restarts, from the log and from a
// checkpoint; what is taken is settled; what is left goes with the session.
func TestPins(t *testing.T) {
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprint("seal=", seal), func(t *testing.T) {
			n := newNode(t, vfs.NewMem(), "data")
			g := n.open()
			defer func() { n.close(g) }()
			parts, id := queue(t, g, 1, 1, kernel.RetainDay)
			publish(t, g, g.Targets(parts...), 0, 10)
			to := newPinner()
			m := join(t, g, id, kernel.MemberOptions{Session: "c"}, to)
			m.Credit(6)
			to.sink.wait(t, 6)
			for i := range uint16(5) { // 0-4 are pinned, 5 is not
				m.Pin(pid(100+i), 0, int64(i))
			}
			m.Pin(pid(99), 0, 9) // not held
			to.waitPins(t, 6, 0)
			if len(to.errs) != 1 {
				t.Fatal(to.errs)
			}
			m.Take(pid(101), 0, 1)
			m.Take(pid(102), 0, 2)
			m.Refuse(pid(103), 0, 3)
			to.waitPins(t, 6, 2)
			m.Unpin(pid(102))
			m.Leave()
			barrier(t, g)

			want := fmt.Sprint([]kernel.Pin{
				{PinID: pid(100), Group: kernel.QueueAddress("/", "q1")},
				{PinID: pid(101), Taken: true, Group: kernel.QueueAddress("/", "q1"), Offset: 1},
				{PinID: pid(104), Group: kernel.QueueAddress("/", "q1"), Offset: 4},
			})
			name := kernel.SessionName("/", "c")
			restart := func() {
				if seal {
					_, err := g.do(soon(t), sealCommand())
					must(t, err)
				}
				n.close(g)
				g = n.open()
			}
			for range 2 {
				if got := fmt.Sprint(g.Pins(name)); got != want {
					t.Fatalf("pins\n%s, want\n%s", got, want)
				}
				other := newSink() // somebody else
				o := join(t, g, id, kernel.MemberOptions{}, other)
				o.Credit(100)
				var numbers []uint64
				for _, d := range other.wait(t, 5) {
					numbers = append(numbers, d.number)
				}
				if !slices.Equal(numbers, []uint64{5, 6, 7, 8, 9}) {
					t.Fatal(numbers)
				}
				if ready, held, _ := g.Count(id); ready != 0 || held != 7 {
					t.Fatal(ready, held)
				}
				o.Leave()
				restart()
			}

			// The session comes back, and goes on where it was.
			to = newPinner()
			m = join(t, g, id, kernel.MemberOptions{Session: "c"}, to)
			var value uint64
			if !m.Read(kernel.Place{Offset: 4}, func(v *kernel.View) { value = numberOf(v) }) || value != 4 {
				t.Fatal(value)
			}
			if m.Read(kernel.Place{Offset: 10}, func(*kernel.View) {}) {
				t.Fatal("there is no such record")
			}
			m.Take(pid(104), 0, 4)
			to.waitPins(t, 0, 1)
			m.Unpin(pid(104))
			m.Unpin(pid(101))
			m.Leave()
			restart()
			if got := g.Pins(name); len(got) != 1 || got[0].Number != 100 || got[0].Taken {
				t.Fatal(got)
			}
			other := newSink()
			o := join(t, g, id, kernel.MemberOptions{AutoSettle: true}, other)
			o.Credit(100)
			other.wait(t, 5)
			must(t, g.ForgetSession(soon(t), name))
			barrier(t, g)
			publish(t, g, g.Targets(parts...), 10, 11)
			if last := other.wait(t, 6)[5]; last.number != 10 {
				t.Fatalf("%+v", last)
			}
			if got := g.Pins(name); len(got) != 0 {
				t.Fatal(got)
			}
			o.Leave()
		})
	}
}

// TestPinsOfAGroupThatGoes: the numbers stay in use, as taken, until they are freed.
func TestPinsOfAGroupThatGoes(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer func() { n.close(g) }()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 3)
	to := newPinner()
	m := join(t, g, id, kernel.MemberOptions{Session: "c"}, to)
	m.Credit(3)
	to.sink.wait(t, 3)
	m.Pin(pid(1), 0, 0)
	m.Pin(pid(2), 0, 1)
	to.waitPins(t, 2, 0)
	must(t, g.DropTopic(soon(t), topicN(1), 2))
	m.Pin(pid(3), 0, 2)
	m.Take(pid(1), 0, 0)
	to.waitPins(t, 3, 1)
	m.Unpin(pid(1))
	barrier(t, g)
	name := kernel.SessionName("/", "c")
	for range 2 {
		if got := g.Pins(name); len(got) != 1 || got[0].Number != 2 || !got[0].Taken {
			t.Fatal(got)
		}
		n.close(g)
		g = n.open()
	}
	must(t, g.Unpin(name, pid(2)))
	barrier(t, g)
	if got := g.Pins(name); len(got) > 0 {
		t.Fatal(got)
	}
}

// TestPinAfterDrop: whoever has heard that the topic has gone gets nothing pinned, also
// when the shard takes in the drop and the pin in one step.
func TestPinAfterDrop(t *testing.T) {
	s := newStepped(t)
	part := s.topic(t, 1)[0]
	id := GroupID(s.command(t, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1)).ids[0])
	must(t, s.Append(s.Targets(part), numbered(1), nil, 0))
	s.commit(len(s.log.entries)-1, 1)
	to := newPinner()
	m := join(t, s.Group, id, kernel.MemberOptions{Session: "c"}, to)
	m.Credit(1)
	s.step()
	_, err := s.prop.command(topicCommand(cmdDropTopic, topicN(1), 2))
	must(t, err)
	s.index++
	s.machine.Apply([]raftgroup.Entry{{Index: s.index, Term: 1, Data: s.log.entries[len(s.log.entries)-1].data}})
	logged := len(s.log.entries)
	m.Pin(pid(3), 0, 0)
	s.step()
	if !slices.Equal(to.pinned, []uint16{3}) || len(to.errs) != 1 || len(s.log.entries) != logged {
		t.Fatal(to.pinned, to.errs, len(s.log.entries)-logged)
	}
}

// TestPinAndSettlementTogether: a record is settled in the entry that says that it
// is taken.
func TestPinAndSettlementTogether(t *testing.T) {
	s := newStepped(t)
	part := s.topic(t, 1)[0]
	id := GroupID(s.command(t, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1)).ids[0])
	must(t, s.Append(s.Targets(part), numbered(1), nil, 0))
	s.commit(len(s.log.entries)-1, 1)
	to := newPinner()
	m := join(t, s.Group, id, kernel.MemberOptions{Session: "c"}, to)
	m.Credit(1)
	s.step()
	m.Pin(pid(7), 0, 0)
	s.step()
	if len(to.pinned) > 0 {
		t.Fatal("it is said to be pinned before that is committed")
	}
	s.commit(len(s.log.entries)-1, 1)
	if !slices.Equal(to.pinned, []uint16{7}) {
		t.Fatal(to.pinned)
	}
	m.Take(pid(7), 0, 0)
	s.step()
	var r entryReader
	must(t, r.reset(s.log.entries[len(s.log.entries)-1].data))
	var kinds []byte
	for r.next() {
		kinds = append(kinds, r.kind)
	}
	if !slices.Equal(kinds, []byte{sectionSettlement, sectionCommand}) || len(to.taken) > 0 {
		t.Fatal(kinds, to.taken)
	}
	s.commit(len(s.log.entries)-1, 1)
	if w := s.machine.groups[id].window(0); !slices.Equal(to.taken, []uint16{7}) || w.Floor() != 1 {
		t.Fatal(to.taken, w.Floor())
	}
}
