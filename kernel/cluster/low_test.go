package cluster

import "testing"

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
