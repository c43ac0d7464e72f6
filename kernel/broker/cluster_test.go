package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// peer is a node of a cluster inside the test, with the loop that serves while it
// leads.
type peer struct {
	*Node
	mu     sync.Mutex
	facade *Broker
	stop   context.CancelFunc
	done   chan struct{}
}

// openPeer opens a node that founds a cluster (join is empty) or joins one.
func openPeer(t *testing.T, dir, id, address, join string) *peer {
	t.Helper()
	cfg := Config{DataDir: dir, NodeID: id, Logger: zerolog.Nop(), Cluster: Cluster{Listen: address, Heartbeat: time.Second, Rejoin: true}}
	if join != "" {
		cfg.Cluster.Join = []string{join}
	}
	n, err := OpenNode(soon(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Node: n, done: make(chan struct{})}
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	go p.serve(ctx)
	return p
}

func (p *peer) serve(ctx context.Context) {
	defer close(p.done)
	for ctx.Err() == nil {
		b, err := p.Serve(ctx)
		if err != nil {
			continue
		}
		p.set(b)
		select {
		case <-b.Lost():
		case <-ctx.Done():
		}
		p.set(nil)
		now, cancel := context.WithCancel(context.Background())
		cancel() // nobody drains
		_ = b.Close(now)
	}
}

func (p *peer) set(b *Broker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.facade = b
}

func (p *peer) serving() *Broker {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.facade
}

// end stops the node without handing anything over.
func (p *peer) end(t *testing.T) {
	p.stop()
	<-p.done
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// freePort returns an address whose port the system does not give to connections: it is
// not listening yet, or not while its node is down.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 10000+rand.Intn(22000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// whoServes waits until one of the nodes serves, and all of so many vote.
func whoServes(t *testing.T, peers []*peer, voting int) (*peer, *Broker) {
	t.Helper()
	limit := time.Now().Add(patience)
	for time.Now().Before(limit) {
		for _, p := range peers {
			if b := p.serving(); b != nil && voters(p.durable.Raft()) == voting && voters(p.catalog.Raft()) == voting {
				return p, b
			}
		}
		select {
		case <-peers[0].Changed():
		case <-time.After(10 * time.Millisecond):
		}
	}
	t.Fatal("no node serves")
	return nil, nil
}

// threePeers opens the three nodes of a cluster, on these directories and at these addresses.
func threePeers(t *testing.T) (dirs, at []string, peers []*peer) {
	t.Helper()
	first := ""
	for i := range 3 {
		dirs, at = append(dirs, t.TempDir()), append(at, freePort(t))
		peers = append(peers, openPeer(t, dirs[i], fmt.Sprint(i+1), at[i], first))
		first = at[0]
	}
	return dirs, at, peers
}

// publishHundred makes the queue q with the messages 0 to 99.
func publishHundred(t *testing.T, b *Broker) {
	t.Helper()
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	for p, i := publisher(t, c), 0; i < 100; i++ {
		p.exchange("", "q", fmt.Sprint(i))
	}
}

// TestAnotherNodeServes: three nodes become a cluster; when the one that serves goes,
// another one serves with all that was confirmed, under a higher epoch, and the one that
// comes back follows.
func TestAnotherNodeServes(t *testing.T) {
	dirs, at, peers := threePeers(t)
	first, b := whoServes(t, peers, 3)
	publishHundred(t, b)
	epoch := b.Epoch()
	first.end(t)
	if err := b.Ready(); err == nil {
		t.Error("the facade of a node that has gone is ready")
	}

	var rest []*peer
	for _, p := range peers {
		if p != first {
			rest = append(rest, p)
		}
	}
	_, b = whoServes(t, rest, 3)
	if b.Epoch() <= epoch {
		t.Errorf("epoch %d after %d", b.Epoch(), epoch)
	}
	c := connect(t, b)
	info, err := c.Queue("q")
	if err != nil || info.Ready != 100 {
		t.Fatalf("after the change: %d messages, %v", info.Ready, err)
	}
	again := 0
	for i, p := range peers {
		if p == first {
			again = i
		}
	}
	back := openPeer(t, dirs[again], fmt.Sprint(again+1), at[again], "")
	caughtUp(t, back, b)
	for _, p := range append(rest, back) {
		p.end(t)
	}
}

// caughtUp waits until a node has applied what the one that serves has.
func caughtUp(t *testing.T, p *peer, b *Broker) {
	t.Helper()
	limit := time.Now().Add(patience)
	for want := b.durable.Raft().AppliedIndex(); p.durable.Raft().AppliedIndex() < want; {
		if time.Now().After(limit) {
			t.Fatalf("applied %d of %d", p.durable.Raft().AppliedIndex(), want)
		}
		select {
		case <-p.Changed():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestClonedDirectory: a node's directory cannot join a second cluster, nor be another
// node.
func TestClonedDirectory(t *testing.T) {
	dir, at := t.TempDir(), freePort(t)
	p := openPeer(t, dir, "1", at, "")
	whoServes(t, []*peer{p}, 1)
	joined := t.TempDir()
	second := openPeer(t, joined, "2", freePort(t), at)
	whoServes(t, []*peer{p, second}, 2)
	second.end(t)
	_, err := OpenNode(soon(t), Config{DataDir: t.TempDir(), NodeID: "2", Logger: zerolog.Nop(), Cluster: Cluster{Listen: freePort(t), Join: []string{at}}})
	if err == nil {
		t.Error("an empty directory took the place of node 2")
	}
	if _, err := OpenNode(soon(t), Config{DataDir: joined, NodeID: "3", Logger: zerolog.Nop(), Cluster: Cluster{Listen: freePort(t)}}); !errors.Is(err, ErrIdentity) {
		t.Errorf("as another node: %v", err)
	}
	second = openPeer(t, joined, "2", freePort(t), at)
	whoServes(t, []*peer{p, second}, 2)
	second.end(t)
	p.end(t)
}
