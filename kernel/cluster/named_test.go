package cluster

import (
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestNobodyTakesTheRaftNameOfAnother: a certificate proves a node id, which is not enough to
// speak, or to answer, for the Raft name of another one, also while that one is down.
func TestNobodyTakesTheRaftNameOfAnother(t *testing.T) {
	ours := newAuthority(t)
	a, thief := startNode(t, "1", ours.change), startNode(t, "9", ours.change)
	if _, err := a.Transport(1); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"2", "2-deadbeef", "9-deadbeef", "", "9\x00"} {
		thief.settle(func(i *Identity) { i.Raft = name })
		for _, kind := range []transport.Kind{transport.KindRPC, transport.KindTunnel, transport.KindGroup} {
			h := transport.Hello{Kind: kind, Group: 1, To: a.Self().Raft}
			c, _, err := thief.mux.Dial(t.Context(), a.Self().Address, h)
			if err == nil {
				_ = c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "is no name of node") {
				t.Errorf("%q, kind %d: %v", name, kind, err)
			}
		}
		if _, _, err := a.mux.Dial(t.Context(), thief.Self().Address, transport.Hello{Kind: transport.KindRPC, To: name}); err == nil || !strings.Contains(err.Error(), "is no name of node") {
			t.Errorf("%q answers: %v", name, err)
		}
	}
	if got := a.met.get("2"); got.id.Address != "" {
		t.Errorf("it is known at %s", got.id.Address)
	}
}

// TestARaftNameIsOfOneMember: who would share the name of a member is not let in.
func TestARaftNameIsOfOneMember(t *testing.T) {
	all := three(t)
	taken := all[1].node.Self()
	err := all[0].node.belongs(Identity{Cluster: taken.Cluster, Node: taken.Raft, Raft: taken.Raft, Incarnation: "x"})
	if err == nil || !strings.Contains(err.Error(), "is the name of node 2 in Raft groups") {
		t.Error(err)
	}
}
