package broker

import (
	"maps"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func exchange(t testing.TB, c *Conn, x kernel.Exchange) {
	t.Helper()
	if err := c.DeclareExchange(soon(t), x); err != nil {
		t.Fatal(err)
	}
}

func link(t testing.TB, c *Conn, source, destination, key string) {
	t.Helper()
	if err := c.Bind(soon(t), kernel.Binding{Exchange: source, Queue: destination, Key: key, ToExchange: true}); err != nil {
		t.Fatal(err)
	}
}

// there returns which of the exchanges exist.
func there(c *Conn, names ...string) (list []string) {
	for _, n := range names {
		if _, err := c.Exchange(n); err == nil {
			list = append(list, n)
		}
	}
	return list
}

// TestExchangesGoTogether: a chain of auto-delete exchanges goes from its end,
// and the catalog agrees after a restart.
func TestExchangesGoTogether(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		b := open(t, dir)
		c := connect(t, b)
		declare(t, c, QueueSpec{Name: "q", Durable: durable})
		for _, n := range []string{"a", "b", "c", "stays", "other"} {
			exchange(t, c, kernel.Exchange{Name: n, Type: kernel.Fanout, Durable: durable, AutoDelete: n != "stays"})
		}
		link(t, c, "a", "b", "")
		link(t, c, "b", "c", "")
		link(t, c, "stays", "c", "")
		link(t, c, "other", "c", "")
		link(t, c, "other", "stays", "")
		bind(t, c, "c", "q", "")
		if n := len(b.BindingsTo("/", "c")); n != 3 || len(b.Bindings("/")) != 6 {
			t.Errorf("%d bindings to c, %d in all", n, len(b.Bindings("/")))
		}
		if _, err := c.DeleteQueue(soon(t), "q", false, false); err != nil {
			t.Fatal(err)
		}
		want := []string{"stays", "other"}
		if got := there(c, "a", "b", "c", "stays", "other"); !slices.Equal(got, want) {
			t.Errorf("left: %v", got)
		}
		if len(b.Bindings("/")) != 1 {
			t.Errorf("bindings left: %+v", b.Bindings("/"))
		}
		shut(t, b)
		b = open(t, dir)
		c = connect(t, b)
		if !durable {
			want = nil
		}
		if got := there(c, "a", "b", "c", "stays", "other"); !slices.Equal(got, want) {
			t.Errorf("left after a restart: %v", got)
		}
		if durable {
			if err := c.DeleteExchange(soon(t), "stays", false); err != nil {
				t.Fatal(err)
			}
			if got := there(c, "stays", "other"); got != nil {
				t.Errorf("%v outlived its last binding", got)
			}
		}
		shut(t, b)
	}
}

func TestUnbindTakesAutoDelete(t *testing.T) {
	c := connect(t, open(t, t.TempDir()))
	for _, n := range []string{"a", "b"} {
		exchange(t, c, kernel.Exchange{Name: n, Type: kernel.Fanout, Durable: true, AutoDelete: true})
	}
	link(t, c, "a", "b", "k")
	link(t, c, "b", "b", "itself")
	if err := c.Unbind(soon(t), kernel.Binding{Exchange: "b", Queue: "b", Key: "itself", ToExchange: true}); err != nil {
		t.Fatal(err)
	}
	if got := there(c, "a", "b"); got != nil {
		t.Errorf("left: %v", got)
	}
}

// TestRestartRoutes: exchanges with arguments and bindings between exchanges
// come back.
func TestRestartRoutes(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	exchange(t, c, kernel.Exchange{Name: "last", Type: kernel.Fanout, Durable: true, Internal: true})
	exchange(t, c, kernel.Exchange{Name: "x", Type: kernel.Direct, Durable: true, Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: "y"}}})
	exchange(t, c, kernel.Exchange{Name: "y", Type: kernel.Fanout, Durable: true})
	link(t, c, "y", "last", "")
	bind(t, c, "last", "q", "")
	for range 2 {
		p := publisher(t, c)
		if n := p.exchange("x", "nobody", "1"); n != 1 {
			t.Errorf("%d targets", n)
		}
		shut(t, b)
		b = open(t, dir)
		c = connect(t, b)
	}
	other := kernel.Exchange{Name: "x", Type: kernel.Direct, Durable: true}
	wantCode(t, c.DeclareExchange(soon(t), other), kernel.CodePrecondition)
}

func TestBadBindings(t *testing.T) {
	c := connect(t, open(t, t.TempDir()))
	declare(t, c, QueueSpec{Name: "q"})
	exchange(t, c, kernel.Exchange{Name: "hash", Type: kernel.ConsistentHash})
	exchange(t, c, kernel.Exchange{Name: "local", Type: kernel.LocalRandom})
	for _, b := range []kernel.Binding{
		{Exchange: "hash", Queue: "q", Key: "x"}, {Exchange: "hash", Queue: "q", Key: "0"}, {Exchange: "hash", Queue: "q", Key: "4294967296"},
		{Exchange: "local", Queue: "q", Key: "k"}, {Exchange: "local", Queue: "hash", ToExchange: true},
		{Exchange: "amq.headers", Queue: "q", Arguments: []kernel.Argument{{Name: kernel.ArgMatch, Value: "some"}}},
		{Exchange: "amq.headers", Queue: "q", Arguments: []kernel.Argument{{Name: kernel.ArgMatch, Value: int64(1)}}},
	} {
		wantCode(t, c.Bind(soon(t), b), kernel.CodeInvalid)
	}
	wantCode(t, c.Bind(soon(t), kernel.Binding{Exchange: "hash", Queue: "none", Key: "1", ToExchange: true}), kernel.CodeNotFound)
	wantCode(t, c.Bind(soon(t), kernel.Binding{Exchange: "hash", Queue: "", Key: "1", ToExchange: true}), kernel.CodeAccessRefused)
	for _, x := range []kernel.Exchange{
		{Type: kernel.Direct, Arguments: []kernel.Argument{{Name: kernel.ArgHashHeader, Value: "h"}}},
		{Type: kernel.Direct, Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: int64(1)}}},
		{Type: kernel.ConsistentHash, Arguments: []kernel.Argument{{Name: kernel.ArgHashProperty, Value: "odd"}}},
		{Type: kernel.ConsistentHash, Arguments: []kernel.Argument{{Name: kernel.ArgHashProperty, Value: "timestamp"}, {Name: kernel.ArgHashHeader, Value: "h"}}},
	} {
		x.Name = "bad"
		wantCode(t, c.DeclareExchange(soon(t), x), kernel.CodeInvalid)
	}
}

// typed gives the headers of an AMQP-like publisher.
type typed []kernel.Field

func (f typed) AppendFields(dst []kernel.Field) []kernel.Field { return append(dst, f...) }

// TestDynamicRoutes: what depends on the message is chosen anew for each, also
// behind a route that is remembered and under a name with levels.
func TestDynamicRoutes(t *testing.T) {
	c := connect(t, open(t, t.TempDir()))
	for _, q := range []string{"one", "two"} {
		declare(t, c, QueueSpec{Name: q})
	}
	for q, v := range map[string]any{"one": int64(1), "two": "2"} {
		if err := c.Bind(soon(t), kernel.Binding{Exchange: "amq.headers", Queue: q, Arguments: []kernel.Argument{{Name: "n", Value: v}}}); err != nil {
			t.Fatal(err)
		}
	}
	link(t, c, kernel.ExchangeTopic, "amq.headers", "a.#")
	done := newOutcomes()
	p := c.Publisher(done)
	token := uint64(0)
	send := func(opt kernel.PublishOptions, headers ...kernel.Header) int {
		token++
		n, err := p.ToExchange(kernel.ExchangeTopic, "a.b", &kernel.Record{Key: []byte("a.b"), Headers: headers}, opt, token)
		if err != nil {
			t.Fatal(err)
		}
		done.wait(t, token)
		return n
	}
	one := typed{{Name: "n", Kind: kernel.FieldInt, Bits: 1}}
	two := kernel.Header{Key: "n", Value: []byte("2")}
	for range 3 {
		if n := send(kernel.PublishOptions{Fields: one}); n != 1 {
			t.Errorf("typed: %d targets", n)
		}
		if n := send(kernel.PublishOptions{}, two); n != 1 {
			t.Errorf("text: %d targets", n)
		}
		if n := send(kernel.PublishOptions{}); n != 0 {
			t.Errorf("none: %d targets", n)
		}
		token++
		if n, err := p.ToTopic("a/b", &kernel.Record{Key: []byte("a/b"), Headers: []kernel.Header{two}}, token); n != 1 || err != nil {
			t.Errorf("by name: %d targets, %v", n, err)
		}
		done.wait(t, token)
	}
	for q, want := range map[string]int64{"one": 3, "two": 6} {
		if info, err := c.Queue(q); err != nil || info.Ready != want {
			t.Errorf("%s: %+v, %v", q, info, err)
		}
	}
}

// TestFurtherKeys: a publish with several keys reaches each queue once.
func TestFurtherKeys(t *testing.T) {
	c := connect(t, open(t, t.TempDir()))
	for _, q := range []string{"q1", "q2", "q3"} {
		declare(t, c, QueueSpec{Name: q})
	}
	bind(t, c, "amq.direct", "q1", "a")
	bind(t, c, "amq.direct", "q1", "b")
	bind(t, c, "amq.direct", "q2", "b")
	done := newOutcomes()
	p := c.Publisher(done)
	got := map[string]int{}
	for i, x := range []string{"amq.direct", ""} {
		key := []string{"a", "q1"}[i]
		n, err := p.ToExchange(x, key, &kernel.Record{Key: []byte(key)}, kernel.PublishOptions{Keys: []string{"b", "q3", "b"}}, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		done.wait(t, uint64(i))
		got[x] = n
	}
	if want := map[string]int{"amq.direct": 2, "": 2}; !maps.Equal(got, want) {
		t.Errorf("targets %v", got)
	}
}

// BenchmarkDynamic publishes through a consistent hash exchange to one of ten
// queues that nobody reads.
func BenchmarkDynamic(b *testing.B) {
	c := connect(b, open(b, b.TempDir()))
	exchange(b, c, kernel.Exchange{Name: "x", Type: kernel.ConsistentHash})
	for i := range 10 {
		q := string(rune('a' + i))
		declare(b, c, QueueSpec{Name: q})
		bind(b, c, "x", q, "1")
		m, err := c.Join(soon(b), kernel.QueueAddress("/", q), kernel.MemberOptions{AutoSettle: true}, sinkConsumer{})
		if err != nil {
			b.Fatal(err)
		}
		m.Credit(1 << 30)
	}
	p := c.Publisher(&counter{})
	keys := []string{"k1", "k2", "k3", "k4", "k5", "k6", "k7"}
	r := &kernel.Record{Key: []byte("k"), Value: make([]byte, 100), Timestamp: 1}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := p.ToExchange("x", keys[i%len(keys)], r, kernel.PublishOptions{}, uint64(i)); err != nil {
			b.Fatal(err)
		}
	}
}
