package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// both runs a test on a volatile and on a durable group.
func both(t *testing.T, test func(t *testing.T, g *Group)) {
	t.Run("volatile", func(t *testing.T) { test(t, volatileGroup(t, Limits{})) })
	t.Run("durable", func(t *testing.T) {
		n := newNode(t, vfs.NewMem(), "data")
		g := n.open()
		defer n.close(g)
		test(t, g)
	})
}

func TestPublishDeliverSettle(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		parts, id := queue(t, g, 1, 1, kernel.RetainDay)
		set := g.Targets(parts...)
		for n, res := range publish(t, g, set, 0, 100) {
			if res.Err != nil || res.Offset != int64(n) {
				t.Fatalf("publish %d: %+v", n, res)
			}
		}
		if ready, held, members, _, _ := g.Stats(id); ready != 100 || held != 0 || members != 0 {
			t.Fatalf("stats before joining: %d ready, %d held, %d members", ready, held, members)
		}
		s := newSink()
		m := join(t, g, id, kernel.MemberOptions{}, s)
		m.Credit(60)
		for i, d := range s.wait(t, 60) {
			if d.number != uint64(i) || d.offset != int64(i) || d.acquired != 1 || d.redelivered {
				t.Fatalf("delivery %d: %+v", i, d)
			}
		}
		m.Settle(kernel.Accept, 0, 0, 49)
		m.Credit(50)
		s.wait(t, 100)
		if left := m.Leave(); left != 0 {
			t.Fatalf("%d members left", left)
		}
		ready, held, _, delivered, settled := g.Stats(id)
		if ready != 50 || held != 0 || delivered != 100 || settled != 50 {
			t.Fatalf("stats at the end: %d ready, %d held, %d delivered, %d settled", ready, held, delivered, settled)
		}
		s2 := newSink()
		m2 := join(t, g, id, kernel.MemberOptions{}, s2)
		m2.Credit(1000)
		for i, d := range s2.wait(t, 50) {
			if d.number != uint64(50+i) || d.acquired != 2 || !d.redelivered {
				t.Fatalf("after leaving: delivery %d: %+v", i, d)
			}
		}
		m2.Leave()
	})
}
