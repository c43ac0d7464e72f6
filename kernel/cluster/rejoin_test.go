package cluster

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// rejoin has a member's node come in place of it, with an empty directory.
func rejoin(t *testing.T, was *dir, address string, seeds ...string) (*member, error) {
	t.Helper()
	d := newDir(was.identity.Node)
	d.former = &Former{Raft: was.identity.Raft, Incarnation: was.identity.Incarnation, Cluster: was.identity.Cluster}
	return start(t, d, address, seeds...)
}

// TestRejoin: a member that has lost what it held comes back under a new name, without
// anybody's help; what it was never comes back.
func TestRejoin(t *testing.T) {
	list := three(t)
	propose(t, list...)
	was := list[2]
	was.stop()
	again, err := rejoin(t, was.dir, was.address(), list[0].address(), list[1].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three voters again", func() bool { return votes(list[0], list[1], again) })
	until(t, "the node has it all", func() bool { return again.toy.applied() >= 1 })
	_, err = start(t, was.dir, "", list[0].address())
	refusedWith(t, err, transport.CodeRemoved)
	propose(t, list[0], list[1], again)
}

// TestRejoinFounder: so does the one that has founded the cluster, though it is the first
// of its list: it founds no second one.
func TestRejoinFounder(t *testing.T) {
	list := three(t)
	first := list[0]
	first.stop()
	again, err := rejoin(t, first.dir, first.address(), first.address(), list[1].address(), list[2].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three voters again", func() bool { return votes(again, list[1], list[2]) })
}

// TestRejoinWaitsForMajority: while the others are no majority, what the node was is no
// less a voter than before, and the node waits; it goes on when they are one.
func TestRejoinWaitsForMajority(t *testing.T) {
	list := three(t)
	was, down := list[2], list[1]
	was.stop()
	down.stop()
	done := make(chan error, 1)
	var again *member
	address := was.address()
	go func() {
		var err error
		again, err = rejoin(t, was.dir, address, list[0].address(), down.address())
		done <- err
	}()
	until(t, "the node listens", func() bool { return asked(address) })
	until(t, "nobody leads", func() bool { _, leader := list[0].catalog.Raft().Leader(); return leader == "" })
	select {
	case err := <-done:
		t.Fatalf("it is in without a majority: %v", err)
	case <-time.After(3 * joinPause):
	}
	if !list[0].node.inGroups(was.dir.identity.Raft) {
		t.Error("what it was has no vote any more")
	}
	back, err := start(t, down.dir, down.address())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	until(t, "three voters again", func() bool { return votes(list[0], back, again) })
}

// TestRejoinWaitsForData: while none of the others has all data, what the node was is not
// removed: what it has set aside may be the last copy.
func TestRejoinWaitsForData(t *testing.T) {
	list := three(t)
	was := list[2]
	was.stop()
	for _, m := range list[:2] {
		m.dir.lacks.Store(true)
	}
	until(t, "the others know that of each other", func() bool {
		for i, m := range list[:2] {
			if info := m.node.fresh(list[1-i].dir.identity.Raft); info == nil || info.whole(placedGroup) {
				return false
			}
		}
		return true
	})
	done := make(chan error, 1)
	var again *member
	address, seed := was.address(), list[0].address()
	go func() {
		var err error
		again, err = rejoin(t, was.dir, address, seed)
		done <- err
	}()
	until(t, "the node listens", func() bool { return asked(address) })
	select {
	case err := <-done:
		t.Fatalf("it is in, and nobody has all data: %v", err)
	case <-time.After(3 * joinPause):
	}
	if !list[0].node.inGroups(was.dir.identity.Raft) {
		t.Error("what it was has no vote any more")
	}
	list[1].dir.lacks.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	list[0].dir.lacks.Store(false)
	until(t, "three voters again", func() bool { return votes(list[0], list[1], again) })
}

// asked reports whether somebody listens at an address.
func asked(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// TestRejoinTwin: a copy of a directory whose original runs does not put that out.
func TestRejoinTwin(t *testing.T) {
	list := three(t)
	_, err := rejoin(t, list[2].dir, "", list[0].address())
	refusedWith(t, err, transport.CodeTwin)
	propose(t, list...)
	until(t, "three voters", func() bool { return votes(list...) })
}

// TestRejoinAnotherCluster: what is damaged in one cluster does not join another one.
func TestRejoinAnotherCluster(t *testing.T) {
	list := three(t)
	d := newDir("4")
	d.former = &Former{Raft: "4", Incarnation: "x", Cluster: "another"}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(Config{Identity: d.identity, Listener: l, Seeds: []string{list[0].address()}, Former: d.former, FS: d.disk, Logger: testLog("4")})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	until(t, "the leader refuses it", func() bool {
		_, err = n.askToJoin(t.Context(), []string{list[0].address()})
		r, ok := errors.AsType[*Refusal](err)
		return ok && r.Code == transport.CodeCluster
	})
	if n.final(err) {
		t.Error("it does not wait for its own cluster")
	}
	if len(list[0].node.Members()) != 3 {
		t.Error("it is a member")
	}
}
