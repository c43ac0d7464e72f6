package forward

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// line are publishes to topics on their way from the stream to the broker, which lets a
// publisher wait for live subscribers: what they have taken is read meanwhile, and all
// else. It keeps their order.
type line struct {
	session *session
	wake    chan struct{} // capacity 1
	bytes   atomic.Int64  // not given to the broker yet
	went    atomic.Uint64 // how many were, ever

	mu      sync.Mutex
	passed  *sync.Cond // on mu: went has grown, or nothing goes any more
	waiting atomic.Int32
	buf     []byte
	turns   []turn
	came    uint64 // how many, ever
	running bool
	idle    bool // run waits
	over    bool // nothing goes any more
}

// turn is a publish of n bytes.
type turn struct {
	f *feeder
	s *broker.Session // that was attached; nil = none
	n int
}

func (l *line) init(c *session) {
	l.session, l.wake = c, make(chan struct{}, 1)
	l.passed = sync.NewCond(&l.mu)
}

// add takes a publish.
func (l *line) add(f *feeder, s *broker.Session, body []byte) error {
	if n := l.bytes.Add(int64(len(body))); n > int64(len(body)) && n > 2*window {
		return fmt.Errorf("%w: more is published than may be under way", errMalformed)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, body...)
	l.turns = append(l.turns, turn{f, s, len(body)})
	l.came++
	if l.idle {
		l.idle = false
		l.wake <- struct{}{} // there is room: run waits for one
	}
	if !l.running {
		l.running = true
		l.session.work.Go(l.run)
	}
	return nil
}

// run gives what comes to the broker until the session ends.
func (l *line) run() {
	c := l.session
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
		l.passed.Broadcast()
	}()
	var buf []byte
	var turns []turn
	for {
		buf, turns = l.take(buf, turns)
		if len(turns) == 0 {
			return
		}
		rest, told := buf, 0
		for i := range turns {
			t := &turns[i]
			if c.ctx.Err() != nil {
				return
			}
			err := c.pressure.take(t.f, t.s, rest[:t.n:t.n])
			l.pass(t.n)
			if err != nil {
				c.fail(err)
				return
			}
			rest = rest[t.n:]
			if told += t.n; told >= sendSize {
				c.flushDue()
				told = 0
			}
		}
		c.flushDue()
	}
}

// take waits for publishes, and returns them; none is the end. It gets slices to use
// again.
func (l *line) take(buf []byte, turns []turn) ([]byte, []turn) {
	clear(turns)
	if cap(buf) > keepBuffer {
		buf, turns = nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.turns) == 0 {
		l.idle = true
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-l.session.ctx.Done():
		}
		l.mu.Lock()
		if l.session.ctx.Err() != nil {
			return nil, nil
		}
	}
	full, all := l.buf, l.turns
	l.buf, l.turns = buf[:0], turns[:0]
	return full, all
}

// pass notes that a publish has gone.
func (l *line) pass(n int) {
	l.bytes.Add(-int64(n))
	l.went.Add(1)
	if l.waiting.Load() > 0 {
		l.mu.Lock()
		l.passed.Broadcast()
		l.mu.Unlock()
	}
}

// mark returns what wait waits for.
func (l *line) mark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.came
}

// wait returns when what had come at mark has gone, or ctx or the session ends.
func (l *line) wait(ctx context.Context, mark uint64) {
	if l.went.Load() >= mark {
		return
	}
	defer context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.passed.Broadcast()
	})()
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.went.Load() < mark && !l.over && ctx.Err() == nil {
		l.passed.Wait()
	}
}
