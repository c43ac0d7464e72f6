package forward

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestMembershipsOfAnotherNode: a node that coordinates groups has them kept by the one that
// serves, and speaks for no other node. One of an earlier version is answered as it
// understands it, and then nothing is kept.
func TestMembershipsOfAnotherNode(t *testing.T) {
	b, first, second := nodes(t)
	h, ctx := NewHost(second, first.ID()), soon(t)
	var now broker.Coordination
	eventually(t, "both coordinate", func() (ok bool) {
		var err error
		now, err = h.Coordinators(ctx, "kafka")
		return err == nil && len(now.Nodes) == 2
	})
	if !now.Keeps || now.Last == 0 {
		t.Errorf("%+v", now)
	}
	group, theirs := "", ""
	for i := 0; group == "" || theirs == ""; i++ {
		if name := fmt.Sprint("group-", i); broker.Coordinator(now.Nodes, "/", name).Node == second.ID() {
			group = name
		} else {
			theirs = name
		}
	}
	by := broker.Office{Protocol: "kafka", Tenure: broker.Coordinator(now.Nodes, "/", group)}
	if value, err := h.Membership(ctx, by, "/", group); value != nil || err != nil {
		t.Errorf("%q %v", value, err)
	}
	large := bytes.Repeat([]byte("membership"), 9<<20/10)
	for _, want := range [][]byte{[]byte("x"), {}, large} {
		if err := h.KeepMembership(ctx, by, "/", group, want); err != nil {
			t.Fatal(err)
		}
		if value, err := h.Membership(ctx, by, "/", group); err != nil || value == nil || !bytes.Equal(value, want) {
			t.Errorf("%d bytes %v, want %d", len(value), err, len(want))
		}
	}
	if names, err := h.Memberships(ctx, by, "/"); err != nil || !slices.Equal(names, []string{group}) {
		t.Error(names, err)
	}
	wantCode(t, h.KeepMembership(ctx, by, "/", theirs, nil), kernel.CodeFenced)
	other := broker.Office{Protocol: "kafka", Tenure: broker.Coordinator(now.Nodes, "/", theirs)}
	wantCode(t, h.KeepMembership(ctx, other, "/", theirs, []byte("x")), kernel.CodeUnavailable)
	if value, err := b.Membership(ctx, other, "/", theirs); value != nil || err != nil {
		t.Errorf("what another node has kept: %q %v", value, err)
	}
	if err := h.KeepMembership(ctx, by, "/", group, nil); err != nil {
		t.Error(err)
	}

	r, err := h.ask(ctx, askCoordinators, "", "kafka", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if list := several(r, r.tenure); r.Done() != nil || !slices.Equal(list, now.Nodes) {
		t.Errorf("%+v %v", list, r.Done())
	}
	if own, err := b.Coordinators(ctx, "kafka"); err != nil || own.Keeps {
		t.Errorf("%+v %v", own, err)
	}
	if again, err := h.Coordinators(ctx, "kafka"); err != nil || !again.Keeps {
		t.Errorf("%+v %v", again, err)
	}
}
