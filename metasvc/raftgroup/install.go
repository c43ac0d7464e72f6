package raftgroup

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// Install takes a checkpoint that came from another member, and not from Raft: for a
// follower whose own is of no use any more. The log goes on behind it as far as it fits.
// It must be as new as the newest one here. A leader refuses. The writer is committed
// or aborted in any case.
func (g *Group) Install(w *checkpoint.Writer) error {
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.stopped {
		return errors.Join(ErrClosed, w.Abort())
	}
	g.inflight.Wait()
	meta, old := w.Meta(), g.raft.Load()
	_ = old.VerifyLeader().Error() // what the library is at is over, see restart
	if old.State() == raft.Leader || meta.Index < newest(g.cfg.Checkpoints).Index {
		return errors.Join(fmt.Errorf("raftgroup: group %d does not take the checkpoint %s now", g.cfg.Group.ID(), meta.ID()), w.Abort())
	}
	if err := old.Shutdown().Error(); err != nil {
		return g.broken(errors.Join(err, w.Abort()))
	}
	err := w.Commit()
	if err == nil {
		err = g.take(meta.ID())
	}
	if err == nil {
		err = g.start(newest(g.cfg.Checkpoints))
	}
	if err != nil {
		return g.broken(err)
	}
	return nil
}

// take has the machine restore a checkpoint of the store.
func (g *Group) take(id string) error {
	meta, r, err := g.cfg.Checkpoints.Read(id)
	if err != nil {
		return err
	}
	err = errors.Join(g.cfg.Machine.Restore(meta, r), r.Close())
	if err == nil {
		g.fsm.begin(meta)
	}
	return err
}

// broken ends the group, whose library does not run any more. The caller holds the
// gate.
func (g *Group) broken(err error) error {
	g.stopped = true
	err = fmt.Errorf("raftgroup: restart of group %d: %w", g.cfg.Group.ID(), err)
	g.cfg.Logger.Error().Err(err).Msg("raft group stopped")
	if g.cfg.OnFailure != nil {
		g.cfg.OnFailure(err)
	}
	return err
}
