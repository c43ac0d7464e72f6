package route

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
)

// model is a table kept as plain lists and searched from end to end.
type model struct {
	exchanges map[string]kernel.Exchange
	bindings  []kernel.Binding
	topics    map[string]*Topic // "p" + name or "f" + filter
	live      map[uint64]*Live
}

func newModel() *model {
	m := &model{exchanges: make(map[string]kernel.Exchange), topics: make(map[string]*Topic), live: make(map[uint64]*Live)}
	for name, kind := range predeclared {
		m.exchanges[name] = kernel.Exchange{Name: name, Type: kind}
	}
	return m
}

// headers is what the messages of the tests carry.
var headers = []kernel.Header{{Key: "h", Value: []byte("1")}, {Key: "mq.user.x-h", Value: []byte("2")}, {Key: "mq.none", Value: nil}}

// wants says whether a binding matches one of the keys.
func (m *model) wants(b *kernel.Binding, keys []string) bool {
	switch m.exchanges[b.Exchange].Type {
	case kernel.Fanout:
		return true
	case kernel.Headers:
		for _, a := range b.Arguments {
			if a.Name == "h" && a.Value != "1" && a.Value != nil {
				return false
			}
		}
		return true
	case kernel.Topics:
		return slices.ContainsFunc(keys, func(key string) bool { return naive(&keyGrammar, b.Key, key) })
	default:
		return slices.Contains(keys, b.Key)
	}
}

// bound adds what an exchange leads to, and the exchanges that were met to seen.
func (m *model) bound(to, seen map[string]bool, exchange string, keys []string) {
	x, ok := m.exchanges[exchange]
	if !ok || seen[exchange] {
		return
	}
	seen[exchange] = true
	matched := false
	for _, b := range m.bindings {
		if b.Exchange != exchange || !m.wants(&b, keys) {
			continue
		}
		matched = true
		if b.ToExchange {
			m.bound(to, seen, b.Queue, keys)
		} else {
			to["p"+b.Queue] = true
		}
	}
	if !matched {
		m.bound(to, seen, x.Text(kernel.ArgAlternate), keys)
	}
}

func (m *model) filtered(to map[string]bool, name string) {
	for k := range m.topics {
		if k[0] == 'f' && naive(&filterGrammar, k[1:], name) {
			to[k] = true
		}
	}
	for id, l := range m.live {
		if naive(&filterGrammar, l.Filter, name) {
			to[fmt.Sprint("l", id)] = true
		}
	}
}

// exact adds the live subscriptions to the names of the plain topics reached.
func (m *model) exact(to map[string]bool) {
	for k := range maps.Clone(to) {
		for id, l := range m.live {
			if k[0] == 'p' && l.Filter == k[1:] && m.topics[k].Visible() {
				to[fmt.Sprint("l", id)] = true
			}
		}
	}
}

func (m *model) key(exchange string, keys ...string) map[string]bool {
	to, seen := make(map[string]bool), make(map[string]bool)
	if exchange == "" {
		for _, key := range keys {
			if m.topics["p"+key] != nil {
				to["p"+key] = true
			}
		}
	}
	m.bound(to, seen, exchange, keys)
	for _, key := range keys {
		if !seen["amq.topic"] {
			break
		}
		name := kernel.NameOfKey(key)
		if t := m.topics["p"+name]; t != nil && t.Subscribed && t.Visible() {
			to["p"+name] = true
		}
		m.filtered(to, name)
	}
	m.exact(to)
	return to
}

func (m *model) name(name string) map[string]bool {
	to := make(map[string]bool)
	if t := m.topics["p"+name]; t != nil && t.Visible() {
		to["p"+name] = true
	}
	m.bound(to, make(map[string]bool), "amq.topic", []string{kernel.KeyOfName(name)})
	m.filtered(to, name)
	m.exact(to)
	return to
}

func reached(t *rapid.T, m Match) map[string]bool {
	to := make(map[string]bool)
	add := func(k string) {
		if to[k] {
			t.Fatalf("%s is reached twice", k)
		}
		to[k] = true
	}
	for _, topic := range m.Topics {
		add(map[kernel.TopicKind]string{kernel.Plain: "p", kernel.Filter: "f"}[topic.Kind] + topic.Name)
	}
	for _, l := range m.Live {
		add(fmt.Sprint("l", l.ID))
	}
	return to
}

var (
	drawName   = rapid.SampledFrom([]string{"a", "b", "a/b", "a/b/a", "$x/a", "a.b"})
	drawFilter = rapid.SampledFrom([]string{"#", "+", "a/#", "+/b", "a/+/a", "$x/#", "a", "a/b"})
	drawKey    = rapid.SampledFrom([]string{"a", "a.b", "*", "#", "a.#", "*.b", "a.b.a", ""})
	drawSource = rapid.SampledFrom([]string{"amq.direct", "amq.fanout", "amq.topic", "amq.match", "x1", "x2", "x3"})
)

// tableTest makes the same random changes to a table and to the model.
type tableTest struct {
	table    *Table
	model    *model
	nextID   byte
	nextLive uint64
}

func (tt *tableTest) put(t *rapid.T, kind kernel.TopicKind, name string) {
	prefix := map[kernel.TopicKind]string{kernel.Plain: "p", kernel.Filter: "f"}[kind]
	tt.nextID++
	topic := &Topic{Topic: &kernel.Topic{ID: kernel.TopicID{tt.nextID}, Name: name, Kind: kind}, Subscribed: rapid.Bool().Draw(t, "subscribed")}
	if old := tt.model.topics[prefix+name]; old != nil {
		topic.ID = old.ID
	}
	if kind == kernel.Plain && rapid.IntRange(0, 4).Draw(t, "exclusive") == 0 {
		topic.Queue = &kernel.Queue{Exclusive: true}
	}
	tt.table, tt.model.topics[prefix+name] = tt.table.PutTopic(topic), topic
}

func (tt *tableTest) topic(t *rapid.T) { tt.put(t, kernel.Plain, drawName.Draw(t, "q")) }

func (tt *tableTest) filter(t *rapid.T) {
	tt.put(t, kernel.Filter, drawFilter.Filter(kernel.HasWildcard).Draw(t, "f"))
}

func (tt *tableTest) drop(t *rapid.T) {
	m := tt.model
	if len(m.topics) == 0 {
		t.Skip()
	}
	k := rapid.SampledFrom(slices.Sorted(maps.Keys(m.topics))).Draw(t, "topic")
	tt.table, _ = tt.table.DropTopic(m.topics[k].ID)
	delete(m.topics, k)
	m.bindings = slices.DeleteFunc(m.bindings, func(b kernel.Binding) bool { return !b.ToExchange && "p"+b.Queue == k })
}

func (tt *tableTest) exchange(t *rapid.T) {
	m := tt.model
	name := rapid.SampledFrom([]string{"x1", "x2", "x3"}).Draw(t, "x")
	if _, ok := m.exchanges[name]; ok {
		var sources []string
		tt.table, sources = tt.table.DropExchange(name)
		delete(m.exchanges, name)
		lost := make(map[string]bool)
		m.bindings = slices.DeleteFunc(m.bindings, func(b kernel.Binding) bool {
			to := b.ToExchange && b.Queue == name
			if to {
				lost[b.Exchange] = true
			}
			return to || b.Exchange == name
		})
		if want := slices.Sorted(maps.Keys(lost)); !slices.Equal(sources, want) {
			t.Fatalf("without %s, %v lost bindings, want %v", name, sources, want)
		}
		return
	}
	x := kernel.Exchange{Name: name, Type: rapid.SampledFrom([]kernel.ExchangeType{kernel.Direct, kernel.Fanout, kernel.Topics, kernel.Headers}).Draw(t, "type")}
	if alternate := drawSource.Draw(t, "alternate"); rapid.Bool().Draw(t, "has alternate") {
		x.Arguments = []kernel.Argument{{Name: kernel.ArgAlternate, Value: alternate}}
	}
	m.exchanges[name] = x
	tt.table = tt.table.PutExchange(x)
}

// binding draws a binding and finds it in the model, -1 = not there.
func (tt *tableTest) binding(t *rapid.T) (kernel.Binding, int) {
	b := kernel.Binding{
		Exchange: drawSource.Draw(t, "x"), Queue: drawName.Draw(t, "q"), Key: drawKey.Draw(t, "k"),
		Arguments:  rapid.SampledFrom([][]kernel.Argument{nil, {{Name: "h", Value: "1"}}, {{Name: "h"}}, {{Name: "h", Value: int64(1)}}}).Draw(t, "args"),
		ToExchange: rapid.Bool().Draw(t, "e2e"),
	}
	if b.ToExchange {
		b.Queue = drawSource.Draw(t, "to")
	}
	return b, slices.IndexFunc(tt.model.bindings, func(o kernel.Binding) bool { return bindingKey(&o) == bindingKey(&b) })
}

func (tt *tableTest) bind(t *rapid.T) {
	m := tt.model
	b, at := tt.binding(t)
	_, isThere := m.exchanges[b.Exchange]
	target := m.topics["p"+b.Queue] != nil
	if b.ToExchange {
		_, target = m.exchanges[b.Queue]
	}
	want := isThere && target && at < 0
	var ok bool
	if tt.table, ok = tt.table.Bind(b); ok != want {
		t.Fatalf("bind %+v: %v", b, ok)
	}
	if ok {
		m.bindings = append(m.bindings, b)
	}
}

func (tt *tableTest) unbind(t *rapid.T) {
	b, at := tt.binding(t)
	var ok bool
	if tt.table, ok = tt.table.Unbind(b); ok != (at >= 0) {
		t.Fatalf("unbind %+v: %v", b, ok)
	}
	if ok {
		tt.model.bindings = slices.Delete(tt.model.bindings, at, at+1)
	}
}

func (tt *tableTest) live(t *rapid.T) {
	tt.nextLive++
	l := &Live{ID: tt.nextLive, Filter: drawFilter.Draw(t, "f")}
	tt.table, tt.model.live[l.ID] = tt.table.PutLive(l), l
}

func (tt *tableTest) unlive(t *rapid.T) {
	if len(tt.model.live) == 0 {
		t.Skip()
	}
	id := rapid.SampledFrom(slices.Sorted(maps.Keys(tt.model.live))).Draw(t, "live")
	tt.table = tt.table.DropLive(tt.model.live[id])
	delete(tt.model.live, id)
}

// TestTable runs random changes on a table and on the model and compares what
// publishes reach.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tt := &tableTest{table: New("/"), model: newModel()}
		t.Repeat(map[string]func(*rapid.T){
			"topic": tt.topic, "filter": tt.filter, "drop": tt.drop, "exchange": tt.exchange,
			"bind": tt.bind, "unbind": tt.unbind, "live": tt.live, "unlive": tt.unlive,
			"": func(t *rapid.T) { compare(t, tt.table, tt.model) },
		})
	})
}

// pair is a message with all it has, and what is known of it at first.
func pair(keys ...string) []*Message {
	return []*Message{{Key: keys[0], More: keys[1:], Record: &kernel.Record{Headers: headers}}, {Key: keys[0], More: keys[1:]}}
}

func compare(t *rapid.T, table *Table, m *model) {
	var match Match
	for _, name := range []string{"a", "a/b", "a/b/a", "$x/a", "c"} {
		for _, msg := range pair("") {
			table.RouteName(&match, name, msg)
			if got, want := reached(t, match), m.name(name); !match.Dynamic && !maps.Equal(got, want) {
				t.Fatalf("name %s: got %v, want %v", name, got, want)
			}
			if match.Dynamic && msg.Record != nil {
				t.Fatal("more than the whole message is asked for")
			}
		}
	}
	for _, x := range append(slices.Sorted(maps.Keys(m.exchanges)), "") {
		for _, keys := range [][]string{{"a"}, {"a.b"}, {"a.b.a"}, {""}, {"a/b"}, {"a", "a.b"}, {"a.b", "a.b", "a/b", "a"}} {
			for _, msg := range pair(keys...) {
				ok := table.Route(&match, x, msg)
				if match.Dynamic && msg.Record == nil {
					continue
				}
				if got, want := reached(t, match), m.key(x, keys...); !ok || match.Dynamic || !maps.Equal(got, want) {
					t.Fatalf("exchange %q, keys %q: got %v, want %v", x, keys, got, want)
				}
			}
		}
		if x != "" {
			n := 0
			for _, b := range m.bindings {
				if b.Exchange == x {
					n++
				}
			}
			if _, got, _ := table.Exchange(x); got != n || len(table.BindingsFrom(x)) != n {
				t.Fatalf("exchange %q has %d bindings, want %d", x, got, n)
			}
		}
	}
	if _, ok := table.Key("none", "a"); ok {
		t.Fatal("a missing exchange matched")
	}
	all := 0
	table.AllBindings(func(kernel.Binding) { all++ })
	if table.Bindings() != len(m.bindings) || all != len(m.bindings) || table.Len() != len(m.topics) {
		t.Fatalf("%d bindings, %d listed, and %d topics, want %d and %d", table.Bindings(), all, table.Len(), len(m.bindings), len(m.topics))
	}
}

// BenchmarkDeclare adds and drops a queue with a binding beside 10,000 others.
func BenchmarkDeclare(b *testing.B) {
	table := New("/")
	add := func(i int) {
		name := fmt.Sprintf("queue-%d", i)
		table = table.PutTopic(&Topic{Topic: &kernel.Topic{ID: kernel.TopicID{byte(i), byte(i >> 8), byte(i >> 16), 1}, Name: name}})
		table, _ = table.Bind(kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: name, Key: "a." + name + ".#"})
	}
	for i := range 10_000 {
		add(i)
	}
	b.ReportAllocs()
	for i := 10_000; b.Loop(); i++ {
		add(i)
		table, _ = table.DropTopic(kernel.TopicID{byte(i), byte(i >> 8), byte(i >> 16), 1})
	}
}
