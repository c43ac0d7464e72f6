package broker

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// onces are the numbers under which the client of a session publishes messages
// that are to be stored once. A number is in use from the first publish under it
// until it is released; a publish under a used number is a repeat: nothing is
// stored or handed out, it has the outcome of the first. Those of a durable session
// are noted in the log, in the entry of the message, and outlive the process; the
// others are kept here only.
//
// It stands between the placement groups and the sinks of publishers: the
// connection that published may have been followed by another one that repeats.
type onces struct {
	b      *Broker
	mu     sync.Mutex
	over   bool     // it is not the session's any more
	holder *Session // may publish; nil: nobody
	name   string   // of the session in the log; empty: not there
	next   uint64   // count of the next use
	used   map[uint16]*use
	doubt  bool // the outcome of one is unknown: what is in the log must be read
	told   []*sink
}

// use is one use of a number.
type use struct {
	number  uint16
	count   uint64
	stored  bool // the log has it, or will
	done    bool
	matched int
	to      *sink // who wants to know the outcome
	token   uint64
}

// readOnces brings a session's numbers up to what is in the log. durable says that
// they are to be kept there; present that those there are are the session's.
func (e *sessionEntry) readOnces(ctx context.Context, durable, present bool) error {
	g, name := e.t.b.durable, kernel.SessionName(e.t.name, e.id)
	if !present {
		if err := e.forgetNumbers(ctx); err != nil {
			return err
		}
		e.retireOnces()
	}
	if !durable {
		name = ""
	}
	if e.onces != nil && !e.onces.doubted() {
		return nil
	}
	o := &onces{b: e.t.b, name: name, next: 1, used: make(map[uint16]*use)}
	if durable && present {
		used, high, err := g.Used(ctx, name)
		if err != nil {
			return err
		}
		for number, count := range used {
			o.used[number] = &use{number: number, count: count, stored: true, done: true, matched: 1}
		}
		o.next = high + 1
	}
	e.retireOnces()
	e.t.b.numbers.Add(int64(len(o.used)))
	e.onces = o
	return nil
}

// adopt notes numbers that are in use of which an earlier broker knew. There are no more
// than a session may have.
func (o *onces) adopt(numbers []uint16) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range numbers {
		if o.used[n] != nil || len(o.used) >= o.b.limits.Numbers {
			continue
		}
		o.used[n] = &use{number: n, count: o.next, done: true, matched: 1}
		o.next++
		if !o.over {
			o.b.numbers.Add(1)
		}
	}
}

// retireOnces takes the numbers of a session out of the account of the node.
func (e *sessionEntry) retireOnces() {
	o := e.onces
	if e.onces = nil; o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.over {
		o.over = true
		o.b.numbers.Add(-int64(len(o.used)))
	}
}

// room says whether one more number may be used. mu is held.
func (o *onces) room(h *Session) error {
	switch limits := &o.b.limits; {
	case len(o.used) >= limits.Numbers:
		return kernel.Errorf(kernel.CodeLimit, "session", h.s.id, "the session has %d publishes that it has not released", len(o.used))
	case o.b.numbers.Load() >= int64(limits.AllNumbers):
		return kernel.Errorf(kernel.CodeLimit, "session", h.s.id, "the sessions of the node have too many publishes that they have not released")
	}
	return nil
}

func (o *onces) doubted() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.doubt
}

// hold lets a session's holder publish, nil nobody.
func (o *onces) hold(h *Session) {
	o.mu.Lock()
	o.holder = h
	o.mu.Unlock()
}

// begin takes a number into use. u is nil for a repeat: its outcome is told to the
// sink, or has been.
func (o *onces) begin(h *Session, number uint16, to *sink, token uint64) (u *use, matched int, err error) {
	o.mu.Lock()
	if o.holder != h {
		o.mu.Unlock()
		return nil, 0, kernel.Errorf(kernel.CodeFenced, "session", h.s.id, "another connection has taken it")
	}
	u = o.used[number]
	if u == nil {
		if err := o.room(h); err != nil {
			o.mu.Unlock()
			return nil, 0, err
		}
		u = &use{number: number, count: o.next, to: to, token: token}
		o.next++
		o.used[number] = u
		if !o.over {
			o.b.numbers.Add(1)
		}
		o.mu.Unlock()
		return u, 0, nil
	}
	if !u.done {
		u.to, u.token = to, token
		o.mu.Unlock()
		return nil, 1, nil
	}
	matched = u.matched
	o.mu.Unlock()
	to.Completed(token, kernel.Result{Offset: -1})
	to.Flush()
	return nil, matched, nil
}

// cancel frees a number whose publish was refused: nothing of it is there.
func (o *onces) cancel(u *use) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(u)
}

// drop frees a number if it is still in that use. mu is held.
func (o *onces) drop(u *use) {
	if o.used[u.number] == u {
		delete(o.used, u.number)
		if !o.over {
			o.b.numbers.Add(-1)
		}
	}
}

// key is what a use is completed under.
func (u *use) key() uint64 { return u.count<<16 | uint64(u.number) }

// Completed implements kernel.Completion.
func (o *onces) Completed(key uint64, res kernel.Result) {
	o.mu.Lock()
	u := o.used[uint16(key)]
	if u == nil || u.key() != key {
		o.mu.Unlock()
		return
	}
	u.done = true
	switch {
	case res.Err == nil:
	case kernel.CodeOf(res.Err) == kernel.CodeUnknown:
		o.doubt = true // the next connection finds out
	default:
		o.drop(u)
	}
	to, token := u.to, u.token
	if !slices.Contains(o.told, to) {
		o.told = append(o.told, to)
	}
	o.mu.Unlock()
	to.Completed(token, res)
}

// Flush implements kernel.Completion.
func (o *onces) Flush() {
	o.mu.Lock()
	told := o.told
	o.told = nil
	o.mu.Unlock()
	for _, to := range told {
		to.Flush()
	}
}

// ToTopicOnce is ToTopic for a message that is stored once: published again under a
// number of the session that has not been released (Session.Release), by this
// connection or a later one, it has the outcome of the first time and nothing else
// happens. CodeFenced: another connection has taken the session. CodeLimit: the session
// has too many numbers that it has not released.
func (p *Publisher) ToTopicOnce(h *Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error) {
	o := h.onces
	u, matched, err := o.begin(h, number, p.sink, token)
	if err != nil {
		return 0, err
	}
	if u == nil {
		p.sent++
		return matched, nil
	}
	p.uses, p.use = o, u
	matched, err = p.ToTopic(name, r, u.key())
	p.uses, p.use = nil, nil
	if err != nil {
		o.cancel(u)
		return 0, err
	}
	o.mu.Lock()
	u.matched = matched
	o.mu.Unlock()
	return matched, nil
}

// outcome is who is told what becomes of the publish under way.
func (p *Publisher) outcome() kernel.Completion {
	if p.uses != nil {
		return p.uses
	}
	return p.sink
}

// append appends the record of the publish under way to one leg.
func (p *Publisher) append(l *leg, r *kernel.Record, done kernel.Completion, token uint64) error {
	if p.uses == nil && p.id == (kernel.DedupID{}) {
		return l.group.Append(l.set, r, done, token)
	}
	return l.group.AppendOnce(l.set, r, p.once(l.group), done, token)
}

// once is what the publish under way is recognised by in a placement group.
func (p *Publisher) once(g *placement.Group) kernel.Once {
	if p.uses == nil || p.uses.name == "" || g != p.conn.b.durable {
		return kernel.Once{ID: p.id, Whole: p.uses != nil}
	}
	p.use.stored = true // only the publisher's goroutine looks before it is done
	return kernel.Once{Session: p.uses.name, Number: p.use.number, Count: p.use.count, ID: p.id}
}

// Release frees numbers whose publishes have been answered: they may be used again.
// done is called exactly once, perhaps from within the call, else from a kernel
// goroutine, which it must not hold up: when the numbers are free, through a crash
// of the node as well, or it could not be done (CodeFenced: another connection has
// taken the session; CodeUnavailable; CodeUnknown). unknown are those that were
// not in use. Releasing twice does no harm.
func (h *Session) Release(numbers []uint16, done func(unknown []uint16, err error)) {
	o := h.onces
	f := &freeing{onces: o, done: done}
	var stored []uint16
	o.mu.Lock()
	if o.holder != h {
		o.mu.Unlock()
		done(nil, kernel.Errorf(kernel.CodeFenced, "session", h.s.id, "another connection has taken it"))
		return
	}
	for _, n := range numbers {
		u := o.used[n]
		if u == nil || !u.done {
			f.unknown = append(f.unknown, n)
			continue
		}
		f.uses = append(f.uses, u)
		if u.stored {
			stored = append(stored, n)
		}
	}
	name := o.name
	o.mu.Unlock()
	if len(stored) == 0 || name == "" {
		f.Completed(0, kernel.Result{})
		return
	}
	if err := h.conn.b.durable.ReleaseOnce(name, stored, f, 0); err != nil {
		done(nil, err)
	}
}

// freeing is a Release on its way.
type freeing struct {
	onces   *onces
	uses    []*use
	unknown []uint16
	done    func([]uint16, error)
}

// Completed implements kernel.Completion.
func (f *freeing) Completed(_ uint64, res kernel.Result) {
	if res.Err == nil {
		f.onces.mu.Lock()
		for _, u := range f.uses {
			f.onces.drop(u)
		}
		f.onces.mu.Unlock()
	}
	f.done(f.unknown, res.Err)
}

// Flush implements kernel.Completion.
func (f *freeing) Flush() {}

// dropNumbers forgets the numbers of sessions that are not there: a crash came
// before they were.
func (l *loader) dropNumbers() error {
	for _, name := range l.b.durable.Sessions() { // of the volatile group nothing is left
		tenant, client, _ := strings.Cut(name, "\x00")
		if t, ok := l.b.tenant(tenant); ok && t.sessions[client] != nil {
			continue
		}
		if err := l.b.durable.ForgetSession(l.ctx, name); err != nil {
			return err
		}
	}
	return nil
}
