package placement

import (
	"context"
	"slices"
	"time"
)

const (
	// lastSealBytes of log since the last seal make a clean end seal once more: less
	// is applied again at the next start in no time.
	lastSealBytes = 1 << 20
	// lastSealWait bounds how long the end waits for the checkpoint. One that is being
	// written is finished.
	lastSealWait = 3 * time.Second
)

// sealLast makes a checkpoint before a clean end if the next start would have much
// log to apply otherwise. Without it nothing is lost: the log has it all.
func (g *Group) sealLast() {
	s := g.sealer
	if s == nil || !g.drivers.started || g.leading.Load() == 0 || g.disk.low.Load() || s.full.Load() || s.behind() {
		return
	}
	if g.machine.sinceSeal.Load() < lastSealBytes && !s.owes() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSealWait)
	defer cancel()
	_, err := g.do(ctx, sealCommand())
	if err == nil {
		err = g.awaitSeal(ctx)
	}
	if err != nil {
		g.cfg.Logger.Warn().Err(err).Uint32("placement", g.cfg.ID).Msg("no checkpoint at the end: the next start takes longer")
	}
}

// awaitSeal waits until the checkpoints of all seals that have been applied are made,
// or cannot be.
func (g *Group) awaitSeal(ctx context.Context) error {
	for _, s := range g.shards {
		s.call(func() {}) // each adds its part before
	}
	if err := g.out.run(func() error { return nil }); err != nil {
		return err
	}
	for g.sealer.owes() {
		select {
		case <-g.sealer.stepped:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if g.sealer.full.Load() {
		return errLowDisk
	}
	return nil
}

// owes says whether a checkpoint is on its way.
func (s *sealer) owes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.queue, func(c *capture) bool { return !c.merge })
}
