package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// placedGroup is the second Raft group of the test's nodes.
const placedGroup = 1

// toy is a machine that counts.
type toy struct {
	mu    sync.Mutex
	count int
}

func (m *toy) Apply(entries []raftgroup.Entry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count += len(entries)
}

func (m *toy) Restore(checkpoint.Meta, io.Reader) error { return nil }

func (m *toy) applied() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count
}

// dir is a node's data directory, with what its node file says.
type dir struct {
	disk     *vfs.MemFS
	identity Identity
	founder  bool
	tls      *TLS
	former   *Former
	lacks    atomic.Bool // segments of the placement group
	low      atomic.Bool // on disk
	slow     atomic.Bool // the disk
}

func newDir(node string) *dir {
	d := &dir{disk: vfs.NewMem(), identity: Identity{Node: node, Incarnation: NewIncarnation()}}
	d.identity.Raft = RaftName(node, d.identity.Incarnation)
	return d
}

// copied is what a copy of the directory is.
func (d *dir) copied() *dir {
	return &dir{disk: d.disk.CrashClone(rand.New(rand.NewSource(1))), identity: d.identity}
}

// member is a running node with its groups.
type member struct {
	t       *testing.T
	dir     *dir
	node    *Node
	wal     *wal.WAL
	catalog *metasvc.Catalog
	placed  *raftgroup.Group
	toy     *toy
	refused chan *Refusal
	stopped bool
}

// listen listens at an address; "" is any whose port the system does not give to
// connections, so that a node that was stopped finds it free when it is back.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	for range 100 {
		at := address
		if at == "" {
			at = fmt.Sprint("127.0.0.1:", 10000+rand.Intn(22000))
		}
		l, err := net.Listen("tcp", at)
		if err == nil {
			return l
		}
		if address != "" {
			t.Fatal(err)
		}
	}
	t.Fatal("no free port")
	return nil
}

// start runs a node on a directory; address "" is any. The error is that of Join or
// Announce.
func start(t *testing.T, d *dir, address string, seeds ...string) (*member, error) {
	t.Helper()
	l := listen(t, address)
	var err error
	m := &member{t: t, dir: d, toy: &toy{}, refused: make(chan *Refusal, 1)}
	m.node, err = Open(Config{
		Identity: d.identity, Listener: l, Seeds: seeds, FS: d.disk, Dir: "", Fronts: map[string]string{"kafka": "k" + d.identity.Node},
		Secret: []byte("secret"), Version: "1", TLS: d.tls, Former: d.former, Logger: testLog(d.identity.Node), OnRefused: func(r *Refusal) { m.refused <- r }, Low: d.low.Load, Slow: d.slow.Load,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.stop)
	if err := m.enter(len(seeds) == 0); err != nil {
		return m, err
	}
	m.open()
	return m, nil
}

// enter joins or announces the node, or founds the cluster.
func (m *member) enter(founds bool) error {
	d := m.dir
	switch {
	case d.identity.Cluster != "":
		return m.node.Announce(m.t.Context())
	case founds:
		d.identity.Cluster, d.identity.Raft, d.founder = "cluster", d.identity.Node, true
		m.node.Found("cluster", []byte("secret"))
		return nil
	}
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	w, err := m.node.Join(ctx)
	if err == nil {
		d.identity.Cluster = w.Cluster
		if string(w.Secret) != "secret" {
			m.t.Errorf("the secret is %q", w.Secret)
		}
	}
	return err
}

func (m *member) open() {
	t, d := m.t, m.dir
	t.Helper()
	var err error
	if m.wal, err = wal.Open(d.disk, "wal", wal.Options{FileSize: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	var bootstrap []raftgroup.Server
	if d.founder {
		bootstrap = []raftgroup.Server{{ID: d.identity.Raft, Address: d.identity.Raft}} // as directories from before have it
	}
	timing := raftgroup.Timing{Heartbeat: 300 * time.Millisecond, Lease: 250 * time.Millisecond, Commit: 20 * time.Millisecond}
	m.catalog, err = metasvc.Open(metasvc.Config{WAL: m.wal, FS: d.disk, Dir: "catalog", NodeID: d.identity.Raft, Bootstrap: bootstrap,
		Transport: func() (raft.Transport, error) { return m.node.Transport(metasvc.CatalogGroup) }, Timing: timing, Logger: testLog(d.identity.Node)})
	if err != nil {
		t.Fatal(err)
	}
	store, err := checkpoint.Open(d.disk, "placed")
	if err != nil {
		t.Fatal(err)
	}
	m.placed, err = raftgroup.Open(raftgroup.Config{Group: m.wal.Group(placedGroup), NodeID: d.identity.Raft, Checkpoints: store, Machine: m.toy,
		Bootstrap: bootstrap, Transport: func() (raft.Transport, error) { return m.node.Transport(placedGroup) }, Timing: timing, Logger: testLog(d.identity.Node)})
	if err != nil {
		t.Fatal(err)
	}
	m.node.Attach(Replicas{Catalog: m.catalog, Groups: []Group{{ID: metasvc.CatalogGroup, Raft: m.catalog.Raft()}, {ID: placedGroup, Raft: m.placed, Whole: func() bool { return !d.lacks.Load() }}}})
}

// stop ends the node, as a process ends.
func (m *member) stop() {
	if m.stopped {
		return
	}
	m.stopped = true
	if m.placed != nil {
		_ = m.placed.Close()
		_ = m.catalog.Close()
	}
	_ = m.node.Close()
	if m.wal != nil {
		_ = m.wal.Close()
	}
}

func (m *member) address() string { return m.node.Self().Address }

// propose has the placement group's leader log something, and returns when it is
// applied there.
func propose(t *testing.T, members ...*member) {
	t.Helper()
	until(t, "a leader takes an entry", func() bool {
		for _, m := range members {
			if leads, _ := m.placed.Leader(); leads {
				before := m.toy.applied()
				failed := make(chan error, 1)
				m.placed.Propose([]byte("x"), func(err error) { failed <- err })
				for m.toy.applied() == before {
					select {
					case <-failed:
						return false
					case <-time.After(time.Millisecond):
					}
				}
				return true
			}
		}
		return false
	})
}

// until waits for a condition.
func until(t *testing.T, what string, fn func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !fn() {
		select {
		case <-tick.C:
		case <-late:
			dumpStacks()
			t.Fatalf("never: %s", what)
		}
	}
}

// votes reports whether exactly these nodes vote, in both groups, as each of them has it.
func votes(members ...*member) bool {
	for _, m := range members {
		for _, g := range []*raftgroup.Group{m.catalog.Raft(), m.placed} {
			voting := map[string]bool{}
			for _, s := range g.Servers() {
				if s.Learner {
					return false
				}
				voting[s.ID] = true
			}
			if len(voting) != len(members) {
				return false
			}
			for _, other := range members {
				if !voting[other.dir.identity.Raft] {
					return false
				}
			}
		}
	}
	return true
}

// three starts a cluster of three nodes that all vote.
func three(t *testing.T) []*member {
	t.Helper()
	first, err := start(t, newDir("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	list := []*member{first}
	for i := 2; i <= 3; i++ {
		m, err := start(t, newDir(fmt.Sprint(i)), "", first.address())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	defer func() {
		if !votes(list...) {
			for _, m := range list {
				t.Logf("%+v", m.node.Status())
			}
		}
	}()
	until(t, "three voters", func() bool { return votes(list...) })
	return list
}

func refusedWith(t *testing.T, err error, code transport.Code) {
	t.Helper()
	r, ok := errors.AsType[*Refusal](err)
	if !ok || r.Code != code || !Final(err) {
		t.Errorf("refused with %v, not code %d", err, code)
	}
}

// TestThreeNodes: two nodes join a third and vote; who is removed is told so and stays
// out; a wiped directory is not taken for the node that it was.
func TestThreeNodes(t *testing.T) {
	list := three(t)
	propose(t, list...)
	until(t, "all have it", func() bool {
		return list[0].toy.applied() >= 1 && list[1].toy.applied() >= 1 && list[2].toy.applied() >= 1
	})
	until(t, "all know all addresses", func() bool {
		for _, m := range list {
			members := m.node.Members()
			if len(members) != 3 {
				return false
			}
			for _, one := range members {
				if !one.Reachable || one.Learner || one.Fronts["kafka"] != "k"+one.Node {
					return false
				}
			}
		}
		return true
	})
	// A wiped directory under the id of a member.
	list[2].stop()
	_, err := start(t, newDir("3"), "", list[0].address())
	refusedWith(t, err, transport.CodeIncarnation)
	// The directory itself is welcome, at another address, too.
	again, err := start(t, list[2].dir, "")
	if err != nil {
		t.Fatal(err)
	}
	list[2] = again
	propose(t, list...)
	until(t, "the node is back", func() bool { return list[2].toy.applied() >= 2 })

	if err := list[1].node.Remove(t.Context(), "3", false); err != nil {
		t.Fatal(err)
	}
	until(t, "two voters", func() bool { return votes(list[0], list[1]) })
	select {
	case r := <-list[2].refused:
		if r.Code != transport.CodeRemoved {
			t.Errorf("%+v", r)
		}
	case <-time.After(time.Minute):
		t.Error("a removed node is not told")
	}
	if s := list[2].node.Status(); s.Refused == "" {
		t.Errorf("%+v", s)
	}
	list[2].stop()
	_, err = start(t, list[2].dir, "", list[0].address())
	refusedWith(t, err, transport.CodeRemoved)
	// With an empty directory it joins under its old id.
	fresh, err := start(t, newDir("3"), "", list[1].address())
	if err != nil {
		t.Fatal(err)
	}
	until(t, "three voters again", func() bool { return votes(list[0], list[1], fresh) })
}

// TestThreeSecureNodes: the same with certificates.
func TestThreeSecureNodes(t *testing.T) {
	ca := newAuthority(t)
	var list []*member
	var seeds []string
	for _, id := range []string{"1", "2", "3"} {
		d := newDir(id)
		d.tls = ca.node(id)
		m, err := start(t, d, "", seeds...)
		if err != nil {
			t.Fatal(err)
		}
		list, seeds = append(list, m), []string{m.address()}
	}
	until(t, "three voters", func() bool { return votes(list...) })
	propose(t, list...)
}

// TestCopiedDirectory: a copy of a directory whose original runs is refused, and the
// original goes on; so is a directory of another cluster.
func TestCopiedDirectory(t *testing.T) {
	list := three(t)
	_, err := start(t, list[1].dir.copied(), "", list[0].address())
	refusedWith(t, err, transport.CodeTwin)
	propose(t, list...)
	until(t, "the original has it", func() bool { return list[1].toy.applied() >= 1 })

	stranger := newDir("4")
	stranger.identity.Cluster = "another"
	_, err = start(t, stranger, "", list[0].address())
	refusedWith(t, err, transport.CodeCluster)
}

// TestDrain: who is to be drained leads nothing any more, and again when that is undone.
func TestDrain(t *testing.T) {
	list := three(t)
	var leader string
	find := func() string {
		for _, m := range list {
			if leads, _ := m.placed.Leader(); leads {
				return m.dir.identity.Node
			}
		}
		return ""
	}
	until(t, "somebody leads", func() bool { leader = find(); return leader != "" })
	if err := list[1].node.Drain(t.Context(), leader, false); err != nil {
		t.Fatal(err)
	}
	until(t, "another one leads", func() bool { now := find(); return now != "" && now != leader })
	until(t, "nothing moves to a node that is drained", func() bool {
		return kernel.CodeOf(list[2].node.Move(t.Context(), placedGroup, leader)) == kernel.CodePrecondition
	})
	if err := list[2].node.Drain(t.Context(), leader, true); err != nil {
		t.Fatal(err)
	}
	until(t, "the leadership comes back", func() bool { return list[0].node.Move(t.Context(), placedGroup, leader) == nil && find() == leader })
}

// TestRemoveKeepsAMajority: what would stop the cluster is refused.
func TestRemoveKeepsAMajority(t *testing.T) {
	list := three(t)
	list[2].stop()
	// Also before it is missed.
	if err := list[0].node.Remove(t.Context(), "2", true); kernel.CodeOf(err) != kernel.CodePrecondition {
		t.Errorf("one of two that are left was removed by force: %v", err)
	}
	until(t, "the others have noticed", func() bool {
		for _, m := range list[:2] {
			for _, one := range m.node.Members() {
				if one.Node == "3" && one.Reachable {
					return false
				}
			}
		}
		return true
	})
	if err := list[0].node.Remove(t.Context(), "2", false); kernel.CodeOf(err) != kernel.CodePrecondition {
		t.Errorf("one of two that are left was removed: %v", err)
	}
	// Force changes nothing: the one that would be left could not confirm it with the dead one.
	if err := list[0].node.Remove(t.Context(), "2", true); kernel.CodeOf(err) != kernel.CodePrecondition {
		t.Errorf("one of two that are left was removed by force: %v", err)
	}
	if err := list[0].node.Remove(t.Context(), "9", false); kernel.CodeOf(err) != kernel.CodeNotFound {
		t.Error(err)
	}
	until(t, "the dead one goes", func() bool { return list[0].node.Remove(t.Context(), "3", false) == nil })
	until(t, "two voters", func() bool { return votes(list[0], list[1]) })
	// And the one that leads.
	for _, m := range list[:2] {
		if leads, _ := m.placed.Leader(); leads {
			if err := m.node.Remove(t.Context(), m.dir.identity.Node, false); err != nil {
				t.Error(err)
			}
			break
		}
	}
	until(t, "one voter", func() bool { return votes(list[0]) || votes(list[1]) })
}
