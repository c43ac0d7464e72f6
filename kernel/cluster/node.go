package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// callTime bounds a message of a Raft group with its answer: after a break in the network
// it is as long until the next one is tried.
const callTime = 5 * time.Second

// Node is this process among the others of its cluster. Safe for concurrent use.
type Node struct {
	cfg     Config
	log     zerolog.Logger
	keys    *keys // nil without TLS
	mux     *transport.Mux
	rpc     *rpcServer
	links   *links
	met     *acquaintances
	seen    *witness
	book    *book
	tunnels *tunnels
	clients *clients

	self     atomic.Pointer[Identity]
	replicas atomic.Pointer[Replicas]
	refusal  atomic.Pointer[Refusal] // the others do not want this node
	secret   atomic.Pointer[[]byte]  // what all nodes have in common
	attach   sync.Once
	wake     chan struct{} // the reconciler has something to do; cap 1
	sending  chan struct{} // a place for each segment that is sent
	sends    sync.WaitGroup
	stall    time.Duration // segmentStall

	replacing  sync.Mutex    // held while a member makes room for what it has become
	complaints sync.Map      // when it was logged that a node is not reached, by Raft name
	asked      atomic.Uint32 // how often others were asked for one

	ctx    context.Context // ends when Close begins
	cancel context.CancelFunc
	work   sync.WaitGroup
	closed sync.Once
}

// Open starts to listen. What needs the groups is answered after Attach.
func Open(cfg Config) (*Node, error) {
	n, err := newNode(cfg)
	if err != nil {
		return nil, errors.Join(err, cfg.Listener.Close())
	}
	l := cfg.Listener
	impatient(l)
	if n.keys != nil {
		l = n.keys.listen(l)
	}
	n.mux = transport.NewMux(transport.MuxConfig{
		Listener: l, Advertise: n.Self().Address, Dial: n.dial, Self: n.Self,
		Admit: n.admit, Verify: n.verify, Resolve: n.resolve, Witness: n.seen, Timeout: callTime, Logger: n.log,
	})
	n.rpc = serveRPC(n, n.mux.Listener(transport.KindRPC))
	n.clients.serve(n.mux.Listener(transport.KindClient))
	return n, nil
}

func newNode(cfg Config) (*Node, error) {
	if cfg.TLS == nil && !auth.Loopback(cfg.Listener.Addr()) {
		return nil, fmt.Errorf("%w: %s", ErrInsecure, cfg.Listener.Addr())
	}
	n := &Node{cfg: cfg, log: cfg.Logger, met: newAcquaintances(), tunnels: newTunnels(), wake: make(chan struct{}, 1),
		sending: make(chan struct{}, maxSegmentStreams), stall: segmentStall}
	n.seen, n.links = newWitness(n), newLinks(n, transport.KindRPC, newCaller)
	n.clients = newClients(n)
	var err error
	if cfg.TLS != nil {
		if n.keys, err = openKeys(*cfg.TLS, cfg.Identity.Node); err != nil {
			return nil, err
		}
		n.keys.log = n.log
	}
	if n.book, err = openBook(cfg.FS, cfg.Dir, cfg.Identity.Cluster); err != nil {
		return nil, err
	}
	if err := n.seen.load(cfg.FS, cfg.Dir, cfg.Identity.Cluster); err != nil {
		return nil, err
	}
	self := cfg.Identity
	self.Address = cfg.Advertise
	if self.Address == "" {
		self.Address = cfg.Listener.Addr().String()
	}
	for self.Boot == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // never fails
		self.Boot = binary.LittleEndian.Uint64(b[:])
	}
	n.self.Store(&self)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	return n, nil
}

// Self is who this node is.
func (n *Node) Self() Identity { return *n.self.Load() }

// Transport returns a new transport of a Raft group. The one before must be closed.
func (n *Node) Transport(group uint32) (raft.Transport, error) { return n.mux.Group(group) }

// Attach tells which groups there are, once, and begins to keep them in line. They
// must be open until Close has returned.
func (n *Node) Attach(r Replicas) {
	n.attach.Do(func() {
		n.replicas.Store(&r)
		n.work.Go(n.meetAll)
		n.work.Go(n.observe)
		n.work.Go(n.reconcile)
	})
}

// Refused returns why the others do not want this node any more, nil if they do.
func (n *Node) Refused() error {
	if r := n.refusal.Load(); r != nil {
		return r
	}
	return nil
}

// expel notes that the others do not want this node.
func (n *Node) expel(r *Refusal) {
	if !n.refusal.CompareAndSwap(nil, r) {
		return
	}
	n.log.Error().Str("reason", r.Reason).Msg("this node is no member of the cluster any more")
	if n.cfg.OnRefused != nil {
		n.cfg.OnRefused(r)
	}
}

// dial connects to another node, with TLS if there are keys.
func (n *Node) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil || n.keys == nil {
		return c, err
	}
	return n.keys.client(ctx, c)
}

// Close ends all connections and waits for what the Node has started. The groups
// should be closed before: they lose their transports.
func (n *Node) Close() error {
	err := ErrClosed
	n.closed.Do(func() {
		n.cancel()
		n.work.Wait()
		n.links.close()
		n.rpc.close()
		n.clients.close()
		n.sends.Wait()
		err = n.mux.Close()
		n.tunnels.close()
	})
	return err
}
