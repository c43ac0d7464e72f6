package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestOperateWithoutAMajority: an operator who asks a node that is alone hears soon why
// nothing can be done, also with force.
func TestOperateWithoutAMajority(t *testing.T) {
	all := three(t)
	for _, m := range all[1:] {
		m.stop()
	}
	until(t, "the others are missed", func() bool {
		return all[0].node.fresh(all[1].node.Self().Raft) == nil && all[0].node.fresh(all[2].node.Self().Raft) == nil
	})
	until(t, "nobody leads", func() bool { leads, _ := all[0].catalog.Raft().Leader(); return !leads })
	begin := time.Now()
	err := all[0].node.Remove(t.Context(), "2", true)
	if kernel.CodeOf(err) != kernel.CodeUnavailable || !strings.Contains(err.Error(), "of the 3 nodes that vote in group 0 this one reaches 1, itself included") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "recover --alone") {
		t.Errorf("it does not say what is left to do: %v", err)
	}
	if took := time.Since(begin); took > 2*leaderTime {
		t.Errorf("it took %v", took)
	}
}

// TestTheLastNodeCannotRemoveTheOther: of two that vote one has failed, and is not missed
// yet. Nothing is begun that would be done when it comes back.
func TestTheLastNodeCannotRemoveTheOther(t *testing.T) {
	all := three(t)
	until(t, "the third one goes", func() bool { return all[0].node.Remove(t.Context(), "3", false) == nil })
	until(t, "two vote", func() bool { return votes(all[0], all[1]) })
	all[1].stop()
	err := all[0].node.Remove(t.Context(), "2", true)
	if kernel.CodeOf(err) != kernel.CodeUnavailable || !strings.Contains(err.Error(), "of the 2 nodes that vote in group 0 this one reaches 1, itself included") {
		t.Errorf("got %v", err)
	}
	if m, ok := all[0].catalog.State().Node("2"); !ok || m.Leaving {
		t.Errorf("it is to go all the same: %+v", m)
	}
}
