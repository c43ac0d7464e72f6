package catalog

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func with(t *testing.T, s *State, ops ...Op) *State {
	t.Helper()
	for i, op := range ops { // over the encoding, as from the log
		cmd := Command{Ops: []Op{op}}
		back, err := DecodeCommand(cmd.Append(nil))
		if err != nil {
			t.Fatal(err)
		}
		ops[i] = back.Ops[0]
	}
	next, _, err := s.Apply(ops)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func refused(t *testing.T, s *State, code kernel.Code, op Op) {
	t.Helper()
	if next, _, err := s.Apply([]Op{op}); next != s || kernel.CodeOf(err) != code {
		t.Errorf("%T: %v", op, err)
	}
}

// TestNodes: a member's id belongs to one data directory, and a removed one never
// comes back.
func TestNodes(t *testing.T) {
	one := Node{ID: "1", Raft: "1", Incarnation: "aaaa", Address: "h:1", Version: "1", Fronts: []Front{{"amqp", "h:5672"}, {"kafka", "h:9092"}}}
	s := with(t, &State{}, PutNode{one}, DrainNode{"1", true})
	moved := one
	moved.Address = "h:2"
	s = with(t, s, PutNode{moved})
	moved.Draining = true
	if n, _ := s.Node("1"); !reflect.DeepEqual(*n, moved) {
		t.Errorf("%+v", n)
	}
	other := one
	other.Raft, other.Incarnation = "1-bbbb", "bbbb"
	refused(t, s, kernel.CodeExists, PutNode{other})
	refused(t, s, kernel.CodeNotFound, DrainNode{"2", true})
	s = with(t, s, DropNode{"1"}, DropNode{"1"})
	refused(t, s, kernel.CodeNotAllowed, PutNode{one})
	s = with(t, s, PutNode{other})
	if n, ok := s.Node("1"); !ok || n.Raft != "1-bbbb" || !s.Removed("1") || s.Removed("1-bbbb") {
		t.Errorf("%+v", n)
	}
}

func TestNodesSurviveASnapshot(t *testing.T) {
	s := with(t, &State{}, PutNode{Node{ID: "1", Raft: "1", Fronts: []Front{{"amqp", "x"}}}}, PutNode{Node{ID: "2", Raft: "2-x"}},
		PutNode{Node{ID: "3", Raft: "3-x"}}, DrainNode{"2", true}, LeaveNode{"2"}, PutNode{Node{ID: "2", Raft: "2-x"}}, DropNode{"3"})
	var file bytes.Buffer
	if err := s.Write(&file); err != nil {
		t.Fatal(err)
	}
	first := bytes.Clone(file.Bytes())
	back, err := Read(&file)
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := back.Node("2"); !ok || !n.Draining || !n.Leaving || !back.Removed("3-x") {
		t.Errorf("%+v %v", n, ok)
	}
	var again bytes.Buffer
	if err := back.Write(&again); err != nil || !bytes.Equal(first, again.Bytes()) {
		t.Error("a state that is read is written otherwise", err)
	}
}

// TestRemovedNodesAreBounded: the oldest ones are forgotten.
func TestRemovedNodesAreBounded(t *testing.T) {
	s := &State{}
	for i := range maxRemoved + 2 {
		id := fmt.Sprint(i)
		s = with(t, s, PutNode{Node{ID: id, Raft: id}}, DropNode{id})
	}
	if s.removed.Len() != maxRemoved || s.Removed("1") || !s.Removed("2") || !s.Removed(fmt.Sprint(maxRemoved+1)) {
		t.Error(s.removed.Len())
	}
}

func TestNodesAreBounded(t *testing.T) {
	s := &State{}
	for i := range MaxNodes {
		s = with(t, s, PutNode{Node{ID: fmt.Sprint(i), Raft: fmt.Sprint(i)}})
	}
	refused(t, s, kernel.CodeLimit, PutNode{Node{ID: "x", Raft: "x"}})
}
