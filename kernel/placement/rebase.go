package placement

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// A replica that lacks segments which no other one has any more, because they were
// merged or nothing lived in them, cannot become whole from the checkpoint it has. It
// takes the newest one of another replica instead, and goes on with its log from there.

// stuck says whether a missing segment is nowhere else, and this node may start from
// another checkpoint.
func (p *puller) stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.install == nil || p.serving() {
		return false
	}
	for _, missing := range p.machine.shown.Load().Missing() {
		if _, lost := p.nowhere[missing.ID]; lost {
			return true
		}
	}
	return false
}

func (p *puller) setInstall(fn func(io.Reader) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.install = fn
}

// rebase gets the newest checkpoint of another replica.
func (p *puller) rebase(ctx context.Context) error {
	r, err := p.source.Segment(ctx, p.group, CheckpointID, 0)
	if err != nil {
		return fmt.Errorf("placement: another checkpoint: %w", err)
	}
	if err := errors.Join(p.install(r), r.Close()); err != nil {
		return fmt.Errorf("placement: another checkpoint: %w", err)
	}
	p.mu.Lock()
	clear(p.nowhere)
	p.mu.Unlock()
	p.metrics.Rebased.Add(1)
	p.logger.Info().Uint32("placement", p.group).Msg("segments that were missing are nowhere any more: the checkpoint of another replica has been taken")
	return nil
}

// installer returns what puts a checkpoint that another replica sends in the place of
// the state.
func (g *Group) installer(rg *raftgroup.Group) func(io.Reader) error {
	return func(r io.Reader) error {
		w, err := g.sealer.store.Receive(r)
		if err != nil {
			return err
		}
		return rg.Install(w)
	}
}
