package raftgroup

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// Group is one running Raft group. All methods may be called concurrently.
type Group struct {
	cfg    Config
	logger *logger
	store  *store
	fsm    *fsm
	raft   atomic.Pointer[raft.Raft]

	// gate is held for reading while something is handed to the library, and
	// for writing while the library is stopped: what it has got, it answers, as
	// long as nobody stops it.
	gate     sync.RWMutex
	stopped  bool           // under gate: nothing more goes in
	inflight sync.WaitGroup // what the library has not answered

	collector collector
	verifier  verifier
	lease     *lease
	sent      atomic.Pointer[stragglers] // the present transport; nil without peers

	notify   chan bool             // from the library: leadership won, lost
	observed chan raft.Observation // another node leads
	restored chan struct{}         // a checkpoint was installed
	stop     chan struct{}
	done     chan struct{} // supervise has ended

	leadership atomic.Pointer[Leadership]
	mute       atomic.Bool // see lookAtDisk
}

// Open starts the group. The machine must hold the state of the newest
// checkpoint, see [Config.Restored].
func Open(cfg Config) (*Group, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Group{
		cfg:      cfg,
		logger:   newLogger(cfg.Logger.With().Uint32("group", cfg.Group.ID()).Logger()),
		store:    &store{Group: cfg.Group},
		notify:   make(chan bool, 64),
		observed: make(chan raft.Observation, 1),
		restored: make(chan struct{}, 1),
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	g.leadership.Store(&Leadership{})
	g.lease = newLease(&cfg)
	g.store.now = g.lease.now
	c := newest(cfg.Checkpoints)
	if c.Index != cfg.Restored {
		return nil, fmt.Errorf("raftgroup: group %d: the machine holds the checkpoint at %d, the newest one is at %d",
			cfg.Group.ID(), cfg.Restored, c.Index)
	}
	g.fsm = &fsm{machine: cfg.Machine, restored: g.restored, configured: g.lease.configure}
	g.fsm.begin(c)
	if err := g.start(c); err != nil {
		return nil, fmt.Errorf("raftgroup: group %d: %w", cfg.Group.ID(), err)
	}
	g.collector.start(&g.inflight)
	g.verifier.start(g)
	go g.supervise()
	return g, nil
}

// start makes an instance of the library on what is stored.
func (g *Group) start(c checkpoint.Meta) error {
	if err := reconcile(g.cfg.Group, c); err != nil {
		return err
	}
	if err := bootstrap(g.store, c, g.cfg.Bootstrap); err != nil {
		return err
	}
	trans, err := g.transport()
	if err != nil {
		return err
	}
	g.store.quiet.Store(g.lease.now() + g.lease.length)
	g.store.self = trans.EncodePeer(raft.ServerID(g.cfg.NodeID), trans.LocalAddr())
	r, err := raft.NewRaft(g.raftConfig(), g.fsm, g.store, g.store, snapshots{g.cfg.Checkpoints}, trans)
	if err != nil {
		closeTransport(trans)
		return err
	}
	r.RegisterObserver(raft.NewObserver(g.observed, false, func(o *raft.Observation) bool {
		_, ok := o.Data.(raft.LeaderObservation)
		return ok
	}))
	g.raft.Store(r)
	g.electSole(r, trans)
	return nil
}

func (g *Group) transport() (raft.Transport, error) {
	if g.cfg.Transport == nil {
		return transport.NewSolo(g.cfg.NodeID), nil
	}
	t, err := g.cfg.Transport()
	if err != nil {
		return nil, err
	}
	w, err := g.lease.observe(g.silence(t))
	if err != nil {
		closeTransport(t)
		return nil, err
	}
	sent := newStragglers(w, g.LastIndex, g.cfg.MaxAppendEntries)
	g.sent.Store(sent)
	return sent, nil
}

// release ends what waits for members that are away; with over, for good.
func (g *Group) release(over bool) {
	if s := g.sent.Load(); s != nil {
		s.release(over)
	}
}

func closeTransport(t raft.Transport) {
	if c, ok := t.(raft.WithClose); ok {
		_ = c.Close() // nothing was sent over it
	}
}

// electSole makes a node that is the only voter stand for election at once:
// there is nobody whose sign of life it could wait for.
func (g *Group) electSole(r *raft.Raft, trans raft.Transport) {
	voters, self := 0, false
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.Suffrage == raft.Voter {
			voters++
			self = self || s.ID == raft.ServerID(g.cfg.NodeID)
		}
	}
	if voters != 1 || !self {
		return
	}
	g.store.quiet.Store(0)
	id, addr := raft.ServerID(g.cfg.NodeID), trans.LocalAddr()
	req := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax,
		ID: []byte(id), Addr: trans.EncodePeer(id, addr)}}
	// When it fails, the election timer does the same a second later.
	_ = trans.TimeoutNow(id, addr, &req, &raft.TimeoutNowResponse{})
}

// supervise turns the events of the library into calls of Watch, and restarts
// the library when it needs it.
func (g *Group) supervise() {
	defer close(g.done)
	disk := time.NewTicker(g.cfg.Timing.Heartbeat)
	defer disk.Stop()
	for {
		select {
		case leads := <-g.notify:
			if leads {
				g.lead()
			} else {
				g.mute.Store(false)
				g.follow()
			}
		case <-disk.C:
			g.lookAtDisk()
		case <-g.observed:
			if !g.leadership.Load().Leader {
				g.follow()
			}
		case <-g.restored:
			g.restart()
		case <-g.stop:
			return
		}
	}
}

// lead announces a leadership, once everything committed before it is applied.
func (g *Group) lead() {
	r := g.raft.Load()
	f := r.Barrier(0)
	if f.Error() != nil {
		return // lost already; that news is on its way
	}
	index := f.(raft.IndexFuture).Index()
	term, err := g.cfg.Group.Term(index)
	if err != nil || r.State() != raft.Leader {
		return
	}
	g.lease.begin(term, r.GetConfiguration().Configuration())
	g.announce(Leadership{Leader: true, LeaderID: g.cfg.NodeID, Term: term})
}

func (g *Group) follow() {
	r := g.raft.Load()
	_, id := r.LeaderWithID()
	if string(id) == g.cfg.NodeID {
		return // the barrier is not through, lead will tell
	}
	g.lease.begin(0, raft.Configuration{})
	g.release(false)
	g.announce(Leadership{LeaderID: string(id), Term: r.CurrentTerm()})
}

func (g *Group) announce(l Leadership) {
	if *g.leadership.Load() == l {
		return
	}
	g.leadership.Store(&l)
	if g.cfg.Watch != nil {
		g.cfg.Watch(l)
	}
}

// restart replaces the instance of the library after a checkpoint was
// installed. Otherwise it may go on with the index of a tail that is gone, and
// reject everything the leader sends, for ever.
func (g *Group) restart() {
	g.gate.Lock()
	defer g.gate.Unlock()
	g.inflight.Wait()
	old := g.raft.Load()
	// The goroutine that answers this one is the one that installs: when the
	// answer is there, the installation is over. Stopped in the middle of it,
	// the library would tell the leader that it has failed.
	_ = old.VerifyLeader().Error()
	g.release(true)
	err := old.Shutdown().Error()
	if err == nil {
		err = g.start(newest(g.cfg.Checkpoints))
	}
	if err != nil {
		_ = g.broken(err)
	}
}

// Close stops the group and waits for everything it has started. A leader with
// peers should hand over before, see [Group.TransferLeadership]. Proposals that
// are on their way get their outcome; later ones get ErrNotApplied.
func (g *Group) Close() error {
	g.gate.Lock()
	select {
	case <-g.stop:
		g.gate.Unlock()
		return ErrClosed
	default:
	}
	g.stopped = true
	close(g.stop)
	g.gate.Unlock()

	// The library still runs and answers all it has got: a leader commits, or
	// finds no majority and steps down. Stopped first, it would forget some.
	g.inflight.Wait()
	<-g.done
	g.verifier.close()
	g.release(true)
	err := g.raft.Load().Shutdown().Error()
	g.collector.close()
	if err != nil {
		return fmt.Errorf("raftgroup: close: %w", err)
	}
	return nil
}
