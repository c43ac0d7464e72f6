package forward

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// pool implements edge.Pool. The other end forgets it when nobody has it any more.
type pool struct {
	link *link
	id   uint64
}

// NewPool implements edge.Link.
func (l *link) NewPool(limit int) edge.Pool {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	p := &pool{l, l.nextID()}
	l.number(kindPool, p.id, int64(limit))
	letLater(p, l, kindUnpool, p.id)
	return p
}

func (p *pool) send(k kind, n int) {
	p.link.out.mu.Lock()
	defer p.link.out.mu.Unlock()
	p.link.number(k, p.id, int64(n))
}

// SetLimit implements edge.Pool.
func (p *pool) SetLimit(n int) { p.send(kindPoolLimit, n) }

// Add implements edge.Pool.
func (p *pool) Add(n int) { p.send(kindPoolAdd, n) }

// Put implements edge.Pool.
func (p *pool) Put(n int) { p.send(kindPoolPut, n) }

// member implements edge.Member. What comes for it is handed to the consumer as far as
// that has credit, and admits it; the rest waits. Nothing has to be told about that: what
// waits counts as handed out at the broker, and what a consumer takes back of its credit
// while it waits is made up for there by the credit that comes next.
type member struct {
	link     *link
	id       uint64
	kind     kernel.QueueType
	volatile bool
	auto     bool
	to       kernel.Consumer // nil = none
	large    kernel.Admitter // nil = it is not asked
	of       *attached       // whose it is; nil = it has joined by itself

	calls sync.Mutex // held while the consumer is called

	// guarded by link.out.mu
	credit  int
	granted bool // since the consumer was offered something last
	waits   []kernel.Delivery
	handing bool // a goroutine hands out what waits
	over    bool // nothing is handed out any more
	left    bool // it is not told of its end
	pins    int  // outcomes that are to come
}

// Join implements edge.Link.
func (l *link) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, under edge.Pool, to kernel.Consumer) (edge.Member, error) {
	m := &member{link: l, to: to, auto: opt.AutoSettle}
	m.large, _ = to.(kernel.Admitter)
	bound := uint64(0)
	if under != nil {
		p, mine := under.(*pool)
		if !mine || p.link != l {
			return nil, kernel.Errorf(kernel.CodeInternal, "", "", "a member cannot be under a pool of another link")
		}
		bound = p.id
	}
	l.out.mu.Lock()
	m.id = l.nextID()
	l.members[m.id] = m
	l.out.mu.Unlock()
	err := l.call(ctx, methodJoin, func(b []byte) []byte {
		b = codec.AppendUint(codec.AppendUint(b, m.id), bound)
		b = appendMemberOptions(appendAddress(b, &addr), &opt)
		return codec.AppendFlags(b, to != nil)
	}, func(r *reader) { m.kind = kernel.QueueType(r.Byte()); r.Flags(&m.volatile) }, m.leaveLater)
	runtime.KeepAlive(under)
	if err != nil {
		m.forget()
		return nil, err
	}
	return m, nil
}

// leaveLater leaves a group that nobody waited for.
func (m *member) leaveLater() {
	l := m.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if !l.broken {
		l.work.Go(m.Leave)
	}
}

func (m *member) forget() {
	l := m.link
	l.out.mu.Lock()
	m.over, m.left, m.waits = true, true, nil
	delete(l.members, m.id)
	l.out.mu.Unlock()
}

// Type implements edge.Member.
func (m *member) Type() kernel.QueueType { return m.kind }

// Volatile implements edge.Member.
func (m *member) Volatile() bool { return m.volatile }

// Credit implements edge.Member.
func (m *member) Credit(n int) {
	if n == 0 {
		return
	}
	l := m.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	m.credit += n
	l.number(kindCredit, m.id, int64(n))
	if n > 0 {
		m.granted = true
		m.resume()
	}
}

// resume has what waits handed out, on a goroutine of its own: whoever gives credit may
// not be called. The caller holds out.mu.
func (m *member) resume() {
	if !m.handing && !m.over && m.credit > 0 && len(m.waits) > 0 && !m.link.broken {
		m.handing = true
		m.link.work.Go(m.handOut)
	}
}

// Settle implements edge.Member.
func (m *member) Settle(o kernel.Outcome, partition int32, first, last int64) {
	if first > last {
		return
	}
	l := m.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.number(kindSettle, m.id, int64(o), int64(partition), first, last-first)
	if o != kernel.Release {
		l.traffic.Settled.Add(uint64(last-first) + 1)
	}
}

// onDeliver hands out what has come.
func (l *link) onDeliver(r *reader) error {
	id := r.Uint()
	if err := l.batch.read(r); err != nil {
		return err
	}
	l.out.mu.Lock()
	m := l.members[id]
	l.out.mu.Unlock()
	if m != nil && m.to != nil && len(l.batch.batch) > 0 {
		m.deliver(l.batch.batch, l.batch.bytes)
	}
	l.batch.reset()
	return nil
}

// deliver hands out a batch of so many bytes, as far as possible now.
func (m *member) deliver(batch []kernel.Delivery, bytes int) {
	m.calls.Lock()
	defer m.calls.Unlock()
	o := &m.link.out
	o.mu.Lock()
	n := 0
	switch {
	case m.over: // those who left or stopped get nothing
		m.giveBack(batch)
		o.mu.Unlock()
		return
	case len(m.waits) == 0:
		n = max(min(m.credit, len(batch)), 0)
	}
	m.keep(batch[n:])
	m.credit -= n
	m.granted = false
	o.mu.Unlock()
	if n == 0 {
		return
	}
	if n < len(batch) {
		bytes = sizeOf(batch[:n])
	}
	if m.offer(batch[:n], bytes) {
		return
	}
	o.mu.Lock()
	m.credit += n
	later := m.waits
	m.waits = nil
	m.keep(batch[:n])
	m.waits = append(m.waits, later...)
	if m.granted {
		m.resume()
	}
	o.mu.Unlock()
}

func sizeOf(batch []kernel.Delivery) (n int) {
	for i := range batch {
		n += batch[i].Record.Size
	}
	return n
}

// keep copies what has to wait. The caller holds out.mu.
func (m *member) keep(batch []kernel.Delivery) {
	for _, d := range batch {
		d.Record = d.Record.Clone()
		m.waits = append(m.waits, d)
	}
}

// offer calls the consumer, which may refuse. The caller holds m.calls.
func (m *member) offer(batch []kernel.Delivery, bytes int) bool {
	if bytes >= kernel.LargeDelivery && m.large != nil && !m.large.Admit(len(batch), bytes) {
		return false
	}
	m.link.traffic.Delivered(batch, m.auto)
	m.to.Deliver(batch)
	return true
}

// batchBytes is about how much is handed out at once.
const batchBytes = 1 << 20

// handOut hands out what waits while there is credit.
func (m *member) handOut() {
	m.calls.Lock()
	defer m.calls.Unlock()
	o := &m.link.out
	o.mu.Lock()
	defer o.mu.Unlock()
	for !m.over && m.credit > 0 && len(m.waits) > 0 {
		n, bytes := 0, 0
		for n < min(m.credit, len(m.waits)) && (n == 0 || bytes+m.waits[n].Record.Size <= batchBytes) {
			bytes += m.waits[n].Record.Size
			n++
		}
		batch := m.waits[:n:n]
		m.credit -= n
		m.granted = false
		o.mu.Unlock()
		taken := m.offer(batch, bytes)
		o.mu.Lock()
		if taken {
			clear(batch)
			if m.waits = m.waits[min(n, len(m.waits)):]; len(m.waits) == 0 {
				m.waits = nil
			}
			continue
		}
		if m.credit += n; !m.granted {
			break
		}
	}
	m.handing = false
}

// giveBack releases what nobody will get. The caller holds out.mu.
func (m *member) giveBack(batch []kernel.Delivery) {
	if m.auto || m.left {
		return
	}
	for i := range batch {
		m.link.number(kindSettle, m.id, int64(kernel.Release), int64(batch[i].Partition), batch[i].Offset, 0)
	}
}

// onEnded tells a consumer that its membership is over.
func (l *link) onEnded(r *reader) error {
	id, reason := r.Uint(), r.error()
	if err := r.done(kindEnded); err != nil {
		return err
	}
	l.out.mu.Lock()
	m := l.members[id]
	l.out.mu.Unlock()
	if m == nil || m.to == nil {
		return nil
	}
	m.calls.Lock()
	defer m.calls.Unlock()
	l.out.mu.Lock()
	tell := !m.left
	m.over, m.waits = true, nil
	delete(l.live.feeds, id)
	l.out.mu.Unlock()
	if tell {
		m.to.Ended(reason)
	}
	return nil
}

// Pool implements edge.Member. The pool counts all that was ever handed out to the
// member as held by it until held has been asked here, a moment later.
func (m *member) Pool(under edge.Pool, held func() int) {
	p, mine := under.(*pool)
	if !mine || p.link != m.link {
		return
	}
	_ = m.link.call(context.Background(), methodPool, func(b []byte) []byte {
		return codec.AppendUint(codec.AppendUint(b, m.id), p.id)
	}, func(r *reader) {
		pooled, counted := r.flag(), int(r.Int())
		if r.Err() != nil || !pooled {
			return
		}
		m.calls.Lock() // nothing is handed out meanwhile
		defer m.calls.Unlock()
		n := held()
		m.link.out.mu.Lock()
		n += len(m.waits)
		m.link.out.mu.Unlock()
		p.Put(counted - n)
	}, nil)
	runtime.KeepAlive(p)
}

// Acquire implements edge.Member. A consumer that admits is asked here, for what lies
// ready there: it may be asked again, for more bytes, if that has changed meanwhile.
func (m *member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	limit := int64(math.MaxInt64)
	if m.large != nil {
		limit = kernel.LargeDelivery - 1
	}
	for {
		records, bytes := 0, int64(0)
		err := m.link.call(context.Background(), methodAcquire, func(b []byte) []byte {
			return codec.AppendInt(codec.AppendInt(codec.AppendUint(b, m.id), int64(max)), limit)
		}, func(r *reader) {
			if !r.flag() {
				records, bytes = r.int(), r.Int()
				return
			}
			ready := r.Int()
			if m.link.batch.read(r) == nil {
				m.link.traffic.Delivered(m.link.batch.batch, m.auto)
				fn(m.link.batch.batch, ready)
			}
			m.link.batch.reset()
		}, nil)
		if err != nil || bytes <= limit {
			return err
		}
		if !m.large.Admit(records, int(bytes)) {
			return nil
		}
		limit = bytes
	}
}

// Stop implements edge.Member. What has come and could not be handed out goes back to
// the group, counted as failed.
func (m *member) Stop() {
	_ = m.link.call(context.Background(), methodStop, m.args, nil, nil)
	m.calls.Lock()
	defer m.calls.Unlock()
	m.link.out.mu.Lock()
	m.over = true
	m.giveBack(m.waits)
	m.waits = nil
	m.link.out.mu.Unlock()
}

// Leave implements edge.Member.
func (m *member) Leave() {
	m.link.out.mu.Lock()
	again := m.left
	m.left = true
	m.link.out.mu.Unlock()
	if !again {
		_ = m.link.call(context.Background(), methodLeave, m.args, nil, nil)
	}
	m.calls.Lock() // nothing is handed out any more
	defer m.calls.Unlock()
	m.forget()
}

func (m *member) args(b []byte) []byte { return codec.AppendUint(b, m.id) }

// settlement is what a settle frame says.
type settlement struct {
	outcome     kernel.Outcome
	partition   int32
	first, last int64
}

func (r *reader) settlement() (s settlement, err error) {
	o, part := r.int(), r.int()
	s.first = r.Int()
	n := r.Int()
	if err := r.done(kindSettle); err != nil {
		return s, err
	}
	if o < 0 || o > int(kernel.Refuse) || n < 0 || s.first < 0 || s.first > math.MaxInt64-n {
		return s, fmt.Errorf("%w: a settlement", errMalformed)
	}
	s.outcome, s.partition, s.last = kernel.Outcome(o), int32(part), s.first+n
	return s, nil
}
