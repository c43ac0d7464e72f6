package forward

import (
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// roads are the ways to a broker that are compared: in its process, through a stream in
// memory, and from another node.
func roads(b *testing.B, run func(b *testing.B, publisher func(kernel.Completion) edge.Publisher, join func(kernel.Consumer) settler)) {
	addr := kernel.QueueAddress("/", "q")
	declare := func(br *broker.Broker) *broker.Conn {
		c := direct(b, br)
		if _, err := c.DeclareQueue(soon(b), broker.QueueSpec{Name: "q"}); err != nil {
			b.Fatal(err)
		}
		return c
	}
	remote := func(b *testing.B, c *client) {
		run(b, c.Publisher, func(to kernel.Consumer) settler { return c.join("q", kernel.MemberOptions{}, nil, to) })
	}
	b.Run("direct", func(b *testing.B) {
		c := declare(open(b))
		run(b, func(done kernel.Completion) edge.Publisher { return plain{c.Publisher(done)} }, func(to kernel.Consumer) settler {
			m, err := c.Join(soon(b), addr, kernel.MemberOptions{}, to)
			if err != nil {
				b.Fatal(err)
			}
			return m
		})
	})
	b.Run("memory", func(b *testing.B) {
		br := open(b)
		declare(br)
		remote(b, serve(b, br).connect(b))
	})
	b.Run("nodes", func(b *testing.B) {
		br, first, second := nodes(b)
		declare(br)
		remote(b, across(b, first, second))
	})
}

// plain is a publisher without sessions.
type plain struct{ *broker.Publisher }

func (plain) ToTopicOnce(edge.Session, uint16, string, *kernel.Record, uint64) (int, error) {
	panic("not called")
}

func (plain) RetainOnce(edge.Session, uint16, string, *kernel.Record, uint64) (int, error) {
	panic("not called")
}

// settler is what a benchmark needs of a member.
type settler interface {
	Credit(n int)
	Settle(o kernel.Outcome, partition int32, first, last int64)
}

// acker settles what it gets and asks for more.
type acker struct {
	m    settler
	n    int
	want int
	done sync.WaitGroup
}

func (a *acker) Deliver(batch []kernel.Delivery) {
	first, last := batch[0].Offset, batch[len(batch)-1].Offset
	a.m.Settle(kernel.Accept, batch[0].Partition, first, last)
	a.m.Credit(len(batch))
	if a.n += len(batch); a.n >= a.want && a.want > 0 {
		a.want = 0
		a.done.Done()
	}
}

func (a *acker) Ended(error) {}

// BenchmarkPublish publishes to a queue in memory, with at most 1,000 messages without
// outcome, while a consumer takes and settles them.
func BenchmarkPublish(b *testing.B) {
	roads(b, func(b *testing.B, publisher func(kernel.Completion) edge.Publisher, join func(kernel.Consumer) settler) {
		a := &acker{want: b.N}
		a.done.Add(1)
		a.m = join(a)
		a.m.Credit(512)
		done := &ticket{free: make(chan struct{}, 1000)}
		p := publisher(done)
		r := &kernel.Record{Key: []byte("q"), Value: make([]byte, 100), Timestamp: 1}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			done.free <- struct{}{}
			if _, err := p.ToExchange("", "q", r, kernel.PublishOptions{}, uint64(i)); err != nil {
				b.Fatal(err)
			}
		}
		a.done.Wait()
	})
}

// ticket bounds what has no outcome.
type ticket struct{ free chan struct{} }

func (w *ticket) Completed(uint64, kernel.Result) { <-w.free }
func (w *ticket) Flush()                          {}

// BenchmarkConfirm publishes one message after the outcome of the one before.
func BenchmarkConfirm(b *testing.B) {
	roads(b, func(b *testing.B, publisher func(kernel.Completion) edge.Publisher, _ func(kernel.Consumer) settler) {
		done := &ticket{free: make(chan struct{}, 1)}
		p := publisher(done)
		r := &kernel.Record{Key: []byte("q"), Value: make([]byte, 100), Timestamp: 1}
		b.ReportAllocs()
		b.ResetTimer()
		for i := range b.N {
			done.free <- struct{}{}
			if _, err := p.ToExchange("", "q", r, kernel.PublishOptions{}, uint64(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// counter is a live subscriber that takes all.
type counter struct {
	*subscriber
	n, want int
	done    chan struct{}
}

func (c *counter) Live(*kernel.LiveMessage, uint64) bool {
	if c.n++; c.n == c.want {
		close(c.done)
	}
	return true
}

// BenchmarkLive publishes to a topic that only a live feed reads, both of the same client
// of another node.
func BenchmarkLive(b *testing.B) {
	br, first, second := nodes(b)
	c := across(b, first, second)
	s := c.brief("c")
	to := &counter{subscriber: newSubscriber(), want: b.N, done: make(chan struct{})}
	out := s.Subscribe(soon(b), []broker.SubscribeSpec{{Subscription: kernel.Subscription{Filter: "a", QoS: 1}, To: to, Live: to}})
	if out[0].Err != nil {
		b.Fatal(out[0].Err, br)
	}
	done := &ticket{free: make(chan struct{}, 1000)}
	p := c.Publisher(done).(edge.SessionPublisher)
	r := &kernel.Record{Key: []byte("a"), Value: make([]byte, 100), Timestamp: 1}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		done.free <- struct{}{}
		if _, err := p.ToTopic("a", r, uint64(i)); err != nil {
			b.Fatal(err)
		}
	}
	<-to.done
}
