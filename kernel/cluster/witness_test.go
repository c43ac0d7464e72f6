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
	n.seen.Acknowledged(1, "2-a", 5, 11, true)
	if err := n.told(who, info); err != nil {
		t.Errorf("what was told before the promise counts against it: %v", err)
	}
}

// TestTermThatWasNotStored: a node whose disk fails answers heartbeats in a term that it
// could not store. It has promised nothing with that, and comes back without the term.
func TestTermThatWasNotStored(t *testing.T) {
	w := newWitness(&Node{})
	key := witnessKey{1, "2-a"}
	w.Acknowledged(1, "2-a", 4, 10, true)
	w.Acknowledged(1, "2-a", 5, 10, false)
	if p := w.of[key]; p.term != 4 {
		t.Errorf("a promise of term %d", p.term)
	}
	w.Acknowledged(1, "2-a", 5, 11, true)
	w.Voted(1, "2-a", 6)
	if p := w.of[key]; p.term != 6 || p.index != 11 {
		t.Errorf("%+v", p)
	}
}
