package broker

import (
	"context"
	"errors"
	"io"
	"path"
	"time"

	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/kv"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

const (
	// startWait bounds the wait for leadership and replay.
	startWait = 10 * time.Minute
)

// replicas are what a node holds of its groups, in the order of opening.
type replicas struct {
	lock    io.Closer
	again   *rejoin       // joins its cluster again because of damage; nil = it does not
	cluster *cluster.Node // nil without a cluster listener
	wal     *wal.WAL
	kv      *kv.Store
	ownKV   bool
	catalog *metasvc.Catalog
	durable *placement.Group
}

// Open starts a node that is alone on its data directory and returns when it can
// serve: everything that was confirmed is there. Closing it closes the node.
// Errors: ErrLocked, ErrFormat, ErrIdentity, ErrIncomplete, and what the storage
// finds.
func Open(cfg Config) (*Broker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startWait)
	defer cancel()
	n, err := OpenNode(ctx, cfg)
	if err != nil {
		return nil, err
	}
	b, err := n.Serve(ctx)
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	b.alone = true
	return b, nil
}

// openDir opens the replicas on the data directory. After an error they are to be closed.
func (n *Node) openDir(ctx context.Context, fsys vfs.FS) (err error) {
	dir := n.cfg.DataDir
	join := n.clustered() && len(n.cfg.Cluster.Join) > 0
	if n.file, n.lock, err = claimDir(fsys, dir, n.cfg.NodeID, join); err != nil {
		return err
	}
	if err := n.resume(fsys, dir); err != nil {
		return err
	}
	if n.clustered() {
		if err := n.meet(ctx, fsys, dir); err != nil {
			return err
		}
	}
	unit := logUnit(fsys, dir)
	if n.wal, err = openLog(fsys, dir, n.file, wal.Options{FileSize: unit, OnFailure: n.fail, SlowWrite: 2 * n.cfg.Cluster.Heartbeat}); err != nil {
		return err
	}
	n.paced.Store(n.wal)
	if r := n.wal.Recovery(); r.TornFile != "" {
		n.log.Info().Str("file", r.TornFile).Int64("offset", r.TornAt).
			Msg("a write that was interrupted, and so never confirmed, was cut off the log")
	}
	if err := n.openKeyed(fsys, dir, unit); err != nil {
		return err
	}
	n.catalog, err = metasvc.Open(metasvc.Config{
		WAL: n.wal, FS: fsys, Dir: path.Join(dir, catalogDir), NodeID: n.ID(), Bootstrap: n.founders(),
		Transport: n.transport(metasvc.CatalogGroup), Timing: n.timing(), OnLead: n.onCatalog, OnFailure: n.fail, Logger: n.log,
	})
	if err != nil {
		return err
	}
	if n.durable, err = placement.Open(n.placement(fsys, dir, unit)); err != nil {
		return err
	}
	n.attach()
	return nil
}

// placement is what the placement group is opened with.
func (n *Node) placement(fsys vfs.FS, dir string, unit int64) placement.Config {
	limits := n.limits.Placement
	if n.cfg.Settings != nil && limits.RetentionBudget == 0 {
		limits.RetentionBudget = n.settings.RetentionBudget
	}
	if limits.SealBytes == 0 {
		limits.SealBytes = unit
	}
	return placement.Config{
		ID: durablePlacement, FS: fsys, Dir: path.Join(dir, placementDir),
		WAL: n.wal.Group(durablePlacement), KV: n.kv, Cache: slog.NewCache(n.limits.CacheBytes),
		Raft: placement.Raft{
			NodeID: n.ID(), Bootstrap: n.founders(),
			Transport: n.transport(durablePlacement), Source: n.source(), Timing: n.timing(),
			KeepBytes: 1, // the log from the older checkpoint on is enough
		},
		Logger: n.log, Now: n.cfg.Now, Limits: limits, Bury: n.bury, Watch: n.wrote, OnFailure: n.fail,
		OnDisk: n.alarms.disk, OnDamage: n.damaged, Hold: n.alarms.hold, OnLead: n.onPlacement,
	}
}

// founders are the first members of the groups, for the node that has founded the
// cluster; others are added by who leads.
func (n *Node) founders() []raftgroup.Server {
	if n.file.joined() {
		return nil
	}
	return []raftgroup.Server{{ID: n.ID(), Address: n.ID()}}
}

// close closes what is open, in reverse.
func (r *replicas) close() error {
	var errs []error
	if r.durable != nil {
		r.durable.Close()
	}
	if r.catalog != nil {
		errs = append(errs, r.catalog.Close())
	}
	if r.kv != nil && r.ownKV {
		errs = append(errs, r.kv.Close())
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Close())
	}
	if r.wal != nil {
		errs = append(errs, r.wal.Close())
	}
	if r.lock != nil {
		errs = append(errs, r.lock.Close())
	}
	return errors.Join(errs...)
}
