package forward

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// whost is the host that an edge is given: it tells the truth what passes.
type whost struct {
	edge.Host
	w     *world
	at    int            // the edge
	local *broker.Broker // nil = across the network
	over  bool           // the edge was told of another one; guarded by truth.mu
}

// wlink is a link of a connection. What is guarded is so by truth.mu.
type wlink struct {
	edge.Link
	w     *world
	name  string // of the connection
	n     uint64 // of the links of the history
	at    int    // the edge
	end   func(error)
	wire  *wire // nil = in process
	frail frail

	ending bool // its host is about to end, or another one serves, or the client closes it
	lost   bool // what was under way is unknown
}

// live says that who is linked by it holds what he was told.
func (l *wlink) live() bool { return !l.ending && !l.lost }

func (h *whost) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (edge.Link, error) {
	l := &wlink{w: h.w, name: info.Name, n: h.w.number(), at: h.at, end: end}
	host := h.Host
	if h.local == nil {
		host = NewHost(wpeers{h.w, l}, "1")
	}
	h.w.truth.link(l, h)
	in, err := host.Connect(id, info, end)
	if err != nil {
		h.w.truth.unlink(l)
		return nil, err
	}
	l.Link = in
	h.w.truth.open(l)
	h.w.trace("link %d of %s is open at edge %d", l.n, l.name, l.at)
	return l, nil
}

func (l *wlink) Close() {
	l.w.trace("link %d of %s is to be closed", l.n, l.name)
	l.Link.Close()
	l.w.trace("link %d of %s is closed", l.n, l.name)
	l.w.truth.unlink(l)
}

func (l *wlink) Queue(name string) (broker.QueueInfo, error) {
	info, err := l.Link.Queue(name)
	l.w.truth.answered(l)
	return info, err
}

func (l *wlink) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, pool edge.Pool, to kernel.Consumer) (edge.Member, error) {
	m, err := l.Link.Join(ctx, addr, opt, pool, to)
	if err != nil {
		return nil, err
	}
	l.w.truth.joined(l, opt)
	return &wmember{m, l, opt.Tag}, nil
}

// Publisher has outcomes get lost with a link in process, as they are with a stream.
func (l *wlink) Publisher(done kernel.Completion) edge.Publisher {
	if l.wire != nil || done == nil {
		return heldPublisher{l.Link.Publisher(done)}
	}
	d := &frailDone{link: l, to: done, open: make(map[uint64]struct{})}
	p := &frailPublisher{Publisher: heldPublisher{l.Link.Publisher(d)}, done: d}
	l.frail.mu.Lock()
	defer l.frail.mu.Unlock()
	l.frail.list = append(l.frail.list, d)
	return p
}

// wmember tells the truth what is settled.
type wmember struct {
	edge.Member
	link *wlink
	tag  string
}

func (m *wmember) Settle(o kernel.Outcome, partition int32, first, last int64) {
	m.link.w.truth.settles(m.link, m.tag, o, first, last)
	m.Member.Settle(o, partition, first, last)
}

// frail is what makes a link in process break.
type frail struct {
	mu   sync.Mutex
	cut  bool
	list []*frailDone
}

// frailDone is a kernel.Completion whose outcomes are lost with its link.
type frailDone struct {
	link    *wlink
	telling sync.Mutex          // held while to is called
	to      kernel.Completion   // nil = the publisher is closed
	open    map[uint64]struct{} // guarded by link.frail.mu
}

type frailPublisher struct {
	edge.Publisher
	done *frailDone
}

// begin notes a publish; false if the link has broken.
func (d *frailDone) begin(token uint64) bool {
	d.link.frail.mu.Lock()
	defer d.link.frail.mu.Unlock()
	if !d.link.frail.cut {
		d.open[token] = struct{}{}
	}
	return !d.link.frail.cut
}

// take reports whether a publish has no outcome yet.
func (d *frailDone) take(token uint64) bool {
	d.link.frail.mu.Lock()
	defer d.link.frail.mu.Unlock()
	_, there := d.open[token]
	delete(d.open, token)
	return there
}

// publish does a publish, whose outcome may be lost; none says that it has none without a
// target.
func (p *frailPublisher) publish(token uint64, none bool, do func() (int, error)) (int, error) {
	if !p.done.begin(token) {
		return 0, errGone()
	}
	n, err := do()
	if (err != nil || none && n == 0) && !p.done.take(token) {
		n, err = 1, nil // it is lost, and known to be unknown
	}
	return n, err
}

// ToExchange implements edge.Publisher.
func (p *frailPublisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	return p.publish(token, opt.Mandatory, func() (int, error) { return p.Publisher.ToExchange(exchange, key, r, opt, token) })
}

// ToTopic implements edge.SessionPublisher.
func (p *frailPublisher) ToTopic(name string, r *kernel.Record, token uint64) (int, error) {
	return p.publish(token, false, func() (int, error) { return p.Publisher.ToTopic(name, r, token) })
}

// ToTopicOnce implements edge.SessionPublisher.
func (p *frailPublisher) ToTopicOnce(s edge.Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.publish(token, false, func() (int, error) { return p.Publisher.ToTopicOnce(s, number, name, r, token) })
}

// Completed implements kernel.Completion.
func (d *frailDone) Completed(token uint64, res kernel.Result) {
	if d.take(token) {
		d.tell(res, token)
	}
}

// Flush implements kernel.Completion.
func (d *frailDone) Flush() { d.tell(kernel.Result{}) }

// tell tells outcomes; without any it is a flush.
func (d *frailDone) tell(res kernel.Result, tokens ...uint64) {
	d.telling.Lock()
	defer d.telling.Unlock()
	if d.to == nil {
		return
	}
	for _, token := range tokens {
		d.to.Completed(token, res)
	}
	if len(tokens) != 1 {
		d.to.Flush()
	}
}

// Close implements edge.Publisher.
func (p *frailPublisher) Close() {
	p.Publisher.Close()
	p.done.telling.Lock()
	defer p.done.telling.Unlock()
	p.done.to = nil
}

// Settle implements edge.Publisher. Of a link that is cut all has its outcome.
func (p *frailPublisher) Settle(ctx context.Context) error {
	p.done.link.frail.mu.Lock()
	cut := p.done.link.frail.cut
	p.done.link.frail.mu.Unlock()
	if cut {
		return nil
	}
	return p.Publisher.Settle(ctx)
}

// asks says that a link is asked to end by its host, whatever becomes of that: so are
// links in process, and if they broke their sessions would end, which others do not.
func (l *wlink) asks() bool { return l.wire == nil && strings.HasPrefix(l.name, "device") }

// cut breaks a link, whatever it runs on.
func (l *wlink) cut() {
	if l.wire != nil {
		l.wire.cut()
		return
	}
	l.w.truth.broken(l)
	l.frail.mu.Lock()
	again := l.frail.cut
	l.frail.cut = true
	list := slices.Clone(l.frail.list)
	lost := make([][]uint64, len(list))
	for i, d := range list {
		lost[i] = slices.Sorted(maps.Keys(d.open))
		clear(d.open)
	}
	l.frail.mu.Unlock()
	if again {
		return
	}
	for i, d := range list {
		d.tell(kernel.Result{Offset: -1, Err: errBroken()}, lost[i]...)
		d.Flush()
	}
	l.end(errBroken())
}

var home = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}

// host makes the host of an edge, of the facade that serves.
func (w *world) host(at int) *whost {
	if at == 0 {
		return &whost{Host: edge.Local(w.now), w: w, at: at, local: w.now}
	}
	return &whost{Host: NewHost(wpeers{w: w}, "1"), w: w, at: at}
}

// rng makes a source of chance of a name.
func (w *world) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(uint64(w.seed), n)) }
