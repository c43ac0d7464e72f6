package placement

import (
	"errors"
	"fmt"
	"io"
	"path"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Open opens a durable group on the node's write-ahead log, from its newest
// checkpoint. What the log has after that is applied in the background; the
// group leads, if it does, when that is done: see WaitReady.
func Open(cfg Config) (*Group, error) {
	g, store, meta, err := openState(cfg)
	if err != nil {
		return nil, err
	}
	for _, s := range g.shards {
		s.lease = g.lease
	}
	g.drivers.start(g)
	// The log calls back as soon as it is open, before it can be told to the
	// proposer: the callbacks wait for that.
	wired := make(chan struct{})
	rg, err := raftgroup.Open(raftgroup.Config{
		Group: cfg.WAL, NodeID: cfg.Raft.NodeID, Checkpoints: store,
		Machine: lateMachine{wired, g.machine}, Restored: meta.Index,
		Bootstrap: cfg.Raft.Bootstrap, Transport: cfg.Raft.Transport, Timing: cfg.Raft.Timing,
		KeepBytes: cfg.Raft.KeepBytes, KeepPeers: cfg.Raft.KeepPeers, Logger: cfg.Logger,
		OnLease: g.leased, Mono: g.clock.mono,
		Watch: func(l raftgroup.Leadership) {
			<-wired
			g.turned(l)
		},
		OnFailure: g.fail,
	})
	if err != nil {
		g.closing = func() error { return nil }
		g.Close()
		return nil, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	g.prop.log, g.sealer.log = rg, rg
	g.puller.setInstall(g.installer(rg))
	g.raft.Store(rg)
	g.closing = rg.Close
	close(wired)
	g.keepUp()
	return g, nil
}

// openState makes a group and loads its checkpoint. No goroutine runs yet, and
// it has no log.
func openState(cfg Config) (*Group, *checkpoint.Store, checkpoint.Meta, error) {
	var none checkpoint.Meta
	store, err := checkpoint.Open(cfg.FS, path.Join(cfg.Dir, "checkpoints"))
	if err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	keys := newKeyed(&cfg)
	meta, sv, kept, err := loadSaved(store, keys)
	if err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	for _, damage := range store.Damage() {
		cfg.Logger.Error().Err(damage).Msg("a damaged checkpoint is set aside")
	}
	sole := cfg.Raft.Transport == nil || raftgroup.Sole(meta.Configuration, cfg.Raft.NodeID)
	if err := reaches(cfg.WAL, meta.Index, len(store.Damage()) > 0, sole); err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	if err := keys.sweep(kept); err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	g := newGroup(cfg)
	g.keyed, g.sole = keys, sole
	store.Attach(g.attached)
	for _, s := range g.shards {
		s.ahead = readAhead
	}
	m := g.machine
	m.loadKeys = keys.load
	m.open = func(alone bool, kept ...*slog.Manifest) (*slog.Log, error) {
		newest := kept[len(kept)-1]
		opts := slog.Options{Cache: cfg.Cache, Source: cfg.WAL, Alone: alone, Kept: kept[:len(kept)-1]}
		return slog.Open(cfg.FS, path.Join(cfg.Dir, "segments"), opts, newest)
	}
	if m.log, err = m.open(sole, manifests(kept)...); err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: %w", cfg.ID, err)
	}
	m.shown.Store(m.log)
	for _, missing := range m.log.Missing() {
		text := "a segment file is missing or damaged: its records cannot be read"
		if !sole && cfg.Raft.Source != nil {
			text = "a segment file is missing or damaged: it is fetched from another replica"
		}
		cfg.Logger.Error().Err(missing.Err).Str("segment", slog.SegmentName(missing.ID)).Msg(text)
	}
	for _, id := range m.log.Repaired() {
		cfg.Logger.Error().Str("segment", slog.SegmentName(id)).Msg("a segment file was damaged and has been repaired: nothing is lost; see to the disk")
	}
	g.sealer = &sealer{
		machine: m, store: store, keys: keys, looked: g.disk.look, alone: g.alone, sending: g.sent.any, clock: g.clock, metrics: &g.metrics,
		logger: cfg.Logger, kept: kept, wake: make(chan struct{}, 1), stepped: make(chan struct{}, 1),
	}
	m.sealer, m.index = g.sealer, meta.Index
	g.puller = newPuller(&cfg, m, &g.metrics)
	g.puller.peers = func() bool { return !g.alone() }
	g.puller.serving = func() bool { return g.leading.Load() != 0 }
	m.puller = g.puller
	for _, s := range g.shards {
		s.puller = g.puller
	}
	g.disk.cramped = func() bool { return cfg.WAL.MakeRoom() != nil || g.sealer.full.Load() }
	g.disk.leads = func() bool { return g.leading.Load() != 0 }
	g.disk.open(cfg, g.limits.DiskFloor)
	g.budget.open(&cfg, g.limits.RetentionBudget)
	g.prop.room = g.durableRoom
	if err := m.restore(sv); err != nil {
		return nil, nil, none, fmt.Errorf("placement: open group %d: checkpoint %s: %w", cfg.ID, meta.ID(), errors.Join(err, m.log.Close()))
	}
	return g, store, meta, nil
}

// reaches returns an error if the log does not go on from the checkpoint at
// index (0: none), or has lost its end: a node that is alone has logged all that
// it has a checkpoint of. It has to be known before the segments are opened, which
// removes those that the checkpoint does not name, as the log makes them again.
func reaches(log *wal.Group, index uint64, damaged, alone bool) error {
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	if first > index+1 || first == 0 && index == 0 && damaged {
		return fmt.Errorf("%w: the newest readable checkpoint is at %d, the log begins at %d", raftgroup.ErrCorrupt, index, first)
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	if alone && last > 0 && last < index {
		return fmt.Errorf("%w: the newest checkpoint is at %d, the log ends at %d", raftgroup.ErrCorrupt, index, last)
	}
	return nil
}

// durableRoom refuses publishes when the disk is low, or the log grows and nothing
// can be sealed.
func (g *Group) durableRoom() error {
	if !g.disk.low.Load() && g.cfg.WAL.Room() != nil {
		g.disk.look() // at once: what is left of the log is for settlements
	}
	if g.disk.low.Load() {
		g.metrics.Refused.Add(1)
		return errLowDisk
	}
	if err := g.held(); err != nil {
		return err
	}
	if g.machine.sinceSeal.Load() > 16*g.limits.SealBytes || g.sealer.behind() {
		return errUnsealed
	}
	return nil
}

// lateMachine is a machine that is not called before it is wired.
type lateMachine struct {
	wired <-chan struct{}
	*machine
}

func (l lateMachine) Apply(entries []raftgroup.Entry) {
	<-l.wired
	l.machine.Apply(entries)
}

// Restore replaces the whole state by that of a checkpoint which the leader
// has sent, since this node was too far behind.
func (m *machine) Restore(meta checkpoint.Meta, r io.Reader) error {
	sv, rest, err := readSaved(r, meta.Size)
	if err != nil {
		return fmt.Errorf("placement: restore checkpoint %s: %w", meta.ID(), err)
	}
	log, err := m.open(false, sv.manifest) // the leader has the segments
	if err != nil {
		return fmt.Errorf("placement: restore checkpoint %s: %w", meta.ID(), err)
	}
	keyErr := m.out.run(func() error { return m.loadKeys(sv, rest, meta.Index) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sealer.reset(keptState{sv.manifest, m.sealer.keys.chain})
	m.clear()
	old := m.log
	m.log, m.index, m.broken = log, meta.Index, false
	m.shown.Store(log)
	if err := errors.Join(keyErr, m.restore(sv)); err != nil {
		m.broken = true // the old state is gone
		return fmt.Errorf("placement: restore checkpoint %s: %w", meta.ID(), err)
	}
	signal(m.puller.wake)
	if err := old.Close(); err != nil {
		m.sealer.logger.Warn().Err(err).Msg("closing the replaced log")
	}
	return nil
}

// clear drops all there is, as if every topic had been dropped. Nobody is told that it
// was: who has a membership or a partition still is sent to who leads.
func (m *machine) clear() {
	for _, s := range m.shards {
		m.tell(s, event{kind: evUnlead})
	}
	for _, p := range m.parts {
		p.replaced.Store(true)
	}
	for id := range m.topics {
		m.dropTopic(id)
	}
	clear(m.ledgers)
	m.sinceSeal.Store(0)
	m.nextSeal = m.sealBytes
}
