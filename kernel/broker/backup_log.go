package broker

import (
	"context"
	"errors"
	"path"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/wal"
)

// tailBatch is how many bytes of entries are appended to the log of a backup at once.
const tailBatch = 1 << 20

// log writes the write-ahead log of the backup: what the placement group has after its
// checkpoint, and in which terms both groups are. It is read fast: the node keeps its
// log for as long.
func (b *backup) log(data *placement.Backup) (err error) {
	dir := path.Join(b.order.Dir, walDir)
	w, err := wal.Open(b.fs, dir, wal.Options{FileSize: tailBatch, SkipSync: true, NoAhead: true})
	if err != nil {
		return err
	}
	err = b.tail(w, data)
	if err = errors.Join(err, w.Close()); err != nil {
		return err
	}
	// The log's lock is none of a backup.
	if err := b.fs.Remove(path.Join(dir, "LOCK")); err != nil {
		return err
	}
	return b.add(walDir)
}

func (b *backup) tail(w *wal.WAL, data *placement.Backup) error {
	n := b.node
	err := errors.Join(raftgroup.Begin(w.Group(metasvc.CatalogGroup), n.catalog.Raft().Term()),
		raftgroup.Begin(w.Group(durablePlacement), n.durable.Raft().Term()))
	if err != nil {
		return err
	}
	var logs []*raft.Log
	size := 0
	flush := func() error {
		err := w.Group(durablePlacement).StoreLogs(logs)
		logs, size = nil, 0
		return errors.Join(err, b.ctx.Err())
	}
	err = data.Entries(func(l *raft.Log) error {
		logs = append(logs, l)
		if size += len(l.Data); size < tailBatch {
			return nil
		}
		return flush()
	})
	if errors.Is(err, raft.ErrLogNotFound) {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the log was cut while it was copied: try again")
	}
	if err != nil {
		return err
	}
	return flush()
}

// barrier returns an index of a group's log at or before which everything is that was
// confirmed before the call, wherever the group is led.
func (n *Node) barrier(ctx context.Context, group uint32) (uint64, error) {
	switch {
	case n.cluster != nil:
		return n.cluster.Barrier(ctx, group)
	case group == durablePlacement:
		return n.durable.Seal(ctx)
	default:
		return n.catalogBarrier(ctx)
	}
}

func (n *Node) catalogBarrier(ctx context.Context) (uint64, error) {
	g := n.catalog.Raft()
	if err := g.VerifyLeader(ctx); err != nil {
		return 0, kernel.Errorf(kernel.CodeUnavailable, "", "", "the catalog has no leader here: %v", err)
	}
	return g.HandedIndex(), nil
}
