package cluster

import (
	"testing"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestStaleCatalogRefusesNobodyAnew: a member that was away while another one was removed
// and joined again under its number knows only the old one when it comes back. It must
// not tell the new one that its directory is a stranger's, which would stop it; whom the
// leader does not know it refuses.
func TestStaleCatalogRefusesNobodyAnew(t *testing.T) {
	list := three(t)
	anew := list[1].node.Self()
	anew.Incarnation = NewIncarnation()
	anew.Raft, anew.Boot = RaftName("2", anew.Incarnation), anew.Boot+1
	until(t, "the first node leads", func() bool { leads, _ := list[0].catalog.Raft().Leader(); return leads })
	refusedWith(t, list[0].node.belongs(anew), transport.CodeIncarnation)
	if err := list[2].node.belongs(anew); err != nil {
		t.Errorf("a follower, whose catalog may be old: %v", err)
	}
	// In fact: the third one has a checkpoint with the old one, and crashes when the new
	// one leads.
	list[2].stop()
	back, err := start(t, list[2].dir, list[2].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three voters", func() bool { return votes(list[0], list[1], back) })
	if err := list[0].node.Remove(t.Context(), "2", false); err != nil {
		t.Fatal(err)
	}
	list[1].stop()
	second, err := start(t, newDir("2"), "", list[0].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three voters again", func() bool { return votes(list[0], second, back) })
	until(t, "the new one leads", func() bool {
		for _, m := range []*member{list[0], back} { // a busy machine may have had another one elected
			_ = m.catalog.Raft().TransferLeadershipTo(t.Context(), second.node.Self().Raft)
		}
		leads, _ := second.catalog.Raft().Leader()
		return leads
	})
	crashed := back.dir.copied()
	back.stop()
	if back, err = start(t, crashed, back.address()); err != nil {
		t.Fatal(err)
	}
	propose(t, second, list[0], back)
	until(t, "it follows the new one", func() bool {
		_, leader := back.catalog.Raft().Leader()
		return leader != "" && back.catalog.State().Removed(list[1].node.Self().Raft)
	})
	if r := second.node.Refused(); r != nil {
		t.Error(r)
	}
}
