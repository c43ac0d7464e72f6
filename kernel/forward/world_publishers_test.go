package forward

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// wpublisher publishes with confirms, and repeats what was refused, or is unknown, until
// it is confirmed.
type wpublisher struct {
	*wclient
	p     edge.Publisher
	done  *wdone
	n     uint64 // attempts so far
	again []*wmessage
	count int // messages so far
}

// wdone takes the outcomes of one edge.Publisher.
type wdone struct {
	c    *wclient
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	open   map[uint64]*wattempt
	again  []*wmessage
	closed bool
}

// Completed implements kernel.Completion.
func (d *wdone) Completed(token uint64, res kernel.Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.c.w.truth
	a := d.open[token]
	if a == nil || d.closed {
		t.Failf("%s: publish %d has an outcome that it must not have", d.c.id, token)
		return
	}
	delete(d.open, token)
	fate := fateOf(res.Err)
	t.tells(a, fate)
	d.c.w.trace("%s is told of %d: %v", d.c.id, token, res.Err)
	if fate != isConfirmed {
		d.again = append(d.again, a.of)
	}
}

// Flush implements kernel.Completion.
func (d *wdone) Flush() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func fateOf(err error) fate {
	switch {
	case err == nil:
		return isConfirmed
	case kernel.CodeOf(err) == kernel.CodeUnknown:
		return isUnknown
	}
	return isRefused
}

// publishes is a publisher's life.
func (w *world) publishes(name string, queues ...string) {
	w.client(name, func(c *wclient) {
		p := &wpublisher{wclient: c}
		p.open()
		window := 1 + c.rnd.IntN(30)
		for c.going() {
			switch {
			case p.underway() >= window:
				p.wait(time.Second)
			case c.rnd.IntN(400) == 0:
				p.reopen()
			default:
				p.publish(p.next(queues))
				if c.rnd.IntN(2) == 0 {
					c.pause(20 * time.Millisecond)
				}
			}
		}
		p.finish()
	})
}

// open begins with another connection.
func (p *wpublisher) open() {
	p.connect(-1)
	p.begin()
}

func (p *wpublisher) begin() {
	p.done = &wdone{c: p.wclient, wake: make(chan struct{}, 1), open: make(map[uint64]*wattempt)}
	p.p = p.conn.Publisher(p.done)
}

// reopen goes on with another publisher, or with another connection: what is under way
// has no outcome then.
func (p *wpublisher) reopen() {
	p.does("closes a publisher")
	all := p.rnd.IntN(2) == 0
	if p.rnd.IntN(2) == 0 {
		_ = p.p.Settle(context.Background())
	}
	p.p.Close()
	p.leave()
	if all {
		p.close()
		p.open()
		return
	}
	p.begin()
}

// leave forgets what a publisher that is closed had under way.
func (p *wpublisher) leave() {
	d := p.done
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	p.again = append(p.again, d.again...)
	for _, a := range d.open {
		p.w.truth.abandons(a)
		p.again = append(p.again, a.of)
	}
}

func (p *wpublisher) underway() int {
	p.done.mu.Lock()
	defer p.done.mu.Unlock()
	p.again = append(p.again, p.done.again...)
	p.done.again = nil
	return len(p.done.open)
}

func (p *wpublisher) wait(most time.Duration) {
	p.does("waits for outcomes")
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-p.done.wake:
	case <-timer.C:
	}
}

// next returns a message that is to be repeated, or another one.
func (p *wpublisher) next(queues []string) *wmessage {
	if n := len(p.again); n > 0 {
		m := p.again[0]
		p.again = p.again[1:]
		p.w.truth.count("repeated")
		return m
	}
	p.count++
	m := &wmessage{name: fmt.Sprintf("%s/%d", p.name, p.count), once: p.rnd.IntN(4) == 0}
	if m.queues = queues; p.rnd.IntN(3) > 0 {
		i := p.rnd.IntN(len(queues))
		m.queues = queues[i : i+1]
	}
	return m
}

// publish makes an attempt.
func (p *wpublisher) publish(m *wmessage) {
	p.n++
	a := p.w.truth.sends(m, fmt.Sprintf("%s#%s#%d", m.name, p.id, p.n), p.id)
	r := &kernel.Record{Key: []byte("k"), Headers: []kernel.Header{{Key: "attempt", Value: []byte(a.name)}}}
	if p.rnd.IntN(60) == 0 {
		r.Value = bytes.Repeat([]byte{'v'}, p.rnd.IntN(300<<10))
		p.w.truth.count("large")
	}
	opt := kernel.PublishOptions{Mandatory: p.rnd.IntN(10) == 0}
	if m.once {
		opt.ID = kernel.NewDedupID([]byte(m.name))
	}
	exchange, key := "", m.queues[0]
	if len(m.queues) > 1 {
		exchange, key = "all", "k"
	}
	p.done.mu.Lock()
	p.done.open[p.n] = a
	p.done.mu.Unlock()
	p.does("publishes %s", a.name)
	matched, err := p.p.ToExchange(exchange, key, r, opt, p.n)
	if err == nil && matched > 0 {
		return
	}
	p.done.mu.Lock()
	_, open := p.done.open[p.n]
	delete(p.done.open, p.n)
	p.done.mu.Unlock()
	if !open {
		p.w.truth.Failf("%s has an outcome and is refused: %d, %v", a.name, matched, err)
		return
	}
	if err == nil {
		p.w.truth.Failf("%s has no target", a.name)
	}
	p.w.truth.tells(a, fateOf(err))
	p.again = append(p.again, m)
	if code := kernel.CodeOf(err); code != kernel.CodePressure && code != kernel.CodeUnavailable && code != kernel.CodeUnknown {
		p.w.truth.Failf("%s: %v", a.name, err)
	}
	p.pause(10 * time.Millisecond)
}

// finish has all that the publisher has begun with confirmed.
func (p *wpublisher) finish() {
	for !p.w.truth.failed() {
		if p.underway() > 0 {
			p.wait(time.Second)
			continue
		}
		if len(p.again) == 0 {
			break
		}
		m := p.again[0]
		p.again = p.again[1:]
		if p.publish(m); len(p.again) > 0 {
			p.w.sleep(5 * time.Millisecond)
		}
	}
	p.p.Close()
	p.close()
}
