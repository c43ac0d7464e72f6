package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// settleDown waits until the member's shard has done what it was asked so far.
func settleDown(m *Member) {
	for range 3 {
		m.shard.call(func() {})
	}
}

func large(n uint64) *kernel.Record {
	r := numbered(n)
	r.Value = append(r.Value, make([]byte, handBytes*2/3)...)
	return r
}

// TestCreditTakenBackWhileDelivering: a consumer that finds messages larger than
// it thought gets no more than one call's worth of them, and others get the rest.
func TestCreditTakenBackWhileDelivering(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		set, done := g.Targets(parts[0]), newAnswers()
		for n := range uint64(8) {
			if err := g.Append(set, large(n), done, n); err != nil {
				t.Fatal(err)
			}
		}
		done.wait(t, 8)
		a, b := newSink(), newSink()
		m := join(t, g, id, kernel.MemberOptions{}, a)
		a.each = func(d kernel.Delivery) {
			if d.Offset == 0 {
				m.Credit(-8)
			}
		}
		m.Credit(10)
		a.wait(t, 2)
		settleDown(m)
		m.Credit(1)
		a.wait(t, 3)
		settleDown(m)
		if n := len(a.wait(t, 0)); n != 3 {
			t.Errorf("a credit of 3 brought %d records", n)
		}
		join(t, g, id, kernel.MemberOptions{}, b).Credit(10)
		for i, d := range b.wait(t, 5) {
			if d.offset != int64(3+i) {
				t.Errorf("record %d is %+v", i, d)
			}
		}
	})
}

// TestCreditTakenBackTooLate: what was used already is made up for later.
func TestCreditTakenBackTooLate(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		publish(t, g, g.Targets(parts[0]), 0, 20)
		a := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, a)
		for _, step := range []struct{ credit, total int }{
			{5, 5}, {-3, 5}, {2, 5}, {2, 6}, {-1, 6}, {-1, 6}, {12, 16}, {10, 20}, {-6, 20},
		} {
			m.Credit(step.credit)
			settleDown(m)
			if n := len(a.wait(t, step.total)); n != step.total {
				t.Fatalf("credit %+d: %d records in all, want %d", step.credit, n, step.total)
			}
		}
		publish(t, g, g.Targets(parts[0]), 20, 21) // there was credit for 20 of 26, less 6
		settleDown(m)
		if n := len(a.wait(t, 0)); n != 20 {
			t.Errorf("%d records", n)
		}
	})
}

// TestCreditTakenBackFromOthers: when the first of two shares uses up what both
// had credit for, the other's record is not even marked as handed out.
func TestCreditTakenBackFromOthers(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, own := queue(t, g, 1, 1, kernel.RetainDay)
		further := group(t, g, GroupSpec{
			Address: kernel.GroupAddress{Tenant: "/", Group: "g", Topic: "q1"}, Topic: topicN(1), FromStart: true,
		})
		sinks := []*sink{newSink(), newSink()}
		members := []*Member{join(t, g, own, kernel.MemberOptions{}, sinks[0]), join(t, g, further, kernel.MemberOptions{}, sinks[1])}
		for i, s := range sinks {
			s.each = func(kernel.Delivery) {
				s.each = nil
				members[1-i].Credit(-1)
			}
			members[i].Credit(1)
		}
		publish(t, g, g.Targets(parts[0]), 0, 1)
		select {
		case <-sinks[0].changed:
		case <-sinks[1].changed:
		case <-soon(t).Done():
			t.Fatal("nothing comes")
		}
		settleDown(members[0])
		late := 1
		if len(sinks[1].wait(t, 0)) == 1 {
			late = 0
		}
		if n := len(sinks[0].wait(t, 0)) + len(sinks[1].wait(t, 0)); n != 1 {
			t.Fatalf("%d records with credit for one", n)
		}
		members[late].Credit(1)
		if d := sinks[late].wait(t, 1)[0]; d.redelivered || d.acquired != 1 {
			t.Errorf("it comes late as %+v", d)
		}
	})
}
