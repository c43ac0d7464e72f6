package cluster

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// lonely opens a node of no cluster with its own address as a seed.
func lonely(t *testing.T, id string, seeds func(own string) []string) *Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(Config{Identity: newDir(id).identity, Listener: l, Seeds: seeds(l.Addr().String()), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// TestFirstSeedFounds: the first one of the list founds when no other one is a member;
// the others wait, and so does the first one when there is a cluster.
func TestFirstSeedFounds(t *testing.T) {
	const nobody = "127.0.0.1:1"
	third := lonely(t, "6", func(own string) []string { return []string{nobody, own} })
	first := lonely(t, "1", func(own string) []string { return []string{own, third.Self().Address, nobody} })
	second := lonely(t, "2", func(own string) []string { return []string{first.Self().Address, own} })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := second.Join(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the second one: %v", err)
	}
	if _, err := first.Join(t.Context()); !errors.Is(err, ErrFounds) {
		t.Errorf("the first one: %v", err)
	}
	// Nobody answers: they may be a cluster that is down.
	wiped := lonely(t, "7", func(own string) []string { return []string{own, nobody, "127.0.0.1:2"} })
	ctx, cancel = context.WithTimeout(t.Context(), foundAfter+time.Second)
	defer cancel()
	if _, err := wiped.Join(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first one without the others: %v", err)
	}
	alone := lonely(t, "3", func(own string) []string { return []string{own} })
	if _, err := alone.Join(t.Context()); !errors.Is(err, ErrFounds) {
		t.Errorf("the only one: %v", err)
	}
	member, err := start(t, newDir("4"), "")
	if err != nil {
		t.Fatal(err)
	}
	late := lonely(t, "5", func(own string) []string { return []string{own, member.address()} })
	w, err := late.Join(t.Context())
	if err != nil || w.Cluster != "cluster" || late.Self().Cluster != "cluster" {
		t.Errorf("there is a cluster, and the first one of the list: %+v %v", w, err)
	}
}

// TestJoinAtAWrongAddress: who cannot be reached where it says it is is not let in.
func TestJoinAtAWrongAddress(t *testing.T) {
	member, err := start(t, newDir("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	until(t, "it leads", func() bool { leads, _ := member.catalog.Raft().Leader(); return leads })
	n := lonely(t, "2", func(string) []string { return []string{member.address()} })
	n.settle(func(i *Identity) { i.Address = "127.0.0.1:1" })
	_, _, err = n.askOne(t.Context(), member.address())
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != transport.CodeUnreachable {
		t.Error(err)
	}
	if len(member.node.Members()) > 1 {
		t.Error("it is a member")
	}
}
