package raftgroup

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// Propose hands a command to the log. Success is seen by Machine.Apply. If
// there is none, failed is called once, from a goroutine of the group, with an
// error matching ErrNotApplied or ErrUnknown. Proposals of one caller are
// appended in their order. The data must not change any more. Once Close has
// returned, failed is called by Propose itself.
//
// There is no queue worth the name in here: whoever proposes bounds what is
// outstanding, by bytes.
func (g *Group) Propose(data []byte, failed func(error)) {
	g.gate.RLock()
	defer g.gate.RUnlock()
	o := outcome{failed: failed}
	if !g.stopped {
		g.inflight.Add(1)
		o.future = g.raft.Load().Apply(data, 0)
	}
	if !g.collector.put(o) {
		failed(ErrNotApplied)
	}
}

// outcome is a proposal whose result is awaited.
type outcome struct {
	future raft.Future // nil: not proposed at all
	failed func(error)
}

// collector waits for outcomes, which come in the order of the log.
type collector struct {
	mu     sync.Mutex
	cond   sync.Cond
	queue  []outcome
	closed bool
	done   chan struct{}
}

func (c *collector) start(inflight *sync.WaitGroup) {
	c.cond.L = &c.mu
	c.done = make(chan struct{})
	go c.run(inflight)
}

func (c *collector) put(o outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.queue = append(c.queue, o)
	c.cond.Signal()
	return true
}

func (c *collector) run(inflight *sync.WaitGroup) {
	defer close(c.done)
	var batch []outcome
	for {
		c.mu.Lock()
		for len(c.queue) == 0 && !c.closed {
			c.cond.Wait()
		}
		batch, c.queue = c.queue, batch[:0]
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, o := range batch {
			if o.future == nil {
				o.failed(ErrNotApplied)
				continue
			}
			if err := classify(o.future.Error()); err != nil {
				o.failed(err)
			}
			inflight.Done()
		}
		clear(batch)
	}
}

func (c *collector) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cond.Signal()
	<-c.done
}

// classify tells the errors that prove that nothing was appended from those
// that prove nothing.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrEnqueueTimeout),
		errors.Is(err, errTerm),
		(errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, vfs.ErrNoFiles)) && !errors.Is(err, wal.ErrFailed):
		return fmt.Errorf("%w: %w", ErrNotApplied, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// call runs something that takes the library a while, and waits for it or for
// the context, whichever ends first.
func (g *Group) call(ctx context.Context, begin func(*raft.Raft) raft.Future) error {
	g.gate.RLock()
	if g.stopped {
		g.gate.RUnlock()
		return ErrClosed
	}
	f := begin(g.raft.Load())
	result := make(chan error, 1)
	g.inflight.Go(func() { result <- f.Error() })
	g.gate.RUnlock()
	select {
	case err := <-result:
		return classify(err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Barrier returns when everything that was committed before has been applied.
// Only the leader can tell.
func (g *Group) Barrier(ctx context.Context) error {
	return g.call(ctx, func(r *raft.Raft) raft.Future { return r.Barrier(0) })
}

// TransferLeadership hands the leadership to a caught-up voter, and returns
// when this node no longer leads. Meanwhile proposals get ErrNotApplied.
func (g *Group) TransferLeadership(ctx context.Context) error {
	return g.transfer(ctx, (*raft.Raft).LeadershipTransfer)
}

// transfer gives the leadership away. There is no lease until that is over, whatever
// becomes of the context.
func (g *Group) transfer(ctx context.Context, begin func(*raft.Raft) raft.Future) error {
	return g.call(ctx, func(r *raft.Raft) raft.Future {
		g.lease.suspend()
		return handover{begin(r), g.lease}
	})
}

// handover is the future of a transfer.
type handover struct {
	raft.Future
	lease *lease
}

func (h handover) Error() error {
	defer h.lease.resume()
	return h.Future.Error()
}

// TransferLeadershipTo hands the leadership to the voter of that id, and returns when
// this node no longer leads. Meanwhile proposals get ErrNotApplied.
func (g *Group) TransferLeadershipTo(ctx context.Context, serverID string) error {
	for _, s := range g.Servers() {
		if s.ID == serverID && !s.Learner {
			return g.transfer(ctx, func(r *raft.Raft) raft.Future {
				return r.LeadershipTransferToServer(raft.ServerID(s.ID), raft.ServerAddress(s.Address))
			})
		}
	}
	return fmt.Errorf("raftgroup: transfer: %q is no voter of group %d", serverID, g.cfg.Group.ID())
}

// VerifyLeader proves that this node led when it was called, by asking a
// majority. Calls that come together share one question.
func (g *Group) VerifyLeader(ctx context.Context) error {
	done := make(chan error, 1)
	if !g.verifier.ask(done) {
		return ErrClosed
	}
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// verifier asks for all who wait, one question at a time.
type verifier struct {
	mu      sync.Mutex
	cond    sync.Cond
	waiting []chan<- error
	closed  bool
	done    chan struct{}
}

func (v *verifier) start(g *Group) {
	v.cond.L = &v.mu
	v.done = make(chan struct{})
	go v.run(g)
}

// ask adds one who waits; done must have room for the answer.
func (v *verifier) ask(done chan<- error) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return false
	}
	v.waiting = append(v.waiting, done)
	v.cond.Signal()
	return true
}

func (v *verifier) run(g *Group) {
	defer close(v.done)
	for {
		v.mu.Lock()
		for len(v.waiting) == 0 && !v.closed {
			v.cond.Wait()
		}
		waiting := v.waiting
		v.waiting = nil
		v.mu.Unlock()
		if len(waiting) == 0 {
			return
		}
		err := g.verifyOnce()
		for _, w := range waiting {
			w <- err
		}
	}
}

func (g *Group) verifyOnce() error {
	g.gate.RLock()
	if g.stopped {
		g.gate.RUnlock()
		return raft.ErrNotLeader
	}
	g.inflight.Add(1)
	f := g.raft.Load().VerifyLeader()
	g.gate.RUnlock()
	defer g.inflight.Done()
	return f.Error()
}

func (v *verifier) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.cond.Signal()
	<-v.done
}
