package broker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// reappoint gives the only node a tenure, as if it had been away.
func reappoint(t *testing.T, b *Broker, p kernel.Protocol, number uint64) Office {
	t.Helper()
	b.offices.mu.Lock()
	defer b.offices.mu.Unlock()
	next := Tenure{b.node.ID(), number}
	must(t, b.appoint(soon(t), p, appendTenures(nil, number, []Tenure{next})))
	of := b.offices.get(p)
	of.loaded, of.last, of.list = true, number, []Tenure{next}
	return Office{p, next}
}

// TestMemberships: what a coordinator keeps of a group its successors read, at the next
// facade as well, until it is removed, or the tenant is; and nobody keeps anything in the name of an
// earlier tenure.
func TestMemberships(t *testing.T) {
	n, b := serveNode(t)
	alone := Office{"kafka", Tenure{Node: n.ID()}}
	read := func(by Office, want string) {
		t.Helper()
		value, err := b.Membership(soon(t), by, "/", "g")
		if err != nil || string(value) != want || (value == nil) != (want == "") {
			t.Errorf("%q %v, want %q", value, err, want)
		}
	}
	read(alone, "")
	must(t, b.KeepMembership(soon(t), alone, "/", "g", []byte("first")))
	read(alone, "first")
	b = serveAgain(t, n)
	read(alone, "first")
	later := reappoint(t, b, "kafka", 5)
	read(later, "first")
	must(t, b.KeepMembership(soon(t), later, "/", "g", []byte("second")))
	for _, by := range []Office{alone, {"kafka", Tenure{n.ID(), 4}}, {"kafka", Tenure{"other", 5}}} {
		wantCode(t, b.KeepMembership(soon(t), by, "/", "g", []byte("late")), kernel.CodeFenced)
		wantCode(t, b.KeepMembership(soon(t), by, "/", "g", nil), kernel.CodeFenced)
		if _, err := b.Membership(soon(t), by, "/", "g"); kernel.CodeOf(err) != kernel.CodeFenced {
			t.Error(err)
		}
	}
	read(later, "second")
	for group, code := range map[string]kernel.Code{"": kernel.CodeInvalidName, "a\x00b": kernel.CodeInvalidName} {
		wantCode(t, b.KeepMembership(soon(t), later, "/", group, nil), code)
	}
	wantCode(t, b.KeepMembership(soon(t), later, "nowhere", "g", nil), kernel.CodeNotFound)
	wantCode(t, b.KeepMembership(soon(t), later, "/", "g", make([]byte, maxMembership+1)), kernel.CodeTooLarge)
	must(t, b.KeepMembership(soon(t), later, "/", "large", make([]byte, maxMembership)))
	must(t, b.KeepMembership(soon(t), Office{"other", Tenure{Node: n.ID()}}, "/", "not kafka's", []byte("x")))
	names, err := b.Memberships(soon(t), later, "/")
	if must(t, err); !slices.Equal(names, []string{"g", "large"}) {
		t.Error(names)
	}
	must(t, b.KeepMembership(soon(t), later, "/", "g", nil))
	read(later, "")
	must(t, b.durable.Put(soon(t), []placement.KV{{Key: membershipKey(later, "/", "g"), Value: []byte{9}}}))
	_, err = b.Membership(soon(t), later, "/", "g")
	wantCode(t, err, kernel.CodeCorrupt)
}

// TestEarlierVersionsCoordinate: while a node does that keeps memberships to itself, none is kept,
// and those that were are outdated.
func TestEarlierVersionsCoordinate(t *testing.T) {
	n, b := serveNode(t)
	by, ctx := reappoint(t, b, "kafka", 1), soon(t)
	must(t, b.KeepMembership(ctx, by, "/", "g", []byte("x")))
	must(t, b.KeepMembership(ctx, Office{"other", Tenure{Node: n.ID()}}, "/", "g", []byte("x")))
	for range 2 {
		if now, err := b.CoordinatorsFor(ctx, "kafka", "earlier", false); err != nil || !now.Keeps || now.Last != 1 {
			t.Errorf("%+v %v: it does not coordinate yet", now, err)
		}
		if value, err := b.Membership(ctx, by, "/", "g"); err != nil || value != nil {
			t.Errorf("%q %v", value, err)
		}
		must(t, b.KeepMembership(ctx, by, "/", "g", []byte("x")))
	}
	if now, err := b.CoordinatorsFor(ctx, "kafka", n.ID(), false); err != nil || now.Keeps {
		t.Errorf("%+v %v", now, err)
	}
	wantCode(t, b.KeepMembership(ctx, by, "/", "g", []byte("x")), kernel.CodeNotImplemented)
	_, err := b.Membership(ctx, by, "/", "g")
	wantCode(t, err, kernel.CodeNotImplemented)
	_, err = b.beginBy(ctx, by, "/", "g", true, []placement.KV{{Key: membershipKey(by, "/", "g")}})
	wantCode(t, err, kernel.CodeNotImplemented)
	if now, err := b.CoordinatorsFor(ctx, "kafka", n.ID(), true); err != nil || !now.Keeps {
		t.Errorf("%+v %v", now, err)
	}
	if value, err := b.Membership(ctx, by, "/", "g"); err != nil || value != nil {
		t.Errorf("%q %v", value, err)
	}
	if value, err := b.Membership(ctx, Office{"other", Tenure{Node: n.ID()}}, "/", "g"); err != nil || value == nil {
		t.Errorf("of another protocol: %q %v", value, err)
	}
}

// TestNothingIsKeptAfterTheNextHasRead: coordinators of an earlier tenure write memberships and
// commit offsets as fast as they can while the next one begins: what that reads first is what
// it finds later.
func TestNothingIsKeptAfterTheNextHasRead(t *testing.T) {
	_, b := serveNode(t)
	c := connect(t, b)
	c.about.Protocol = "kafka"
	by := reappoint(t, b, "kafka", 1)
	var topic kernel.TopicID
	ctx, stop := context.WithCancel(soon(t))
	defer stop()
	var work sync.WaitGroup
	offset := func() int64 {
		list, err := c.Offsets("g")
		if must(t, err); len(list) == 0 {
			return -1
		}
		return list[0].Offset
	}
	for round := uint64(2); round < 30; round++ {
		before := by
		for i := range 4 {
			work.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					err := b.KeepMembership(ctx, before, "/", "g", fmt.Appendf(nil, "%d %d %d", before.Number, i, n))
					if err == nil {
						err = c.CommitOffsetsBy(ctx, before.Tenure, "g", []OffsetCommit{{Topic: topic, Offset: int64(1000*round) + int64(n)}})
					}
					if kernel.CodeOf(err) == kernel.CodeFenced {
						return
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
		by = reappoint(t, b, "kafka", round)
		first, err := b.Membership(ctx, by, "/", "g")
		must(t, err)
		at := offset()
		work.Wait()
		last, err := b.Membership(ctx, by, "/", "g")
		if must(t, err); !bytes.Equal(first, last) || offset() != at {
			t.Fatalf("round %d: %q and %d were read, and now there is %q and %d", round, first, at, last, offset())
		}
	}
}

// TestAFacadeThatHasEndedKeepsNothing: the next one has told who coordinates.
func TestAFacadeThatHasEndedKeepsNothing(t *testing.T) {
	n, b := serveNode(t)
	by := reappoint(t, b, "kafka", 1)
	must(t, b.KeepMembership(soon(t), by, "/", "g", []byte("x")))
	serveAgain(t, n)
	wantCode(t, b.KeepMembership(soon(t), by, "/", "g", []byte("late")), kernel.CodeUnavailable)
	_, err := b.durable.BeginPut(b.lead.placement+1, []placement.KV{{Key: []byte("x")}})
	wantCode(t, err, kernel.CodeUnavailable)
}
