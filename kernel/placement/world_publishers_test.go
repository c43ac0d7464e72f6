package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// wconn is a client's connection. It counts those it has had.
type wconn struct {
	w     *world
	life  *wlife
	count *int
}

func (c *wconn) at() *wlife { return c.life }

// connect makes sure of a connection to a node that serves, or is taken to.
func (c *wconn) connect() bool {
	if c.life != nil && (c.life.gone || !c.life.serves()) {
		c.leave() // who does not lead any more cuts its clients off
	}
	for range 3 {
		if n := c.w.nodes[c.w.rng.Intn(len(c.w.nodes))]; c.life == nil && n.serves() {
			c.life, c.count = n.life, new(int)
		}
	}
	return c.life != nil
}

func (c *wconn) leave() { c.life = nil }

// wplain publishes and never repeats anything.
type wplain struct{ wconn }

func (p *wplain) act() {
	if !p.connect() {
		return
	}
	t := &p.w.truth
	for n := 1 + p.w.rng.Intn(4); n > 0 && p.life != nil; n-- {
		set := t.someParts()
		s := t.newSent(set...)
		a := t.try(s, p.life, p.count, nil)
		r := numbered(s.token)
		r.Key = make([]byte, p.w.rng.Intn(60))
		a.begin(p.life.g.Append(p.life.g.Targets(set...), r, a, 0))
	}
}

// begin takes in what the call has said: an error means that nothing has happened.
func (a *attempt) begin(err error) {
	if err == nil {
		return
	}
	a.answered, a.refused = true, true
	if a.t.w.seen.refused++; a.then != nil {
		a.then(kernel.Result{Offset: -1, Err: err})
	}
}

func (t *truth) someParts() []PartitionID {
	n := len(t.parts)
	switch k := t.w.rng.Intn(n + 3); {
	case k < n:
		return t.parts[k : k+1]
	case k == n:
		return t.parts
	default:
		return t.parts[:2]
	}
}

// wnamer publishes messages with an id, again and again until they are confirmed, and
// sometimes after that.
type wnamer struct {
	wconn
	list []*wsent
}

func (p *wnamer) act() {
	if p.w.jumps || !p.connect() { // ids are remembered for a time
		return
	}
	var s *wsent
	if n := len(p.list); n > 0 && (p.list[n-1].confirmed == 0 || p.w.rng.Intn(3) == 0) {
		s = p.list[max(0, n-1-p.w.rng.Intn(4))]
	} else {
		s = p.w.truth.newSent(p.w.truth.someParts()...)
		p.list = append(p.list, s)
	}
	p.publish(s)
}

func (p *wnamer) publish(s *wsent) {
	if len(s.tries) > 0 {
		p.w.seen.again++
	}
	var id kernel.DedupID
	id[0], id[1], id[2] = byte(s.token), byte(s.token>>8), 1
	a := p.w.truth.try(s, p.life, p.count, nil)
	a.begin(p.life.g.AppendOnce(p.life.g.Targets(s.parts...), numbered(s.token), kernel.Once{ID: id}, a, 0))
}

// done brings all to a confirmation, and says whether it is there.
func (p *wnamer) done() bool {
	for _, s := range p.list {
		if s.confirmed == 0 && p.connect() {
			p.publish(s)
		}
	}
	return !slices.ContainsFunc(p.list, func(s *wsent) bool { return s.confirmed == 0 })
}

// wproducer is an idempotent producer: at most five batches on their way, and all again,
// in order, when one of them failed or the connection is gone.
type wproducer struct {
	wconn
	next  int32
	open  []*wbatch
	again bool
	first bool // nothing is confirmed yet
}

type wbatch struct {
	s        *wsent
	sequence int32
}

func (p *wproducer) act() {
	before := p.life
	if !p.connect() {
		return
	}
	if p.life != before || p.again {
		p.again = false
		for _, b := range slices.Clone(p.open) {
			p.send(b)
		}
	}
	most := producerBatches
	if p.first {
		most = 1 // the log takes the first batch it sees of a producer, as Kafka does
	}
	if len(p.open) < most && !p.again && !p.w.last {
		b := &wbatch{p.w.truth.newSent(p.w.truth.parts[0]), p.next}
		p.next++
		p.open = append(p.open, b)
		p.send(b)
	}
}

func (p *wproducer) leave() { p.life, p.again = nil, true }

func (p *wproducer) send(b *wbatch) {
	if p.life == nil {
		return
	}
	var raw record.Builder
	raw.SetProducer(7, 0, b.sequence)
	raw.Append(numbered(b.s.token))
	conn := p.count
	a := p.w.truth.try(b.s, p.life, conn, func(res kernel.Result) {
		i := slices.Index(p.open, b)
		switch {
		case i < 0 || conn != p.count:
		case res.Err != nil:
			p.again = true
		default:
			p.open, p.first = slices.Delete(p.open, i, i+1), false
		}
	})
	a.begin(p.life.g.AppendBatch(b.s.parts[0], raw.Bytes(), a, 0))
}

func (p *wproducer) done() bool {
	p.act()
	return len(p.open) == 0
}

// wsession publishes with QoS 2: a number, until that is confirmed; then it is released.
// When it comes again it is told, behind all that was under way, which of its numbers are
// in use (Group.Used).
type wsession struct {
	wconn
	synced *wlife // where it has been told
	wait   <-chan commandResult
	count  uint64
	uses   [4]wuse
}

type wuse struct {
	s      *wsent // nil: the number is free
	count  uint64
	stored bool
	sent   bool // in this connection
}

func (p *wsession) leave() { p.life, p.synced, p.wait = nil, nil, nil }

func (p *wsession) act() {
	if p.sync() {
		p.use(p.w.rng.Intn(len(p.uses)))
	}
}

// sync connects and asks for the numbers in use.
func (p *wsession) sync() bool {
	if p.life != nil && !p.life.serves() {
		p.leave()
	}
	if !p.connect() || p.synced == p.life {
		return p.life != nil
	}
	if p.wait == nil {
		p.wait, _ = p.life.g.prop.command(barrierCommand())
		return false
	}
	select {
	case res := <-p.wait:
		if p.wait = nil; res.err != nil {
			p.leave()
			return false
		}
	default:
		return false
	}
	p.synced = p.life
	l := p.life.g.machine.ledgers[simPublisher]
	if l == nil {
		l = &ledger{}
	}
	p.count = max(p.count, l.high)
	for n := range p.uses {
		u := &p.uses[n]
		count, used := l.used[uint16(n)]
		switch u.sent = false; {
		case u.s == nil:
		case u.stored:
			if !used {
				u.s = nil // it was released
			}
		case used && count == u.count:
			u.stored = true
			if p.w.truth.confirm(u.s); !p.w.truth.tokens[u.s.token] {
				p.w.failf("number %d is in use, its record %d is not committed", n, u.s.token)
			}
		}
	}
	return true
}

func (p *wsession) use(n int) {
	u := &p.uses[n]
	switch {
	case u.s != nil && u.stored:
		count := u.count
		done := wdone(func(res kernel.Result) {
			if res.Err == nil && u.count == count && u.s != nil {
				u.s = nil
			}
		})
		_ = p.life.g.ReleaseOnce(simPublisher, []uint16{uint16(n)}, &done, 0) // or the next time
		return
	case u.s == nil && p.w.last, u.s != nil && u.sent:
		return
	case u.s == nil:
		u.s, u.stored = p.w.truth.newSent(p.w.truth.parts[1]), false
	}
	p.count++
	u.count, u.sent = p.count, true
	s, count, conn := u.s, u.count, p.wconn.count
	a := p.w.truth.try(s, p.life, conn, func(res kernel.Result) {
		switch {
		case res.Err == nil && u.count == count:
			u.stored = true
			p.w.seen.stored++
		case res.Err != nil && conn == p.wconn.count:
			p.leave()
		}
	})
	once := kernel.Once{Session: simPublisher, Number: uint16(n), Count: count}
	a.begin(p.life.g.AppendOnce(p.life.g.Targets(s.parts...), numbered(s.token), once, a, 0))
}

func (p *wsession) done() bool {
	free := true
	for n := range p.uses {
		if p.uses[n].s != nil {
			free = false
			if p.sync() {
				p.use(n)
			}
		}
	}
	return free
}

// wdone is a completion.
type wdone func(kernel.Result)

func (d *wdone) Completed(_ uint64, res kernel.Result) { (*d)(res) }
func (d *wdone) Flush()                                {}

// wkeys writes keyed state.
type wkeys struct {
	wconn
	puts [4][]*wput
}

// wput is a write of a value that no other has. A value read may be that of a write that
// was not over before another one began that was confirmed.
type wput struct {
	began, confirmed int
	refused          bool
}

func (p *wkeys) act() {
	if !p.connect() {
		return
	}
	k, t := p.w.rng.Intn(len(p.puts)), &p.w.truth
	x := &wput{began: t.event()}
	p.puts[k] = append(p.puts[k], x)
	done := wdone(func(res kernel.Result) {
		switch kernel.CodeOf(res.Err) {
		case kernel.CodeUnavailable:
			x.refused = res.Err != nil
		default:
			if res.Err == nil {
				x.confirmed = t.event()
			}
		}
	})
	n := len(p.puts[k])
	err := p.life.g.AppendKeyed(nil, nil, []KV{{Key: []byte{byte(k)}, Value: []byte{byte(n), byte(n >> 8)}}}, kernel.Once{}, &done, 0)
	if err != nil {
		x.refused = true
	}
}

// check compares a replica with what was confirmed.
func (p *wkeys) check(n *wlife) {
	for k, puts := range p.puts {
		value, err := n.g.Get([]byte{byte(k)})
		if err != nil {
			p.w.failf("get: %v", err)
			return
		}
		is := 0 // nothing
		if len(value) == 2 {
			is = int(value[0]) | int(value[1])<<8
		}
		for _, x := range puts {
			if x.confirmed == 0 {
				continue
			}
			if is == 0 || puts[is-1].confirmed > 0 && puts[is-1].confirmed < x.began {
				p.w.failf("node %d: key %d has the value of write %d, a later one was confirmed", n.i, k, is)
			}
		}
		if is > 0 && puts[is-1].refused {
			p.w.failf("node %d: key %d has the value of write %d, which was refused", n.i, k, is)
		}
	}
}
