package cluster

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestStatusTellsOfALowDisk: an operator sees whose disk is low, as it has told.
func TestStatusTellsOfALowDisk(t *testing.T) {
	list := three(t)
	n := list[0].node
	second := list[1].node.Self()
	until(t, "it has told how it is", func() bool { return n.fresh(second.Raft) != nil })
	low := *n.fresh(second.Raft)
	low.Low = true
	member := Member{Node: second.Node, Raft: second.Raft}
	until(t, "the status says so", func() bool {
		n.met.told(&low, false, nil) // what the node itself tells each second is otherwise
		return n.describe(member, nil).Low
	})
	if n.describe(Member{Node: "1", Raft: n.Self().Raft, Self: true}, nil).Low {
		t.Error("this node's own disk is not low")
	}
}

// TestALowLeaderHandsOver: for a leader whose disk is low all publishes are refused, though
// the others have room. One of those leads in its place; while all are low nobody moves.
func TestALowLeaderHandsOver(t *testing.T) {
	list := three(t)
	leader := func() *member {
		for _, m := range list {
			if leads, _ := m.placed.Leader(); leads {
				return m
			}
		}
		return nil
	}
	var first *member
	until(t, "somebody leads", func() bool { first = leader(); return first != nil })
	first.dir.low.Store(true)
	until(t, "one with room leads", func() bool { now := leader(); return now != nil && now != first })
	var second *member
	until(t, "it is known", func() bool { second = leader(); return second != nil && second != first })
	until(t, "nothing moves to a node whose disk is low", func() bool {
		return kernel.CodeOf(second.node.Move(t.Context(), placedGroup, first.dir.identity.Node)) == kernel.CodePrecondition
	})
	var third *member
	for _, m := range list {
		if m != first && m != second {
			third = m
		}
	}
	second.dir.low.Store(true)
	until(t, "the last one with room leads", func() bool { return leader() == third })
}
