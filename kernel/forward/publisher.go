package forward

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// settleTime is the longest that Settle waits, as at the broker.
	settleTime = 5 * time.Second
	// publishCost is what a publish counts beside its bytes.
	publishCost = 64
	minRing     = 16
)

// flight is a publish that is under way.
type flight struct {
	token uint64
	size  int
	// what is counted if the broker takes it
	records, payload int32
	state            flightState
	batch            bool // for a partition
}

type flightState uint8

const (
	flying flightState = iota
	asking             // it is mandatory, and it is not known whether it has a target
	landed
)

// finished is an outcome that is to be told.
type finished struct {
	token    uint64
	err      error
	declined bool // the broker did not take it
	batch    bool
	offset   int64 // of a batch
}

// outcome is what is told of it.
func (f *finished) outcome() kernel.Result {
	switch {
	case f.batch:
		return kernel.Result{Offset: f.offset, Err: f.err}
	case f.err == errUnmatched:
		return kernel.Result{Offset: -1}
	}
	return kernel.Result{Offset: -1, Err: f.err}
}

// publisher implements edge.Publisher. What it keeps of a publish is its token.
type publisher struct {
	link *link
	id   uint64

	// of who publishes
	carried publish
	ident   kernel.DedupID // of the publish within Identified
	user    *attached      // whose number the publish uses; nil = it uses none
	head    []byte
	scratch []kernel.Field
	routed  chan routed // capacity 1: the answer to a mandatory publish

	telling sync.Mutex        // held while to is called
	to      kernel.Completion // nil = nobody asks, or closed

	// guarded by link.out.mu
	ring       []flight // a power of two long
	base, next uint64   // numbers of the oldest flight and of the next
	told       uint64   // those whose outcome was told
	asks       bool     // the newest is mandatory, and was not answered
	closed     bool
}

// routed is what becomes of a mandatory publish.
type routed struct {
	matched int
	err     error
}

// Publisher implements edge.Link.
func (l *link) Publisher(done kernel.Completion) edge.Publisher {
	p := &publisher{link: l, to: done, base: 1, next: 1, routed: make(chan routed, 1)}
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if p.id = l.nextID(); l.publishers != nil {
		l.publishers[p.id] = p
		l.number(kindPublisher, p.id)
	}
	return p
}

// ToExchange implements edge.Publisher. It waits, until the link ends, while more than 4
// MiB are under way.
func (p *publisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error) {
	return p.publish(false, exchange, key, r, &opt, token)
}

// RetainAt implements edge.Publisher.
func (p *publisher) RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error) {
	return p.publish(true, exchange, key, r, &opt, token)
}

func (p *publisher) publish(retain bool, exchange, key string, r *kernel.Record, opt *kernel.PublishOptions, token uint64) (int, error) {
	l, o := p.link, &p.link.out
	p.carried.publisher, p.carried.retain, p.carried.exchange, p.carried.key = p.id, retain, exchange, key
	p.carried.number = p.next // only who publishes changes it
	p.head, p.scratch = appendPublish(p.head[:0], &p.carried, r, opt, p.scratch)
	p.carried.exchange, p.carried.key = "", ""
	size := len(p.head) + len(r.Value)
	if size > maxFrame-headSize {
		return 0, kernel.Errorf(kernel.CodeTooLarge, "", "", "a message of %d bytes is too large", size)
	}
	o.mu.Lock()
	if err := l.admit(size+publishCost, p.carried.named); err != nil {
		o.mu.Unlock()
		return 0, err
	}
	if err := p.user.held(); err != nil {
		l.underway -= size + publishCost
		l.changed.Broadcast()
		o.mu.Unlock()
		return 0, err
	}
	p.begin(flight{token: token, size: size + publishCost, records: 1, payload: int32(len(r.Value))}, opt.Mandatory)
	o.grow(size + headSize)
	start := o.begin(kindPublish)
	o.buf = append(append(o.buf, p.head...), r.Value...)
	o.end(start)
	o.mu.Unlock()
	if cap(p.head) > keepPart {
		p.head = nil
	}
	if !opt.Mandatory {
		return 1, nil
	}
	res := <-p.routed // or the end of the link
	return res.matched, res.err
}

// admit waits until so many bytes may be under way; hasty does not, if the reason is an
// alarm. The caller holds out.mu.
func (l *link) admit(size int, hasty bool) error {
	for l.refusal == nil && l.underway > 0 && l.underway+size > window {
		if hasty && l.alarms.Load().Any() {
			return errPressed
		}
		l.changed.Wait()
	}
	if l.refusal != nil {
		return l.refusal
	}
	l.underway += size
	return nil
}

// begin notes a publish. The caller holds out.mu.
func (p *publisher) begin(f flight, mandatory bool) {
	if p.next-p.base == uint64(len(p.ring)) {
		old := p.ring
		p.ring = make([]flight, max(2*len(old), minRing))
		for n := p.base; n < p.next; n++ {
			*p.at(n) = old[n&uint64(len(old)-1)]
		}
	}
	if mandatory {
		f.state, p.asks = asking, true
	}
	*p.at(p.next) = f
	p.next++
}

func (p *publisher) at(n uint64) *flight { return &p.ring[n&uint64(len(p.ring)-1)] }

// land ends a flight. The caller holds out.mu.
func (p *publisher) land(f *flight) {
	f.state = landed
	p.link.underway -= f.size
	for p.base < p.next && p.at(p.base).state == landed {
		p.base++
	}
	if p.base == p.next && len(p.ring) > keepBuffer/64 {
		p.ring = nil
	}
}

// took counts a publish that the broker has taken, whatever became of it then.
func (l *link) took(f *flight) { l.traffic.Received(int(f.records), int(f.payload)) }

// onOutcomes handles outcomes in runs. Those before what is wrong with them are told.
func (l *link) onOutcomes(r *reader) error {
	l.out.mu.Lock()
	p := l.publishers[r.Uint()]
	l.finished = l.finished[:0]
	err := p.landRuns(r)
	l.changed.Broadcast()
	l.out.mu.Unlock()
	if err == nil {
		err = r.done(kindOutcomes)
	}
	if p != nil {
		p.tellAll(l.finished)
		clear(l.finished)
	}
	return err
}

// landRuns ends the flights whose outcomes have come, of no publisher if p is nil. The
// caller holds out.mu.
func (p *publisher) landRuns(r *reader) error {
	for range r.Count() {
		first, n, err := r.Uint(), r.Uint(), r.error()
		if r.Err() != nil {
			break
		}
		if p == nil || first < p.base || first >= p.next || n > p.next-first {
			return fmt.Errorf("%w: the outcome of no publish", errMalformed)
		}
		for ; n > 0; first, n = first+1, n-1 {
			f := p.at(first)
			if first < p.base || f.state == landed || f.batch {
				return fmt.Errorf("%w: a second outcome of a publish", errMalformed)
			}
			p.link.finished = append(p.link.finished, finished{token: f.token, err: err})
			p.link.took(f)
			p.land(f)
		}
	}
	return nil
}

// onDeclined handles the refusal of a publish that is not mandatory.
func (l *link) onDeclined(r *reader) error {
	id, n, reason := r.Uint(), r.Uint(), r.error()
	if err := r.done(kindDeclined); err != nil {
		return err
	}
	l.out.mu.Lock()
	p := l.publishers[id]
	if p == nil || reason == nil || n < p.base || n >= p.next || p.at(n).state != flying {
		l.out.mu.Unlock()
		return fmt.Errorf("%w: the refusal of no publish", errMalformed)
	}
	l.finished = append(l.finished[:0], finished{token: p.at(n).token, err: reason, declined: true})
	batch := p.at(n).batch
	p.land(p.at(n))
	l.changed.Broadcast()
	l.out.mu.Unlock()
	if batch {
		l.recall.doubt(reason)
	}
	p.tellAll(l.finished)
	clear(l.finished)
	return nil
}

// tellAll tells outcomes, with a flush behind them.
func (p *publisher) tellAll(list []finished) {
	if len(list) == 0 {
		return
	}
	p.telling.Lock()
	if p.to != nil {
		for i := range list {
			p.tell(&list[i])
		}
		p.to.Flush()
	}
	p.telling.Unlock()
	l := p.link
	l.out.mu.Lock()
	p.told += uint64(len(list))
	l.changed.Broadcast()
	if p.closed && p.base == p.next {
		delete(l.publishers, p.id)
	}
	l.out.mu.Unlock()
}

// tell tells one outcome. The caller holds p.telling.
func (p *publisher) tell(f *finished) {
	if f.declined {
		if d, ok := p.to.(edge.Decliner); ok {
			d.Declined(f.token, f.err)
			return
		}
	}
	if f.err == errUnmatched {
		if m, ok := p.to.(edge.Matcher); ok {
			m.Unmatched(f.token)
		}
	}
	p.to.Completed(f.token, f.outcome())
}

// onRouted handles the answer to a mandatory publish.
func (l *link) onRouted(r *reader) error {
	id, n, matched, err := r.Uint(), r.Uint(), r.int(), r.error()
	if err := r.done(kindRouted); err != nil {
		return err
	}
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	p := l.publishers[id]
	if p == nil || n+1 != p.next || !p.asks {
		return fmt.Errorf("%w: the answer to no publish", errMalformed)
	}
	stored := matched > 0 && err == nil
	switch {
	case n < p.base || p.at(n).state != asking: // it has its outcome
		if !stored {
			return fmt.Errorf("%w: a publish that was stored has no target", errMalformed)
		}
	case stored:
		p.at(n).state = flying
	default:
		p.land(p.at(n))
		p.told++
		l.changed.Broadcast()
	}
	p.asks = false
	p.routed <- routed{matched, err}
	return nil
}

// lose ends all that is under way when the link has broken.
func (p *publisher) lose() {
	l := p.link
	var list []finished
	answer, lost := routed{matched: 1}, errBroken()
	if lostIsDone {
		lost = nil
	}
	l.out.mu.Lock()
	for n := p.base; n < p.next; n++ {
		f := p.at(n)
		if f.state == asking {
			answer = routed{err: errBroken()}
			p.told++
		} else if f.state == flying {
			list = append(list, finished{token: f.token, err: lost})
		}
	}
	p.base = p.next
	asks := p.asks
	p.asks = false
	l.out.mu.Unlock()
	p.tellAll(list)
	if asks {
		p.routed <- answer
	}
}

// Settle implements edge.Publisher. What is under way when the link breaks has its
// outcome, too.
func (p *publisher) Settle(ctx context.Context) error {
	l := p.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	n := p.next - 1
	if p.told >= n {
		return nil
	}
	late, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	defer context.AfterFunc(late, func() {
		l.out.mu.Lock()
		l.changed.Broadcast()
		l.out.mu.Unlock()
	})()
	for p.told < n {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if late.Err() != nil {
			return kernel.Errorf(kernel.CodeUnavailable, "", "", "messages published before are not stored yet")
		}
		l.changed.Wait()
	}
	return nil
}

// Close implements edge.Publisher.
func (p *publisher) Close() {
	p.telling.Lock()
	p.to = nil
	p.telling.Unlock()
	l := p.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	start := l.out.begin(kindUnpublish)
	l.out.buf = codec.AppendUint(l.out.buf, p.id)
	l.out.end(start)
	if p.base == p.next {
		delete(l.publishers, p.id)
	}
}
