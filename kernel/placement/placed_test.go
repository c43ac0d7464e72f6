package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestGroupBeginsAt: a group begins where it was asked to, in each partition, and stays
// there over a restart; one that is there is not moved.
func TestGroupBeginsAt(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	parts, _ := queue(t, g, 1, 2, kernel.RetainDay)
	publish(t, g, g.Targets(parts[0]), 0, 6)
	publish(t, g, g.Targets(parts[1]), 6, 8)
	begin := func(name string, at kernel.Position, limits *kernel.Limits, want int64) {
		t.Helper()
		id := group(t, g, GroupSpec{Address: kernel.GroupAddress{Tenant: "/", Group: name, Topic: "q1"}, Topic: topicN(1), Owner: true, Start: at, Limits: limits})
		if ready, _, _ := g.Count(id); ready != want {
			t.Errorf("%s: %d ready, want %d", name, ready, want)
		}
	}
	limits := kernel.NoLimits()
	limits.MaxLength = 100
	for range 2 {
		begin("start", kernel.Position{Kind: kernel.AtStart}, nil, 8)
		begin("end", kernel.Position{Kind: kernel.AtEnd}, nil, 0)
		begin("last", kernel.Position{Kind: kernel.AtLast}, nil, 2)
		begin("offset", kernel.Position{Kind: kernel.AtOffset, Value: 1}, &limits, 6)
		begin("beyond", kernel.Position{Kind: kernel.AtOffset, Value: 1 << 40}, nil, 0)
		begin("time", kernel.Position{Kind: kernel.AtTime, Value: 1004}, nil, 4)
		n.close(g)
		g = n.open()
		ready(t, g)
	}
	begin("offset", kernel.Position{Kind: kernel.AtStart}, nil, 6)
	n.close(g)
}
