package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/metasvc/transport"
	"github.com/trivium-mq/trivium/storage/kv"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

const (
	// startWait bounds the wait for leadership and replay.
	startWait = 10 * time.Minute
)

// layers are what the broker stands on, in the order of opening.
type layers struct {
	lock     io.Closer
	mux      *transport.Mux // nil without a cluster listener
	wal      *wal.WAL
	kv       *kv.Store
	ownKV    bool
	catalog  *metasvc.Catalog
	durable  *placement.Group
	volatile *placement.Group
}

// Open starts a node on its data directory and returns when it can serve:
// everything that was confirmed is there. Errors: ErrLocked, ErrFormat,
// ErrIdentity, ErrIncomplete, and what the storage finds.
func Open(cfg Config) (*Broker, error) {
	b := &Broker{
		log: cfg.Logger, settings: *DefaultSettings(), limits: cfg.Limits.withDefaults(), version: cfg.Version,
		now: cfg.Now, tables: cfg.Tables,
		conns: make(map[kernel.ConnectionID]*Conn), counters: make(map[kernel.Protocol]*Counters),
		empty: make(chan struct{}), closed: make(chan struct{}),
	}
	if b.now == nil {
		b.now = time.Now
	}
	if b.tables == nil {
		b.tables = noTables{}
	}
	if cfg.Settings != nil {
		b.settings = *cfg.Settings
	}
	b.alarms = newAlarms(b.log)
	b.access = newAccess(b.settings.Logins, b.log)
	b.dead.loaded = make(chan struct{})
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.retained = newRetained(b, b.limits.RetainedMemory)
	b.started = b.now()
	if err := b.openLayers(cfg); err != nil {
		b.cancel()
		return nil, errors.Join(advise(err), b.layers.close())
	}
	err := b.load(cfg.Admin)
	if err == nil {
		err = b.register(cfg.Registerer)
	}
	if err != nil {
		b.timers.stop()
		b.cancel()
		return nil, errors.Join(err, b.layers.close())
	}
	close(b.dead.loaded)
	b.watcher.Go(b.watchAccess)
	b.watcher.Go(func() { b.watchAlarms(newMemoryGauge(b.limits.MemoryBytes)) })
	return b, nil
}

func (b *Broker) openLayers(cfg Config) (err error) {
	fsys := cfg.FS
	if fsys == nil {
		fsys = vfs.OS()
	}
	dir := cfg.DataDir
	node, lock, err := claimDir(fsys, dir, cfg.NodeID)
	if err != nil {
		return err
	}
	b.nodeID, b.clusterID, b.lock = node.Node, node.Cluster, lock
	b.access.secret = node.Secret
	if err := b.listen(cfg.ClusterAddr); err != nil {
		return err
	}
	unit := logUnit(fsys, dir)
	if b.wal, err = openLog(fsys, dir, node, wal.Options{FileSize: unit, OnFailure: b.fail}); err != nil {
		return err
	}
	if r := b.wal.Recovery(); r.TornFile != "" {
		b.log.Info().Str("file", r.TornFile).Int64("offset", r.TornAt).
			Msg("a write that was interrupted, and so never confirmed, was cut off the log")
	}
	if err := b.openKeyed(cfg, fsys, dir, unit); err != nil {
		return err
	}
	limits := b.limits.Placement
	if cfg.Settings != nil && limits.RetentionBudget == 0 {
		limits.RetentionBudget = cfg.Settings.RetentionBudget
	}
	if limits.SealBytes == 0 {
		limits.SealBytes = unit
	}
	b.catalog, err = metasvc.Open(metasvc.Config{
		WAL: b.wal, FS: fsys, Dir: path.Join(dir, catalogDir), NodeID: b.nodeID,
		Transport: b.transport(metasvc.CatalogGroup), OnFailure: b.fail, Logger: b.log,
	})
	if err != nil {
		return err
	}
	pc := placement.Config{
		ID: durablePlacement, FS: fsys, Dir: path.Join(dir, placementDir),
		WAL: b.wal.Group(durablePlacement), KV: b.kv, Cache: slog.NewCache(b.limits.CacheBytes),
		Raft: placement.Raft{
			NodeID: b.nodeID, Bootstrap: []raftgroup.Server{{ID: b.nodeID, Address: b.nodeID}},
			Transport: b.transport(durablePlacement),
			Alone:     true, // nobody can join yet
			KeepBytes: 1,    // the log from the older checkpoint on is enough
		},
		Logger: b.log, Now: cfg.Now, Limits: limits, Bury: b.bury, Watch: b.retained.wrote, OnFailure: b.fail,
		OnDisk: b.alarms.disk, Hold: b.alarms.hold,
	}
	if b.durable, err = placement.Open(pc); err != nil {
		return err
	}
	b.volatile, err = placement.OpenVolatile(placement.Config{
		Logger: b.log, Now: cfg.Now, Limits: b.limits.Placement, Bury: b.bury, OnFailure: b.fail, Hold: b.alarms.hold,
	})
	if err != nil {
		return err
	}
	return b.awaitLayers()
}

// awaitLayers waits until all groups lead.
func (b *Broker) awaitLayers() error {
	ctx, cancel := context.WithTimeout(b.ctx, startWait)
	defer cancel()
	if err := b.catalog.WaitReady(ctx); err != nil {
		return err
	}
	if err := b.durable.WaitReady(ctx); err != nil {
		return fmt.Errorf("placement group %d: %w", durablePlacement, err)
	}
	return b.volatile.WaitReady(ctx)
}

// listen opens the cluster listener, unless it is off. Nothing protects it yet,
// so it is for the loopback only.
func (b *Broker) listen(addr string) error {
	if addr == "" || addr == "off" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCluster, err)
	}
	if !auth.Loopback(l.Addr()) {
		return errors.Join(fmt.Errorf("%w: %s: only a loopback address is possible without TLS, which is not there yet", ErrCluster, addr), l.Close())
	}
	b.mux = transport.NewMux(transport.MuxConfig{Listener: l, Logger: b.log})
	return nil
}

// transport returns what makes the transport of a Raft group, nil without a
// cluster listener.
func (b *Broker) transport(group uint32) func() (raft.Transport, error) {
	if b.mux == nil {
		return nil
	}
	return func() (raft.Transport, error) { return b.mux.Group(group) }
}

// close closes what is open, in reverse.
func (l *layers) close() error {
	var errs []error
	if l.volatile != nil {
		l.volatile.Close()
	}
	if l.durable != nil {
		l.durable.Close()
	}
	if l.catalog != nil {
		errs = append(errs, l.catalog.Close())
	}
	if l.kv != nil && l.ownKV {
		errs = append(errs, l.kv.Close())
	}
	if l.mux != nil {
		errs = append(errs, l.mux.Close())
	}
	if l.wal != nil {
		errs = append(errs, l.wal.Close())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}
