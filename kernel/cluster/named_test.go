package cluster

import (
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/metasvc/catalog"
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

// TestStrangersOfTheClusterMayOnlyJoin: who knows the cluster's id, and has a certificate, and
// is no member, opens no tunnel, reads no segment and operates nothing.
func TestStrangersOfTheClusterMayOnlyJoin(t *testing.T) {
	all := three(t)
	leader := all[0].node
	self := leader.Self()
	stranger := lonely(t, "9", func(string) []string { return nil })
	stranger.settle(func(i *Identity) { i.Cluster = self.Cluster })
	_, _, err := stranger.mux.Dial(t.Context(), self.Address, transport.Hello{Kind: transport.KindTunnel, To: self.Raft})
	if err == nil || !strings.Contains(err.Error(), "is no member") {
		t.Errorf("tunnel: %v", err)
	}
	until(t, "the leader refuses", func() bool {
		refused := false
		for _, m := range all { // whoever leads now
			var reply operateReply
			id := m.node.Self()
			_, err := stranger.links.call(t.Context(), id.Raft, id.Address, methodOperate, operateRequest{Op: opDrain, Node: "2"}, &reply)
			if err == nil && reply.Reason == "" {
				t.Fatal("it is drained")
			}
			refused = refused || strings.Contains(reply.Reason, "is no member")
		}
		return refused
	})
	if m, _ := all[0].catalog.State().Node("2"); m.Draining {
		t.Error("it is drained")
	}
	who := peer{Node: self.Node, Raft: self.Raft, Address: self.Address}
	if _, err := stranger.openRemote(t.Context(), who, segmentRequest{Group: placedGroup, ID: 1}); err == nil || !strings.Contains(err.Error(), "is no member") {
		t.Errorf("segment: %v", err)
	}
}

// TestJoinWithAbsurdTexts: what a node tells of itself is kept and shown by all, so it
// has bounds.
func TestJoinWithAbsurdTexts(t *testing.T) {
	good := Identity{Node: "2", Incarnation: "aa", Address: "[fe80::1%eth0]:7420"}
	if err := (&joinRequest{Version: "1.0 (dev)", Fronts: []catalog.Front{{Name: "amqp", Address: "h:1"}}}).check(good); err != nil {
		t.Error(err)
	}
	long := strings.Repeat("x", maxTold+1)
	for name, one := range map[string]struct {
		req joinRequest
		id  Identity
	}{
		"version":   {joinRequest{Version: "\x1b[31m"}, good},
		"line":      {joinRequest{Version: "1\nFAKE"}, good},
		"no text":   {joinRequest{Version: "\xff"}, good},
		"long":      {joinRequest{Version: long}, good},
		"front":     {joinRequest{Fronts: []catalog.Front{{Name: "amqp", Address: "\x00"}}}, good},
		"fronts":    {joinRequest{Fronts: make([]catalog.Front, maxFronts+1)}, good},
		"long node": {joinRequest{}, Identity{Node: long}},
		"address":   {joinRequest{}, Identity{Node: "2", Address: "h\r\n:1"}},
	} {
		if one.req.check(one.id) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
