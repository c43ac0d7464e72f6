package route

import "github.com/trivium-mq/trivium/kernel"

// Match is what a publish reaches: each topic and each live subscription once.
type Match struct {
	Topics []*Topic
	Live   []*Live
}

// Key matches a publish to an exchange. ok is false if there is no such
// exchange.
func (t *Table) Key(exchange, key string) (m Match, ok bool) {
	if exchange == kernel.ExchangeDefault {
		if topic, found := t.topics.Get(key); found {
			t.reach(&m, topic)
		}
		return m, true
	}
	e, ok := t.exchanges.Get(exchange)
	if !ok {
		return m, false
	}
	t.bound(&m, e, key)
	if exchange == kernel.ExchangeTopic {
		name := kernel.NameOfKey(key)
		topic, found := t.topics.Get(name)
		if found && topic.Subscribed && topic.Visible() && !m.has(name) {
			t.reach(&m, topic)
		}
		t.filtered(&m, name)
	}
	return m, true
}

// Name matches a publish under a name with levels.
func (t *Table) Name(name string) (m Match) {
	return t.NameIf(name, func(*Topic) bool { return true })
}

// NameIf is Name for a publish that may not go into every topic because that has
// exactly its name.
func (t *Table) NameIf(name string, may func(*Topic) bool) (m Match) {
	if topic, ok := t.topics.Get(name); ok && topic.Visible() && may(topic) {
		t.reach(&m, topic)
	}
	if e, ok := t.exchanges.Get(kernel.ExchangeTopic); ok {
		t.bound(&m, e, kernel.KeyOfName(name))
	}
	t.filtered(&m, name)
	return m
}

// Log matches a publish to a topic by its name alone: the live subscriptions
// to exactly that name.
func (t *Table) Log(name string) (live []*Live) {
	if t.live.root != nil {
		t.live.exact(&filterGrammar, name).Each(func(l *Live) { live = append(live, l) })
	}
	return live
}

// has reports whether the plain topic of that name is reached.
func (m *Match) has(name string) bool {
	for _, o := range m.Topics {
		if o.Name == name && o.Kind == kernel.Plain {
			return true
		}
	}
	return false
}

// bound adds the topics of the bindings that match. Beyond a few, those met
// already are looked up instead of searched for.
func (t *Table) bound(m *Match, e *exchange, key string) {
	var seen map[string]struct{}
	e.match(key, func(b *kernel.Binding) {
		if seen == nil && len(m.Topics) >= manyNodes {
			seen = make(map[string]struct{}, 4*manyNodes)
			for _, o := range m.Topics {
				seen[o.Name] = struct{}{}
			}
		}
		if _, ok := seen[b.Queue]; ok || (seen == nil && m.has(b.Queue)) {
			return
		}
		if topic, ok := t.topics.Get(b.Queue); ok {
			t.reach(m, topic)
			if seen != nil {
				seen[b.Queue] = struct{}{}
			}
		}
	})
}

// reach adds a plain topic and the live subscriptions to exactly its name. It
// is called once per topic.
func (t *Table) reach(m *Match, topic *Topic) {
	m.Topics = append(m.Topics, topic)
	if topic.Visible() {
		m.Live = append(m.Live, t.Log(topic.Name)...)
	}
}

// filtered adds the filter topics and live subscriptions that match a name;
// reach has added the live subscriptions to exactly that name if its topic is
// there.
func (t *Table) filtered(m *Match, name string) {
	added := t.live.root != nil && m.has(name)
	if added {
		topic, ok := t.topics.Get(name)
		added = ok && topic.Visible()
	}
	t.filters.match(&filterGrammar, name, func(topic *Topic) { m.Topics = append(m.Topics, topic) })
	t.live.match(&filterGrammar, name, func(l *Live) {
		if !added || l.Filter != name {
			m.Live = append(m.Live, l)
		}
	})
}
