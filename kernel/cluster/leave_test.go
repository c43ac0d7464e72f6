package cluster

import (
	"testing"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestLeaveLeadingSplit: of two nodes one leads the catalog and the other one the data;
// that one is removed. It leaves before it is told that it is no member: else it would
// stop, and the other one had no majority for its removal.
func TestLeaveLeadingSplit(t *testing.T) {
	a, err := start(t, newDir("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := start(t, newDir("2"), "", a.address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "two voters", func() bool { return votes(a, b) })
	lead := func(m *member, of func(*member) *raftgroup.Group) {
		until(t, "a leadership moves", func() bool {
			for _, other := range []*member{a, b} {
				if leads, _ := of(other).Leader(); leads && other != m {
					_ = of(other).TransferLeadershipTo(t.Context(), m.dir.identity.Raft)
				}
			}
			leads, _ := of(m).Leader()
			return leads
		})
	}
	lead(a, func(m *member) *raftgroup.Group { return m.placed })
	lead(b, func(m *member) *raftgroup.Group { return m.catalog.Raft() })
	if err := b.node.Remove(t.Context(), "1", false); err != nil {
		t.Fatal(err)
	}
	if r := <-a.refused; r.Code != transport.CodeRemoved {
		t.Errorf("%+v", r)
	}
	a.stop()
	until(t, "one voter", func() bool { return votes(b) })
	propose(t, b)
}

// TestLeaveLastOther: a node whose last fellow was removed does not remember it: it is a
// node of its own, that may be recovered as such, also after a restart.
func TestLeaveLastOther(t *testing.T) {
	a, err := start(t, newDir("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	b, err := start(t, newDir("2"), "", a.address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "two voters", func() bool { return votes(a, b) })
	until(t, "the other one is written down", func() bool { return len(Others(a.dir.disk, "")) == 1 })
	if err := a.node.Remove(t.Context(), "2", false); err != nil {
		t.Fatal(err)
	}
	b.stop()
	until(t, "nobody is written down", func() bool { return len(Others(a.dir.disk, "")) == 0 })
	a.stop()
	again, err := start(t, a.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "one voter", func() bool { return votes(again) })
	propose(t, again)
}
