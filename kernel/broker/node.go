package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Node is what a process holds of its cluster: a replica of the catalog and of the
// placement group, on one log. Of all nodes the one that leads both serves clients;
// it does so through a Broker, which is made anew for each time that it leads, so
// that nothing of an earlier one survives. Safe for concurrent use.
type Node struct {
	cfg      Config
	log      zerolog.Logger
	settings Settings
	limits   Limits
	now      func() time.Time
	file     nodeFile
	started  time.Time
	alarms   *alarms
	traffic  traffic
	away     traffic // of clients of other nodes that this one serves

	replicas                         // in the order of opening
	paced    atomic.Pointer[wal.WAL] // the same as wal, for those who ask before it is open

	doorman func() *Doorman        // made at the first call
	abreast chan struct{}          // closed when the catalog has what had been committed at the start
	backing sync.Mutex             // held by the backup that is under way
	facade  atomic.Pointer[Broker] // that serves, or is about to
	epochs  atomic.Uint64          // attachments of sessions so far, see nextEpoch
	aligner sync.WaitGroup
	yield   func(context.Context) // see OnYield; may be nil
	onClose func()                // undoes what was done outside: metrics
	ctx     context.Context       // ends when Close begins
	cancel  context.CancelFunc

	mu      sync.Mutex
	lead    lead
	leader  string        // of the placement group, "" = nobody
	served  bool          // there was a facade before
	changed chan struct{} // closed and replaced when one of these or failed changes
	failed  error
	closed  bool
}

// lead is where a node leads: in which term of each group, 0 = it does not.
type lead struct{ catalog, placement uint64 }

func (l lead) all() bool { return l.catalog != 0 && l.placement != 0 }

// OpenNode opens the replicas on a data directory. What they lack comes in the
// background. A new node that is to join a cluster waits until it is let in, or ctx
// ends. Errors as for Open, and a *cluster.Refusal.
func OpenNode(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{
		cfg: cfg, log: cfg.Logger, settings: *DefaultSettings(), limits: cfg.Limits.withDefaults(),
		now: cfg.Now, alarms: newAlarms(cfg.Logger), changed: make(chan struct{}), abreast: make(chan struct{}),
	}
	if n.now == nil {
		n.now = kernel.Now
	}
	n.started = n.now()
	if cfg.Settings != nil {
		n.settings = *cfg.Settings
	}
	n.doorman = sync.OnceValue(func() *Doorman { return &Doorman{n, newAccess(n.settings.Logins, n.log)} })
	n.ctx, n.cancel = context.WithCancel(context.Background())
	err := n.openReplicas(ctx)
	if err == nil {
		err = n.register()
	}
	if err != nil {
		n.cancel()
		n.aligner.Wait()
		return nil, errors.Join(n.advise(err), n.replicas.close())
	}
	return n, nil
}

// Serve waits until this node leads, and returns the facade of that leadership
// with everything loaded. The caller closes it when it is Lost, before the next
// Serve. After an error the node may still lead: the caller may try again.
func (n *Node) Serve(ctx context.Context) (*Broker, error) {
	for {
		l, changed, err := n.leads()
		if err != nil {
			return nil, err
		}
		if l.all() {
			b, err := n.serve(ctx, l)
			if err == nil {
				return b, nil
			}
			if now, _, failed := n.leads(); now == l || failed != nil {
				return nil, err
			}
			n.log.Warn().Err(err).Msg("the leadership has ended before the node could serve")
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serve makes the facade of a leadership.
func (n *Node) serve(ctx context.Context, l lead) (*Broker, error) {
	b := newBroker(n, l)
	if before := n.servedBefore(); before || !n.Alone() {
		b.relinks = relinkTime
	}
	stop := context.AfterFunc(ctx, b.cancel)
	n.facade.Store(b)
	if now, _, _ := n.leads(); now != l { // from here on, lose tells it
		b.lose()
	}
	err := b.start()
	if !stop() {
		err = errors.Join(err, ctx.Err())
	}
	if err != nil {
		n.facade.CompareAndSwap(b, nil)
		return nil, errors.Join(err, b.abandon())
	}
	return b, nil
}

// servedBefore reports whether the process has had a facade before: connections may have
// outlasted that.
func (n *Node) servedBefore() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.served
	n.served = true
	return before
}

func (n *Node) leads() (l lead, changed <-chan struct{}, failed error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failed != nil:
		failed = n.failed
	case n.closed:
		failed = errStopping()
	}
	return n.lead, n.changed, failed
}

// Changed returns a channel that is closed when others lead than before, as far as
// the node knows, its catalog is Abreast, or it has failed.
func (n *Node) Changed() <-chan struct{} {
	_, changed, _ := n.leads()
	return changed
}

// turn notes a change of who leads, and ends the facade of a leadership that is over.
func (n *Node) turn(fn func(*lead)) {
	n.note(fn)
	n.outdate()
}

func (n *Node) note(fn func(*lead)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	fn(&n.lead)
	close(n.changed)
	n.changed = make(chan struct{})
}

// outdate ends the facade if it is of another leadership than that of now. It may be of one
// that was noted after what the caller has noted.
func (n *Node) outdate() {
	b := n.facade.Load()
	if now, _, _ := n.leads(); b != nil && b.lead != now {
		b.lose()
	}
}

func term(l raftgroup.Leadership) uint64 {
	if l.Leader {
		return l.Term
	}
	return 0
}

func (n *Node) onCatalog(l raftgroup.Leadership) { n.turn(func(w *lead) { w.catalog = term(l) }) }

func (n *Node) onPlacement(l raftgroup.Leadership) {
	n.turn(func(w *lead) {
		w.placement = term(l)
		n.leader = l.LeaderID
	})
}

// fail notes that the replicas cannot go on.
func (n *Node) fail(err error) {
	n.mu.Lock()
	first := n.failed == nil
	if first {
		n.failed = nodeFailed(err)
		close(n.changed)
		n.changed = make(chan struct{})
	}
	n.mu.Unlock()
	if b := n.facade.Load(); b != nil {
		b.fail(err)
	} else if first {
		n.log.Error().Err(err).Msg("the node has failed")
	}
}

// Failed returns why the replicas cannot go on, or nil.
func (n *Node) Failed() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failed
}

// bury is placement.Config.Bury.
func (n *Node) bury(f *placement.Burial) {
	if b := n.facade.Load(); b != nil {
		b.bury(f)
		return
	}
	for i := range f.Letters {
		f.Done(i, true) // who serves next does it
	}
}

// wrote is placement.Config.Watch.
func (n *Node) wrote(index uint64, written []placement.KV) {
	if b := n.facade.Load(); b != nil {
		b.retained.wrote(index, written)
	}
}

// damaged is placement.Config.OnDamage.
func (n *Node) damaged(topic kernel.TopicID, partition int32, bad placement.Damage) {
	if b := n.facade.Load(); b != nil {
		b.scrubbed(topic, partition, bad)
	}
}

// ClusterID returns the id of the cluster, 22 characters of base64url: no two
// clusters have the same, and it stays over restarts.
func (n *Node) ClusterID() string { return n.file.Cluster }

// ID returns the node's name in its Raft groups.
func (n *Node) ID() string { return n.file.raftID() }

// Close closes the replicas, after the facade, which is the caller's to close.
// Idempotent.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()
	n.cancel()
	n.backing.Lock() // the last backup has ended, and there is none after it
	n.aligner.Wait()
	if n.onClose != nil {
		n.onClose()
	}
	if err := n.replicas.close(); err != nil {
		return fmt.Errorf("close the node: %w", err)
	}
	return nil
}
