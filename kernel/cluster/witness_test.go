package cluster

import "testing"

// TestPromisesOutrunWhatIsTold: a node tells how far its log goes, and has promised
// more by the time that this is heard. Only a process that was not looked at before can
// have a directory that was set back.
func TestPromisesOutrunWhatIsTold(t *testing.T) {
	n := &Node{met: newAcquaintances()}
	n.seen = newWitness(n)
	n.replicas.Store(&Replicas{})
	who := Identity{Node: "2", Raft: "2-a", Boot: 7}
	if _, err := n.met.meet(who); err != nil {
		t.Fatal(err)
	}
	info := Info{Node: "2", Raft: "2-a", Boot: 7, Attached: true, Groups: []GroupInfo{{Group: 1, Term: 4, Last: 10}}}
	if err := n.told(who, info); err != nil {
		t.Fatal(err)
	}
	if !n.met.get("2-a").checked {
		t.Fatal("the node was not looked at")
	}
	n.seen.Acknowledged(1, "2-a", 5, 11)
	if err := n.told(who, info); err != nil {
		t.Errorf("what was told before the promise counts against it: %v", err)
	}
}
