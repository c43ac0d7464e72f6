package route

import (
	"strings"
	"unsafe"

	"github.com/trivium-mq/trivium/kernel"
)

// Message is what a publish is routed by.
type Message struct {
	Key  string
	More []string // further keys
	// Record is nil while no more than the keys is known.
	Record *kernel.Record
	Fields kernel.Fields // nil: the record's headers, as texts
	Draw   uint64        // random, for exchanges that choose so
	// May says whether the message may go into a topic because that has exactly
	// its name; nil = yes.
	May func(*Topic) bool

	scratch []kernel.Field
	read    bool // scratch holds the headers
}

// Reset begins another message, keeping memory.
func (m *Message) Reset() { *m = Message{scratch: m.scratch[:0]} }

// Release lets go of what the message aliases.
func (m *Message) Release() {
	clear(m.scratch)
	m.Reset()
	if cap(m.scratch) > keepFields {
		m.scratch = nil
	}
}

// keepFields is how many headers' memory is kept for the next message.
const keepFields = 256

// may reports whether the message may go into the topic of its name.
func (m *Message) may(t *Topic) bool { return m.May == nil || m.May(t) }

func (m *Message) keys() int { return 1 + len(m.More) }

func (m *Message) key(i int) string {
	if i == 0 {
		return m.Key
	}
	return m.More[i-1]
}

// fields returns the headers, ready for find.
func (m *Message) fields() []kernel.Field {
	if m.read {
		return m.scratch
	}
	m.read = true
	if m.Fields != nil {
		m.scratch = m.Fields.AppendFields(m.scratch)
	} else {
		for i := range m.Record.Headers {
			h := &m.Record.Headers[i]
			name, own := strings.CutPrefix(h.Key, kernel.HeaderUser)
			switch {
			case !own && strings.HasPrefix(name, kernel.HeaderReserved):
			case h.Value == nil:
				m.scratch = append(m.scratch, kernel.Field{Name: name})
			default:
				m.scratch = append(m.scratch, kernel.Field{Name: name, Kind: kernel.FieldText, Text: unsafe.String(unsafe.SliceData(h.Value), len(h.Value))})
			}
		}
	}
	sortFields(m.scratch)
	return m.scratch
}

// Match is what a publish reaches: each topic and each live subscription once.
// One value may be used again and again; it then keeps its memory.
type Match struct {
	Topics []*Topic
	Live   []*Live
	// Dynamic says that the choice depends on more than the keys: all of the
	// match has to be made with the whole message.
	Dynamic bool

	topics    set[*Topic]
	live      set[*Live] // used with several keys only
	exchanges set[*exchange]
	work      []*exchange
}

// Release lets go of what was matched and keeps the memory.
func (m *Match) Release() {
	clear(m.Topics)
	clear(m.Live)
	m.reset()
}

func (m *Match) reset() {
	m.Topics, m.Live, m.Dynamic = m.Topics[:0], m.Live[:0], false
	m.topics.reset()
	m.live.reset()
	m.exchanges.reset()
	m.work = m.work[:0]
}

// Key matches a publish of which the key is known to an exchange. ok is false
// if there is no such exchange.
func (t *Table) Key(exchange, key string) (m Match, ok bool) {
	ok = t.Route(&m, exchange, &Message{Key: key})
	return m, ok
}

// Name matches a publish, of which no more is known, under a name with levels.
func (t *Table) Name(name string) (m Match) {
	t.RouteName(&m, name, &Message{})
	return m
}

// Route matches a message to an exchange and whatever follows from there. It
// returns false if there is no such exchange.
func (t *Table) Route(m *Match, exchange string, msg *Message) bool {
	m.reset()
	if exchange == kernel.ExchangeDefault {
		t.queuesNamed(m, msg)
		return true
	}
	e, ok := t.exchanges.Get(exchange)
	if !ok {
		return false
	}
	t.follow(m, e, msg)
	return true
}

// RouteName matches a message under a name with levels. The keys of msg are
// set from the name.
func (t *Table) RouteName(m *Match, name string, msg *Message) {
	m.reset()
	msg.Key, msg.More = kernel.KeyOfName(name), nil
	if topic, ok := t.topics.Get(name); ok && topic.Visible() && msg.may(topic) {
		t.reach(m, topic)
	}
	if e, ok := t.exchanges.Get(kernel.ExchangeTopic); ok {
		m.exchanges.add(e) // its subscribers follow by the name
		m.work = append(m.work, e)
		t.spread(m, msg)
	}
	t.filtered(m, name, false)
}

// follow matches a message to an exchange and to those it leads to, and to the
// subscribers if ExchangeTopic is among them.
func (t *Table) follow(m *Match, e *exchange, msg *Message) {
	m.exchanges.add(e)
	m.work = append(m.work, e)
	t.spread(m, msg)
	if m.Dynamic {
		return
	}
	topics, _ := t.exchanges.Get(kernel.ExchangeTopic)
	if topics == nil || !m.exchanges.has(topics) {
		return
	}
	several := msg.keys() > 1
	for i := range msg.keys() {
		name := kernel.NameOfKey(msg.key(i))
		if topic, ok := t.topics.Get(name); ok && topic.Subscribed && topic.Visible() && msg.may(topic) {
			t.reach(m, topic)
		}
	}
	if several { // what reach has added may match other names
		for _, l := range m.Live {
			m.live.add(l)
		}
	}
	for i := range msg.keys() {
		t.filtered(m, kernel.NameOfKey(msg.key(i)), several)
	}
}

// spread works off the exchanges of m.work and those bound to them, each once.
// An exchange of which no binding matches hands on to its alternate.
func (t *Table) spread(m *Match, msg *Message) {
	matched := 0
	take := func(b *edge) {
		matched++
		if b.ToExchange {
			t.enter(m, b.Queue)
		} else if topic, ok := t.topics.Get(b.Queue); ok {
			t.reach(m, topic)
		}
	}
	for len(m.work) > 0 {
		e := m.work[len(m.work)-1]
		m.work = m.work[:len(m.work)-1]
		matched = 0
		if !e.match(msg, take) {
			m.Dynamic = true
			return
		}
		if matched == 0 && e.alternate != "" {
			t.enter(m, e.alternate)
		}
	}
}

// enter adds an exchange to the work, unless it was there before.
func (t *Table) enter(m *Match, name string) {
	if e, ok := t.exchanges.Get(name); ok && m.exchanges.add(e) {
		m.work = append(m.work, e)
	}
}

// queuesNamed adds the queues that have the keys for names.
func (t *Table) queuesNamed(m *Match, msg *Message) {
	for i := range msg.keys() {
		if topic, ok := t.topics.Get(msg.key(i)); ok {
			t.reach(m, topic)
		}
	}
}

// Log matches a publish to a topic by its name alone: the live subscriptions
// to exactly that name.
func (t *Table) Log(name string) (live []*Live) {
	t.logTo(&live, name)
	return live
}

func (t *Table) logTo(live *[]*Live, name string) {
	if t.live.root != nil {
		t.live.exact(&filterGrammar, name).Each(func(l *Live) { *live = append(*live, l) })
	}
}

// reach adds a plain topic and the live subscriptions to exactly its name,
// unless it was there before.
func (t *Table) reach(m *Match, topic *Topic) {
	if !m.topics.add(topic) {
		return
	}
	m.Topics = append(m.Topics, topic)
	if topic.Visible() {
		t.logTo(&m.Live, topic.Name)
	}
}

// filtered adds the filter topics and live subscriptions that match a name;
// reach has added the live subscriptions to exactly that name if its topic is
// there. With several names some may have been added for another one.
func (t *Table) filtered(m *Match, name string, several bool) {
	added := false
	if t.live.root != nil {
		topic, ok := t.topics.Get(name)
		added = ok && topic.Visible() && m.topics.has(topic)
	}
	t.filters.match(&filterGrammar, name, func(topic *Topic) {
		if !several || m.topics.add(topic) {
			m.Topics = append(m.Topics, topic)
		}
	})
	t.live.match(&filterGrammar, name, func(l *Live) {
		if several && !m.live.add(l) || added && l.Filter == name {
			return
		}
		m.Live = append(m.Live, l)
	})
}

// set is a set that is searched from end to end while it is small. The zero
// value is empty.
type set[T comparable] struct {
	list []T
	seen map[T]struct{} // all of list, once that is long
}

// add reports whether v was not there yet.
func (s *set[T]) add(v T) bool {
	if s.has(v) {
		return false
	}
	if s.list = append(s.list, v); len(s.list) == manyNodes {
		if s.seen == nil {
			s.seen = make(map[T]struct{}, 4*manyNodes)
		}
		for _, o := range s.list {
			s.seen[o] = struct{}{}
		}
	} else if len(s.list) > manyNodes {
		s.seen[v] = struct{}{}
	}
	return true
}

func (s *set[T]) has(v T) bool {
	if len(s.list) >= manyNodes {
		_, ok := s.seen[v]
		return ok
	}
	for _, o := range s.list {
		if o == v {
			return true
		}
	}
	return false
}

func (s *set[T]) reset() {
	clear(s.list)
	s.list = s.list[:0]
	clear(s.seen)
}
