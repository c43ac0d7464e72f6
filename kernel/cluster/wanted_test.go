package cluster

import (
	"testing"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// TestNextChange: what a leader changes about the members of its group, one thing at a
// time.
func TestNextChange(t *testing.T) {
	voter := func(id string) raftgroup.Server { return raftgroup.Server{ID: id, Address: "at-" + id} }
	learner := func(id string) raftgroup.Server {
		return raftgroup.Server{ID: id, Address: "at-" + id, Learner: true}
	}
	type servers = []raftgroup.Server
	for _, tt := range []struct {
		name    string
		nodes   []string
		removed string
		unready string
		have    servers
		want    change
	}{
		{"a node alone", []string{"1"}, "", "", servers{{ID: "1", Address: "1"}}, change{}},
		{"addresses first", []string{"1", "2"}, "", "", servers{{ID: "1", Address: "1"}}, change{put, voter("1")}},
		{"a new one learns", []string{"1", "2"}, "", "", servers{voter("1")}, change{put, learner("2")}},
		{"all learn before one votes", []string{"1", "2", "3"}, "", "", servers{voter("1"), learner("2")}, change{put, learner("3")}},
		{"one that has caught up votes", []string{"1", "2"}, "", "", servers{voter("1"), learner("2")}, change{put, voter("2")}},
		{"one that has not does not", []string{"1", "2", "3"}, "", "2", servers{voter("1"), learner("2"), learner("3")}, change{put, voter("3")}},
		{"not more than three", []string{"1", "2", "3", "4"}, "", "", servers{voter("1"), voter("2"), voter("3"), learner("4")}, change{}},
		{"one who votes has moved", []string{"1", "2"}, "", "", servers{voter("1"), {ID: "2", Address: "old"}}, change{put, voter("2")}},
		{"one who learns has moved", []string{"1", "2"}, "", "", servers{voter("1"), {ID: "2", Address: "old", Learner: true}}, change{put, learner("2")}},
		{"who was removed goes first", []string{"1", "3"}, "2", "", servers{voter("1"), voter("2"), learner("3")}, change{remove, voter("2")}},
		{"a learner goes", []string{"1"}, "2", "", servers{voter("1"), learner("2")}, change{remove, learner("2")}},
		{"a leader hands over before", []string{"2", "3"}, "1", "", servers{voter("1"), voter("2"), voter("3")}, change{giveUp, voter("1")}},
		{"the last voter stays", []string{"2"}, "1", "2", servers{voter("1"), learner("2")}, change{}},
		{"until another one votes", []string{"2"}, "1", "", servers{voter("1"), learner("2")}, change{put, voter("2")}},
		{"nobody goes because nobody knows him", []string{"1"}, "", "", servers{voter("1"), voter("x")}, change{}},
	} {
		w := wanted{self: "1", maxVoters: 3, removed: func(id string) bool { return id == tt.removed }, ready: func(id string) bool { return id != tt.unready }}
		for _, id := range tt.nodes {
			w.nodes = append(w.nodes, &catalog.Node{ID: id, Raft: id, Address: "at-" + id})
		}
		if got := w.next(tt.have); got != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
