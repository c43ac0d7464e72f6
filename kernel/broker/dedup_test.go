package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/policy"
)

// named publishes a message with an id to an exchange and waits for the outcome.
func (p *pub) named(id, exchange, key, value string) int {
	p.t.Helper()
	p.next++
	r := &kernel.Record{Key: []byte(key), Value: []byte(value)}
	r.Headers = []kernel.Header{{Key: kernel.HeaderExchange, Value: []byte(exchange)}, {Key: kernel.HeaderDedup, Value: []byte(id)}}
	n, err := p.p.ToExchange(exchange, key, r, kernel.PublishOptions{ID: kernel.NewDedupID([]byte(id))}, p.next)
	p.outcome(value, err)
	return n
}

func (p *pub) outcome(value string, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("publish %s: %v", value, err)
	}
	if res := p.done.wait(p.t, p.next); res.Err != nil {
		p.t.Fatalf("publish %s: %v", value, res.Err)
	}
}

// TestDedupPerTarget: every queue and filter that a message reaches has it once, in
// memory and in the log, however it was repeated and whoever did; what is bound
// meanwhile gets it by the repeat. What is published without id follows no id.
func TestDedupPerTarget(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c, other := connect(t, b), connect(t, b)
	declare(t, c, QueueSpec{Name: "durable", Durable: true})
	declare(t, c, QueueSpec{Name: "volatile"})
	bind(t, c, "amq.topic", "durable", "a.#")
	bind(t, c, "amq.topic", "volatile", "a.#")
	reader, _ := attach(t, c, "reader", true, time.Hour)
	subscribe(t, reader, "a/+", 1)
	reader.Detach(time.Hour)
	p, q := publisher(t, c), publisher(t, other)
	for range 2 {
		if n := p.named("1", "amq.topic", "a.b", "x"); n != 3 {
			t.Errorf("matched %d", n)
		}
	}
	q.named("1", "amq.topic", "a.b", "x")
	q.next++
	_, err := q.p.Identified(kernel.NewDedupID([]byte("1")), func() (int, error) {
		return q.p.ToTopic("a/b", &kernel.Record{Key: []byte("a/b"), Value: []byte("x")}, q.next)
	})
	q.outcome("x", err)
	declare(t, c, QueueSpec{Name: "late", Durable: true})
	bind(t, c, "amq.topic", "late", "a.b")
	p.named("1", "amq.topic", "a.b", "x")
	p.named("2", "amq.topic", "a.b", "y")
	q.topic("a/b", "z")
	q.topic("a/b", "z")
	for _, name := range []string{"durable", "volatile", "late"} {
		becomes(t, c, name, 4, 0)
	}
	shut(t, b)

	b = open(t, dir)
	c = connect(t, b)
	publisher(t, c).named("2", "amq.topic", "a.b", "y")
	for _, name := range []string{"durable", "late"} {
		_, in := consume(t, c, name, kernel.MemberOptions{}, 10)
		if got := in.wait(t, 4); !slices.Equal(got, []string{"x", "y", "z", "z"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
	reader, _ = attach(t, c, "reader", false, time.Hour)
	in := newInbox()
	a, err := reader.Attach(soon(t), kernel.Subscription{Filter: "a/+", QoS: 1}, 0, in, in)
	if err != nil {
		t.Fatal(err)
	}
	a.Member.Credit(10)
	if got := in.wait(t, 4); !slices.Equal(got, []string{"x", "y", "z", "z"}) {
		t.Errorf("subscription: %q", got)
	}
}

// TestDedupDeadLetter: a dead letter is no repeat of the message it was, where it
// comes to a queue that has that one; nor is the message when it comes back.
func TestDedupDeadLetter(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	args := func(to string) []kernel.Argument {
		return []kernel.Argument{text("x-dead-letter-exchange", ""), text("x-dead-letter-routing-key", to)}
	}
	declare(t, c, QueueSpec{Name: "work", Durable: true, Arguments: args("retry")})
	declare(t, c, QueueSpec{Name: "retry", Durable: true, Arguments: args("work")})
	p := publisher(t, c)
	p.named("1", "", "work", "x")
	p.named("1", "", "retry", "y")
	m, in := consume(t, c, "work", kernel.MemberOptions{}, 10)
	in.wait(t, 1)
	m.Settle(kernel.Refuse, 0, 0, 0)
	r, out := consume(t, c, "retry", kernel.MemberOptions{}, 10)
	if got := out.wait(t, 2); !slices.Equal(got, []string{"y", "x"}) {
		t.Fatalf("retry: %q", got)
	}
	r.Settle(kernel.Refuse, 0, 1, 1)
	in.wait(t, 2)
	p.named("1", "", "work", "x")
	p.exchange("", "work", "end")
	if got := in.wait(t, 3); !slices.Equal(got, []string{"x", "x", "end"}) {
		t.Errorf("work: %q", got)
	}
}

// TestDedupRetained: the queues have a retained message with an id once, it is retained
// each time.
func TestDedupRetained(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	for _, q := range []string{"durable", "volatile"} {
		declare(t, c, QueueSpec{Name: q, Durable: q == "durable"})
		bind(t, c, "amq.topic", q, "a")
	}
	p := publisher(t, c)
	s, _ := attach(t, c, "writer", true, time.Hour)
	id := kernel.NewDedupID([]byte("1"))
	r := &kernel.Record{Key: []byte("a"), Value: []byte("x")}
	for i := range uint16(2) {
		p.next++
		_, err := p.p.Identified(id, func() (int, error) { return p.p.Retain("a", r, p.next) })
		p.outcome("retained", err)
		p.next++
		_, err = p.p.Identified(id, func() (int, error) { return p.p.RetainOnce(s, i+1, "a", r, p.next) })
		p.outcome("retained once", err)
		p.next++
		_, err = p.p.Identified(id, func() (int, error) { return p.p.ToTopicOnce(s, i+10, "a", r, p.next) })
		p.outcome("once", err)
	}
	if n := b.retained.count(); n != 1 {
		t.Errorf("%v retained messages", n)
	}
	for _, q := range []string{"durable", "volatile"} {
		becomes(t, c, q, 1, 0)
	}
}

// TestDedupWindowSettings: the argument of a queue and the policies say how long ids are
// remembered, the shorter one holds, and 0 is off.
func TestDedupWindowSettings(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	window := func(ms int) []kernel.Argument {
		return []kernel.Argument{{Name: "x-" + policy.DedupWindow, Value: int64(ms)}}
	}
	declare(t, c, QueueSpec{Name: "off", Durable: true, Arguments: window(0)})
	declare(t, c, QueueSpec{Name: "minute", Durable: true, Arguments: window(60_000)})
	declare(t, c, QueueSpec{Name: "plain", Durable: true})
	want := func(off, minute, plain time.Duration) {
		t.Helper()
		tn, _ := b.tenant(kernel.DefaultTenant)
		for name, d := range map[string]time.Duration{"off": off, "minute": minute, "plain": plain} {
			topic, _ := tn.table.Load().Topic(kernel.Plain, name)
			for _, info := range b.durable.Topics() {
				if info.ID == topic.ID && info.Partitions[0].Retention.DedupWindow() != d {
					t.Errorf("%s: %+v, want %v", name, info.Partitions[0].Retention, d)
				}
			}
		}
	}
	want(0, time.Minute, kernel.DefaultDedup)
	putPolicy(t, b, policyOf("hour", "", kernel.PolicyQueues, policy.DedupWindow, 3600_000))
	want(0, time.Minute, time.Hour)
	putPolicy(t, b, policyOf("hour", "", kernel.PolicyQueues, policy.DedupWindow, 1000, policy.RetentionAge, 0))
	want(0, time.Second, time.Second)
	shut(t, b)
	b = open(t, dir)
	want(0, time.Second, time.Second)
	putPolicy(t, b, policyOf("hour", "", kernel.PolicyQueues, policy.DedupWindow, 0))
	want(0, 0, 0)
	dropPolicy(t, b, "hour")
	want(0, time.Minute, kernel.DefaultDedup)
	p := publisher(t, connect(t, b))
	for range 2 {
		p.named("1", "", "off", "x")
		p.named("1", "", "minute", "x")
	}
	c = connect(t, b)
	becomes(t, c, "off", 2, 0)
	becomes(t, c, "minute", 1, 0)
}
