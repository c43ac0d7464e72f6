package catalog

import (
	"bytes"
	"testing"
)

// TestForgetNodes: a command from the log forgets members and removed nodes and nothing
// else, so that every name is free.
func TestForgetNodes(t *testing.T) {
	s := with(t, &State{}, PutNode{Node{ID: "1", Raft: "1"}}, PutNode{Node{ID: "2", Raft: "2-x"}}, DropNode{"1"})
	logged := Command{Ops: []Op{ForgetNodes{}}}
	cmd, err := DecodeCommand(logged.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	s = with(t, s, cmd.Ops...)
	s.Nodes(func(n *Node) { t.Errorf("%+v is left", n) })
	if s.Removed("1") {
		t.Error("a removed node is remembered")
	}
	s = with(t, s, PutNode{Node{ID: "1", Raft: "1"}})
	var file bytes.Buffer
	if err := s.Write(&file); err != nil {
		t.Fatal(err)
	}
	if back, err := Read(&file); err != nil || back.nodes.Len() != 1 || back.removed.Len() != 0 {
		t.Error(err)
	}
}
