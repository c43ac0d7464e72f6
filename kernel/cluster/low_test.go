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
	leader := func() *member { return leading(list) }
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

// TestASlowLeaderHandsOver: what is published at a leader whose syncs take seconds waits for
// them, though the others' do not. It leads on rather than one whose disk is low.
func TestASlowLeaderHandsOver(t *testing.T) {
	list := three(t)
	var first *member
	until(t, "somebody leads", func() bool { first = leading(list); return first != nil })
	var others []*member
	for _, m := range list {
		if m != first {
			others = append(others, m)
		}
	}
	others[0].dir.low.Store(true)
	others[1].dir.slow.Store(true)
	until(t, "the others have told", func() bool {
		a, b := first.node.fresh(others[0].node.Self().Raft), first.node.fresh(others[1].node.Self().Raft)
		return a != nil && a.Low && b != nil && b.Slow && leading(list) == first
	})
	first.dir.slow.Store(true)
	until(t, "nothing moves to a node that is worse", func() bool {
		return kernel.CodeOf(first.node.Move(t.Context(), placedGroup, others[0].dir.identity.Node)) == kernel.CodePrecondition
	})
	if leading(list) != first {
		t.Error("it has handed over to one that is no better")
	}
	others[1].dir.slow.Store(false)
	until(t, "one that is not slow leads", func() bool { return leading(list) == others[1] })
	until(t, "the status says so", func() bool {
		return others[1].node.describe(Member{Node: first.dir.identity.Node, Raft: first.node.Self().Raft}, nil).Slow
	})
}

// leading returns who leads the placement group, nil = nobody.
func leading(list []*member) *member {
	for _, m := range list {
		if leads, _ := m.placed.Leader(); leads {
			return m
		}
	}
	return nil
}
