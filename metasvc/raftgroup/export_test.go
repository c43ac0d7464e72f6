package raftgroup

import (
	"errors"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// TestIsolate: a stopped member of three becomes the only one, in a later term, behind all that
// its log holds; a second time changes nothing of that; a group that has nothing refuses.
func TestIsolate(t *testing.T) {
	w, err := wal.Open(vfs.NewMem(), "wal", wal.Options{FileSize: 64 << 10, NoAhead: true})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	g := w.Group(1)
	if _, err := Isolate(g, checkpoint.Meta{}, "3"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("an empty group: %v", err)
	}
	three := raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{ID: "1"}, {ID: "2-a"}, {ID: "3-b"}}})
	at := checkpoint.Meta{Index: 7, Term: 2, Configuration: three}
	if err := errors.Join(Begin(g, 5), g.StoreLogs([]*raft.Log{{Index: 8, Term: 2, Data: []byte("a")}, {Index: 9, Term: 4, Data: []byte("b")}})); err != nil {
		t.Fatal(err)
	}
	if names, err := Members(g, at); err != nil || !slices.Equal(names, []string{"1", "2-a", "3-b"}) {
		t.Errorf("%v, %v", names, err)
	}
	for i := range uint64(2) {
		meta, err := Isolate(g, at, "3", []byte("c"))
		if err != nil || meta.Index != 11+2*i || meta.Term != 6+i || !Sole(meta.Configuration, "3") {
			t.Fatalf("%+v, %v", meta, err)
		}
		if names, err := Members(g, at); err != nil || !slices.Equal(names, []string{"3"}) {
			t.Errorf("%v, %v", names, err)
		}
	}
	var all []string
	err = Commands(g, 8, func(e Entry) error {
		all = append(all, string(e.Data))
		return nil
	})
	if err != nil || !slices.Equal(all, []string{"b", "c", "c"}) {
		t.Errorf("%v, %v", all, err)
	}
	if index, last, term, err := End(g, at); err != nil || index != 13 || last != 7 || term != 7 {
		t.Errorf("%d, %d, %d, %v", index, last, term, err)
	}
}
