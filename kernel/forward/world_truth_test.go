package forward

import (
	"fmt"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// truth is the model that a history is held against: what clients were told, and what
// passed the links.
type truth struct {
	mu       sync.Mutex
	clock    int64 // of what is sent and confirmed
	attempts map[string]*wattempt
	messages map[string]*wmessage
	queues   map[string]*wqueue
	links    map[*wlink]struct{}
	open_    map[*wlink]struct{}
	members  map[string]*wplace // by tag
	reached  map[string]*wlink  // by connection: what answered last
	closing  bool               // the host ends: links that are made still go with it
	locks    map[string]*wplace // by queue: the exclusive member there was last
	said     map[string]*wsay   // to topics
	heard    map[string]bool    // of that
	acked    map[wackAt]*wack
	unsure   map[string]bool // by connection: another one has taken its session over
	wrong    []string
	seen     wseen
}

// wseen counts what the histories have met.
type wseen map[string]int

func newTruth() *truth {
	return &truth{
		attempts: make(map[string]*wattempt), messages: make(map[string]*wmessage), queues: make(map[string]*wqueue),
		links: make(map[*wlink]struct{}), open_: make(map[*wlink]struct{}), members: make(map[string]*wplace),
		reached: make(map[string]*wlink), locks: make(map[string]*wplace), seen: make(wseen),
		said: make(map[string]*wsay), heard: make(map[string]bool), acked: make(map[wackAt]*wack),
		unsure: make(map[string]bool),
	}
}

// fate is what a publisher was told of an attempt.
type fate int

const (
	isOpen fate = iota
	isConfirmed
	isRefused
	isUnknown
)

func (f fate) String() string { return [...]string{"under way", "confirmed", "refused", "unknown"}[f] }

// wmessage is what a publisher wants to be stored, once if it has an id, with as many
// attempts as it takes.
type wmessage struct {
	name   string
	once   bool // it has an id
	queues []string
	done   bool // an attempt was confirmed
}

// wattempt is one publish of a message.
type wattempt struct {
	name      string
	of        *wmessage
	fate      fate
	sent      int64
	confirmed int64
	order     string // attempts of the same order are stored in the order of sent
}

// wqueue is a queue of the truth.
type wqueue struct {
	name    string
	records map[int64]*wrecord
	of      map[string][]int64 // offsets by attempt
}

// wrecord is a record of a queue.
type wrecord struct {
	attempt string
	told    bool   // it was handed out before
	holder  string // tag of the member that has it, as it was told; "" = nobody
	link    *wlink // by which
	settled *wlink // by which it was accepted or refused, for certain as long as that was not lost
	// stale counts by link how often somebody has settled what he had of it of a host
	// before: that may settle what is on its way to him.
	stale map[*wlink]int
}

// wplace is a membership as far as the client knows.
type wplace struct {
	tag       string
	queue     string
	link      *wlink // joined by last
	exclusive bool
	granted   bool // the client knows that it has joined
	over      bool // it has left, or is about to, or has ended
}

// fail notes what is wrong. mu is held.
func (t *truth) fail(format string, args ...any) {
	if len(t.wrong) < 20 {
		t.wrong = append(t.wrong, fmt.Sprintf(format, args...))
	}
}

// Failf is fail for who does not hold mu.
func (t *truth) Failf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fail(format, args...)
}

func (t *truth) failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.wrong) > 0
}

// count counts something.
func (t *truth) count(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen[what]++
}

// link notes a link that is about to be, open that it is, unlink that it is closed.
func (t *truth) link(l *wlink, h *whost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.links[l] = struct{}{}
	l.ending = t.closing || h.over
	t.seen["links"]++
}

func (t *truth) open(l *wlink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open_[l] = struct{}{}
	if t.reached[l.name] != nil {
		t.seen["relinks"]++
	}
	t.reached[l.name] = l
}

func (t *truth) unlink(l *wlink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l.ending = true
	delete(t.links, l)
	delete(t.open_, l)
}

// broken notes that what is under way by a link is unknown.
func (t *truth) broken(l *wlink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l != nil {
		t.lose(l)
	}
}

func (t *truth) lose(l *wlink) {
	if !l.lost {
		l.lost = true
		t.seen["broken"]++
	}
}

// ends notes that links are about to end in good order: those that which says.
func (t *truth) ends(which func(*wlink) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.links {
		if which(l) {
			l.ending = true
		}
	}
}

// turns notes that an edge is about to be told of another host than it has: the links to
// that one end, with those that somebody is about to make who has looked before.
func (t *truth) turns(at int, h *whost) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h != nil {
		h.over = true
	}
	for l := range t.links {
		if l.at == at {
			l.ending = true
		}
	}
}

// closes notes that the host ends, or that another one serves.
func (t *truth) closes(ends bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closing = ends
}

// breaks notes that all links are about to break.
func (t *truth) breaks() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for l := range t.links {
		t.lose(l)
	}
}

// opened lists the links that are open, in their order.
func (t *truth) opened() []*wlink {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*wlink, 0, len(t.open_))
	for l := range t.open_ {
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b *wlink) int { return int(a.n) - int(b.n) })
	return list
}

// answered notes which link has answered a question of its connection.
func (t *truth) answered(l *wlink) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reached[l.name] = l
}

// declare notes a queue whose records are compared.
func (t *truth) declare(name string) {
	t.queues[name] = &wqueue{name: name, records: make(map[int64]*wrecord), of: make(map[string][]int64)}
}

// member makes a membership of a client.
func (t *truth) member(p *wplace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.members[p.tag] = p
}

// joined notes that a member has joined by a link.
func (t *truth) joined(l *wlink, opt kernel.MemberOptions) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.members[opt.Tag]
	if p == nil {
		return
	}
	if p.exclusive {
		if p.granted {
			t.fail("%s, which excludes others, has joined again by itself", p.tag)
		}
		if h := t.locks[p.queue]; h != nil && !h.over && h.link.live() {
			t.fail("%s and %s exclude each other", h.tag, p.tag)
		}
		t.locks[p.queue] = p
		t.seen["locked"]++
	}
	p.link = l
}

// grants notes that a client was told that it has joined.
func (t *truth) grants(p *wplace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.granted = true
}

// leaves notes that a client gives a membership up, or was told that it has ended.
func (t *truth) leaves(p *wplace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(p)
}

func (t *truth) leave(p *wplace) {
	p.over = true
	q := t.queues[p.queue]
	if q == nil {
		return
	}
	for _, r := range q.records {
		if r.holder == p.tag {
			r.holder = ""
		}
	}
}

// delivered notes that a client was handed a record.
func (t *truth) delivered(p *wplace, d *kernel.Delivery) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name, _ := d.Record.Header("attempt")
	q, l := t.queues[p.queue], p.link
	t.seen["delivered"]++
	l.w.trace("%s/%d goes to %s by link %d", q.name, d.Offset, p.tag, l.n)
	r := q.records[d.Offset]
	switch {
	case r == nil:
		r = &wrecord{attempt: string(name), stale: make(map[*wlink]int)}
		q.records[d.Offset] = r
		q.of[r.attempt] = append(q.of[r.attempt], d.Offset)
		t.stored(q, r, d.Offset)
	case r.attempt != string(name):
		t.fail("%s/%d is %s, and was %s", q.name, d.Offset, name, r.attempt)
	}
	if !l.live() || p.over { // it was handed out before that, and is late
		t.seen["late"]++
		r.told = true
		return
	}
	if r.stale[l] > 0 {
		r.stale[l]--
		r.told = true
		return
	}
	at := fmt.Sprintf("%s/%d (%s) is handed to %s by link %d (acquired %d, again %v)", q.name, d.Offset, name, p.tag, l.n, d.Acquired, d.Redelivered)
	switch {
	case r.settled != nil && !r.settled.lost:
		t.fail("%s, and was settled by link %d", at, r.settled.n)
	case r.holder != "" && r.link.live():
		t.fail("%s, and %s has it by link %d", at, r.holder, r.link.n)
	}
	if r.told {
		t.seen["again"]++
		if !d.Redelivered {
			t.fail("%s, unmarked, and was handed out before", at)
		}
	}
	if h := t.locks[p.queue]; h != nil && h != p && !h.over && h.link.live() {
		t.fail("%s, while %s excludes others by link %d", at, h.tag, h.link.n)
	}
	r.told, r.holder, r.link, r.settled = true, p.tag, l, nil
}

// settles notes that a settlement goes into a link.
func (t *truth) settles(l *wlink, tag string, o kernel.Outcome, first, last int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.members[tag]
	if p == nil {
		return
	}
	q := t.queues[p.queue]
	for at := first; q != nil && at <= last; at++ {
		r := q.records[at]
		switch {
		case r == nil:
			continue
		case r.holder != tag || r.link != l:
			r.stale[l]++
			continue
		}
		r.holder = ""
		switch {
		case o == kernel.Release:
			t.seen["released"]++
		case l.live():
			r.settled = l
			t.seen["accepted"]++
		}
	}
}
