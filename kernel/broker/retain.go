package broker

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/retain"
)

const (
	// sweepPause is the least time between two looks for expired messages, so
	// that they go many at a time, and sweepRetry that after a failure.
	sweepPause = time.Second
	sweepRetry = 5 * time.Second
	// sweepBatch is how many go with one command.
	sweepBatch = 512
	// flightWait bounds the wait of a subscriber for publishes under way.
	flightWait = 5 * time.Second
)

// retained is what is retained on a node. The messages are keyed state of the
// durable placement group; the indexes follow what is written there, so that the
// value of a topic is that of its last publish in the order of the log.
type retained struct {
	b      *Broker
	budget *retain.Budget
	flight flights

	mu      sync.RWMutex
	tenants map[string]*retain.Index

	follows atomic.Bool // before, what the log brings back is not looked at: load reads it all

	sweepMu   sync.Mutex
	started   bool // the broker is open
	sweepAt   time.Time
	stopSweep func()
}

func newRetained(b *Broker, memory int64) *retained {
	return &retained{b: b, budget: retain.NewBudget(memory), tenants: make(map[string]*retain.Index)}
}

// of returns the index of a tenant.
func (s *retained) of(tenant string) *retain.Index {
	s.mu.RLock()
	x := s.tenants[tenant]
	s.mu.RUnlock()
	if x != nil {
		return x
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if x = s.tenants[tenant]; x == nil {
		x = retain.NewIndex(s.budget)
		s.tenants[tenant] = x
	}
	return x
}

// wrote follows the keyed writes of the placement group, in their order.
func (s *retained) wrote(index uint64, written []placement.KV) {
	if !s.follows.Load() {
		return
	}
	for _, e := range written {
		if !retain.Ours(e.Key) {
			continue
		}
		tenant, topic, err := retain.ParseKey(e.Key)
		if err != nil {
			s.b.log.Error().Err(err).Msg("a retained message cannot be read")
			continue
		}
		switch x := s.of(tenant); {
		case e.Value != nil:
			s.expireAt(x.Put(topic, e.Value, index))
		case e.UpTo > 0:
			x.Delete(topic, e.UpTo)
		default:
			x.Delete(topic, math.MaxUint64)
		}
	}
}

// load fills the indexes. Nobody is connected yet.
func (s *retained) load() error {
	s.follows.Store(true)
	err := s.b.durable.IterateAt(retain.Prefix(), func(key, value []byte, index uint64) error {
		tenant, topic, err := retain.ParseKey(key)
		if err != nil {
			return err
		}
		s.of(tenant).Put(topic, value, index)
		return nil
	})
	if err != nil {
		return fmt.Errorf("load retained messages: %w", err)
	}
	return nil
}

// count is the number of all retained messages.
func (s *retained) count() (n int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, x := range s.tenants {
		n += x.Len()
	}
	return n
}

// put returns the keyed write that retains r under a name, or removes what is
// retained there if r is empty. CodeInvalidName, CodeLimit, CodeTooLarge.
func (s *retained) put(tenant, name string, r *kernel.Record) (kv placement.KV, err error) {
	if err := retain.CheckTopic(name); err != nil {
		return kv, err
	}
	kv.Key = retain.Key(tenant, name)
	if len(r.Value) == 0 {
		return kv, nil
	}
	kv.Value = retain.Append(nil, r)
	x, limits := s.of(tenant), &s.b.limits
	old, there := x.Size(name)
	if !there && x.Len() >= limits.Retained {
		return kv, kernel.Errorf(kernel.CodeLimit, "topic", name, "the tenant has %d retained messages already", limits.Retained)
	}
	if more := int64(len(name) + len(kv.Value) - old); more > 0 && x.Bytes()+more > limits.RetainedBytes {
		return kv, kernel.Errorf(kernel.CodeLimit, "topic", name, "the retained messages of the tenant may take %d bytes", limits.RetainedBytes)
	}
	return kv, nil
}

// expireAt has a look at expired messages taken at that time (ms since 1970, 0 =
// never).
func (s *retained) expireAt(ms int64) {
	if ms == 0 {
		return
	}
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	s.armLocked(time.UnixMilli(ms))
}

// armLocked sets the timer, unless it is set for an earlier time.
func (s *retained) armLocked(at time.Time) {
	if !s.started || !s.sweepAt.IsZero() && !at.Before(s.sweepAt) {
		return
	}
	if s.stopSweep != nil {
		s.stopSweep()
	}
	s.sweepAt = at
	s.stopSweep = s.b.after(max(at.Sub(s.b.now()), sweepPause), s.sweep)
}

// start begins to look for expired messages.
func (s *retained) start() {
	s.sweepMu.Lock()
	defer s.sweepMu.Unlock()
	s.started = true
	s.armLocked(s.b.now())
}

// sweep removes what has expired.
func (s *retained) sweep() {
	s.mu.RLock()
	all := make(map[string]*retain.Index, len(s.tenants))
	for tenant, x := range s.tenants {
		all[tenant] = x
	}
	s.mu.RUnlock()
	s.sweepMu.Lock()
	s.sweepAt = time.Time{} // what comes from here on arms it anew
	s.sweepMu.Unlock()
	var next int64
	for tenant, x := range all {
		at, err := s.sweepTenant(tenant, x)
		if err != nil {
			at = s.b.now().Add(sweepRetry).UnixMilli()
			if s.b.ctx.Err() == nil {
				s.b.log.Warn().Err(err).Msg("expired retained messages could not be removed")
			}
		}
		if at != 0 && (next == 0 || at < next) {
			next = at
		}
	}
	s.expireAt(next)
}

// sweepTenant removes what has expired in one tenant and returns when the next
// message does, 0 = none.
func (s *retained) sweepTenant(tenant string, x *retain.Index) (next int64, err error) {
	for {
		list, next := x.Expire(s.b.now().UnixMilli(), sweepBatch)
		if len(list) == 0 {
			return next, nil
		}
		gone := make([]placement.KV, len(list))
		for i, e := range list {
			gone[i] = placement.KV{Key: retain.Key(tenant, e.Name), UpTo: e.Index}
		}
		ctx, cancel := s.b.changeContext()
		err := s.b.durable.Put(ctx, gone)
		cancel()
		if err != nil {
			for _, e := range list {
				x.Again(e)
			}
			return 0, err
		}
	}
}

// keeping are the keyed writes that go with a publish.
type keeping struct {
	retain bool // one is to retain the message
	puts   []placement.KV
	gen    uint64 // of the publish among those under way
	taken  bool   // the outcome will be told
}

// Retain is ToTopic for a message that is retained under the name as well, in
// place of the one that was; an empty one only removes that. The outcome comes
// when both are durable. Errors as for ToTopic, CodeInvalidName for a name under
// which nothing can be retained, and CodeLimit.
func (p *Publisher) Retain(name string, r *kernel.Record, token uint64) (matched int, err error) {
	return p.keep(&keeping{retain: true}, func() (int, error) { return p.ToTopic(name, r, token) })
}

// RetainOnce is Retain as ToTopicOnce publishes.
func (p *Publisher) RetainOnce(h *Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error) {
	return p.keep(&keeping{retain: true}, func() (int, error) { return p.ToTopicOnce(h, number, name, r, token) })
}

// RetainAt is ToExchange for a message that is retained as well, under the name
// that its key means at ExchangeTopic; at another exchange: CodeInvalid. A mandatory
// one that nobody gets is not retained.
func (p *Publisher) RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error) {
	if exchange != kernel.ExchangeTopic {
		return 0, kernel.Errorf(kernel.CodeInvalid, "exchange", exchange, "only messages to '%s' can be retained", kernel.ExchangeTopic)
	}
	return p.keep(&keeping{retain: true}, func() (int, error) { return p.ToExchange(exchange, key, r, opt, token) })
}

// keep publishes with keyed writes.
func (p *Publisher) keep(k *keeping, publish func() (int, error)) (matched int, err error) {
	flight := &p.conn.b.retained.flight
	k.gen = flight.begin() // before it is routed: see flights
	p.keeps = k
	matched, err = publish()
	p.keeps = nil
	if !k.taken {
		flight.end(k.gen)
	}
	return matched, err
}

// sendKeyed is send of a publish with keyed writes.
func (p *Publisher) sendKeyed(to *plan, r *kernel.Record, token uint64) (int, error) {
	b, k := p.conn.b, p.keeps
	puts := k.puts
	if k.retain {
		put, err := b.retained.put(p.conn.tenant.name, to.name, r)
		if err != nil {
			return 0, err
		}
		puts = append(puts, put)
	}
	legs := to.legs
	if to.spread != nil && string(r.Key) != to.key {
		legs = b.legs(to.spread, r.Key)
	}
	done := &retaining{to: p.outcome(), flight: &b.retained.flight, gen: k.gen}
	if err := p.storeKeyed(legs, r, puts, done, token); err != nil {
		return 0, err
	}
	k.taken = true
	p.sent++
	p.conn.counters.Received(1, len(r.Value))
	if len(to.live) > 0 {
		p.live = kernel.LiveMessage{Name: to.name, Record: r, Origin: p.conn.id}
		p.conn.feed(to.live, &p.live)
		p.live = kernel.LiveMessage{}
	}
	return to.matched, nil
}

// storeKeyed appends to all legs, and makes the keyed writes with the durable one;
// without it there is an entry for them alone.
func (p *Publisher) storeKeyed(legs []leg, r *kernel.Record, puts []placement.KV, done kernel.Completion, token uint64) error {
	durable := p.conn.b.durable
	if err := durable.Wait(p.conn.stop); err != nil {
		return err
	}
	var set *placement.TargetSet
	var others []leg
	for _, l := range legs {
		if l.group == durable {
			set = l.set
			continue
		}
		if err := l.group.Wait(p.conn.stop); err != nil {
			return err
		}
		others = append(others, l)
	}
	var once kernel.Once
	if set != nil {
		once = p.once(durable)
	}
	if err := p.room(others, r); err != nil {
		return err
	}
	if len(others) == 0 {
		return durable.AppendKeyed(set, r, puts, once, done, token)
	}
	j := &join{sink: done, token: token, left: 1 + len(others)}
	if err := durable.AppendKeyed(set, r, puts, once, j, 0); err != nil {
		return err
	}
	for _, l := range others {
		if err := p.append(&l, r, j, 0); err != nil {
			j.Completed(0, kernel.Result{Err: err})
			j.Flush()
		}
	}
	return nil
}

// retaining is the completion of a publish that is noted as under way.
type retaining struct {
	to     kernel.Completion
	flight *flights
	gen    uint64
}

// Completed implements kernel.Completion.
func (d *retaining) Completed(token uint64, res kernel.Result) {
	d.flight.end(d.gen)
	d.to.Completed(token, res)
}

// Flush implements kernel.Completion.
func (d *retaining) Flush() { d.to.Flush() }
