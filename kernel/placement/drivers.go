package placement

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/storage/vfs"
)

const (
	tickEvery    = time.Second
	flushTimeout = 2 * time.Second
)

// drivers are the goroutines of a group: one per shard, the completer, the
// sealer, the timer, and what a log needs. They only step what they are given.
// A group without started drivers is stepped by its test.
type drivers struct {
	wg      sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	settle  chan struct{} // settlements have begun to wait
	started bool

	mu      sync.Mutex
	stopped bool
}

func (d *drivers) start(g *Group) {
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.settle = make(chan struct{}, 1)
	d.started = true
	g.prop.delay = func() { signal(d.settle) }
	g.keyed.pause = func(err error, tries int) bool { return d.pause(g, err, tries) }
	for _, s := range g.shards {
		d.wg.Go(func() { d.shard(s) })
	}
	d.run(g.under.box.wake, g.under.step)
	d.run(g.out.box.wake, g.out.step)
	d.wg.Go(func() { d.time(g) })
	if g.sealer != nil {
		g.sealer.pause, g.puller.pause = d.sleep, d.sleep
		d.wg.Go(func() { d.pull(g.puller) })
		d.wg.Go(func() { d.seal(g.sealer) })
		d.wg.Go(func() { newScrubber(g, d.sleep).run(g.limits.ScrubEvery) })
	}
}

// run steps something whenever it is woken, until there is nothing to do, and
// a last time at the end.
func (d *drivers) run(wake <-chan struct{}, step func() bool) {
	d.wg.Go(func() {
		for {
			select {
			case <-wake:
				for step() {
				}
			case <-d.ctx.Done():
				for step() {
				}
				return
			}
		}
	})
}

// shard is run for a shard, which is also woken when something expires.
func (d *drivers) shard(s *shard) {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		select {
		case <-s.box.wake:
		case <-timer.C:
		case <-d.ctx.Done():
			for s.step() {
			}
			return
		}
		for s.step() {
		}
		if wait, ok := s.nextDue(); ok {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
	}
}

// time tells the parts about time: settlements that have waited long enough,
// and once a second everything else.
func (d *drivers) time(g *Group) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	delay := time.NewTimer(time.Hour)
	delay.Stop()
	defer delay.Stop()
	armed := false
	for {
		select {
		case <-d.settle:
			if !armed {
				delay.Reset(settleDelay)
				armed = true
			}
		case <-delay.C:
			armed = false
			g.prop.settleTimeout()
		case <-tick.C:
			g.tick()
		case <-d.ctx.Done():
			return
		}
	}
}

// Failed seals are tried again after a pause that doubles. The first few are
// nothing to worry about.
const (
	sealRetry    = 5 * time.Millisecond
	sealRetryMax = 5 * time.Second
	sealComplain = 500 * time.Millisecond
)

// seal makes checkpoints as captures come.
func (d *drivers) seal(s *sealer) {
	pause := sealRetry
	retry := time.NewTimer(time.Hour)
	retry.Stop()
	defer retry.Stop()
	for {
		select {
		case <-s.wake:
		case <-retry.C:
		case <-d.ctx.Done():
			return
		}
		for more := true; more && d.ctx.Err() == nil; {
			var err error
			made := s.metrics.Checkpoints.Load()
			more, err = s.step()
			signal(s.stepped)
			if err == nil {
				if s.metrics.Checkpoints.Load() > made {
					pause = sealRetry
				}
				continue
			}
			if errors.Is(err, vfs.ErrNoSpace) {
				pause = max(pause, sealComplain) // each try may write much
			}
			if pause >= sealComplain {
				s.metrics.SealFailures.Add(1)
				s.logger.Error().Err(err).Msg("no checkpoint; it is tried again")
			}
			retry.Reset(pause)
			pause = min(2*pause, sealRetryMax)
		}
	}
}

// A pull that has failed is tried again after a pause that doubles.
const (
	pullRetry    = 100 * time.Millisecond
	pullRetryMax = 5 * time.Second
)

// pull brings segments as they are found to be missing.
func (d *drivers) pull(p *puller) {
	pause := pullRetry
	retry := time.NewTimer(0) // what is missing at the start
	defer retry.Stop()
	for {
		select {
		case <-p.wake:
		case <-retry.C:
		case <-d.ctx.Done():
			return
		}
		err := p.step(d.ctx)
		if err == nil || d.ctx.Err() != nil {
			pause = pullRetry
			continue
		}
		if pause > time.Second {
			p.logger.Warn().Err(err).Uint32("placement", p.group).Msg("segments do not come from other replicas yet")
		}
		retry.Reset(pause)
		pause = min(2*pause, pullRetryMax)
	}
}

// A write of keyed state that finds no room is tried again, and complained about,
// this often.
const (
	keyedRetry    = 200 * time.Millisecond
	keyedComplain = int(30 * time.Second / keyedRetry)
)

// pause waits a moment; it returns false when the group stops.
func (d *drivers) pause(g *Group, err error, tries int) bool {
	if tries%keyedComplain == 0 {
		g.cfg.Logger.Error().Err(err).Uint32("placement", g.cfg.ID).Msg("confirms wait until keyed state can be written")
	}
	wait := time.NewTimer(keyedRetry)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// sleep waits; it returns false when the group stops.
func (d *drivers) sleep(t time.Duration) bool {
	wait := time.NewTimer(t)
	defer wait.Stop()
	select {
	case <-wait.C:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// once runs fn on a goroutine that stop waits for.
func (d *drivers) once(fn func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.stopped {
		d.wg.Go(fn)
	}
}

// stop ends the goroutines, after the log has ended: what is in flight is
// answered, memberships end, mailboxes refuse what comes.
func (d *drivers) stop(g *Group) {
	g.prop.abandon()
	for _, s := range g.shards {
		s.ask(func() { s.unlead(errStopped) })
		s.box.close()
	}
	g.out.box.close()
	g.under.box.close()
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	if d.started {
		d.cancel()
	}
	d.wg.Wait()
}

// tick is called once a second.
func (g *Group) tick() {
	g.prop.tick()
	g.keepUp()
	g.disk.look()
	if g.sealer != nil {
		var settled int64
		for _, s := range g.shards {
			settled += s.settledSum.Load()
		}
		g.budget.look(g.machine.shown.Load().Segments(), settled)
	}
	switch {
	case g.sealer == nil || g.leading.Load() == 0:
	case g.disk.low.Load() && g.sealer.wasteful():
		g.sealer.ask()
	default:
		g.sealer.tend(g.clock.mono(), g.disk.room.Load(), g.disk.floor)
	}
	for _, s := range g.shards {
		s.post([]event{{kind: evTick}})
	}
}

// readiness lets others wait for the leadership.
type readiness struct {
	mu      sync.Mutex
	stopped bool
	leads   func() uint64 // term of the present leadership
	ch      chan struct{} // closed while ready
	on      bool
}

func (r *readiness) init(leads func() uint64) { r.ch, r.leads = make(chan struct{}), leads }

// set says that the leadership of a term serves, or with 0 that none does.
func (r *readiness) set(term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	on := term != 0 && r.leads() == term // else it is over already
	switch {
	case on == r.on || r.stopped:
		return
	case on:
		close(r.ch)
	default:
		r.ch = make(chan struct{})
	}
	r.on = on
}

// close ends all waiting, for ever.
func (r *readiness) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.stopped && !r.on {
		close(r.ch)
	}
	r.stopped, r.on = true, false
}

func (r *readiness) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stopped:
		return errStopped
	case !r.on:
		return errNotLeading
	}
	return nil
}

func (r *readiness) wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		ch := r.ch
		r.mu.Unlock()
		if err := r.err(); err != errNotLeading {
			return err
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
