package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// BenchmarkDeclare declares durable queues from many connections at once.
func BenchmarkDeclare(b *testing.B) {
	br := open(b, b.TempDir())
	var n atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		c := connect(b, br)
		wg.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				if _, err := c.DeclareQueue(context.Background(), QueueSpec{Name: fmt.Sprint("q", i), Durable: true}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "declares/s")
}

type counter struct{ n atomic.Int64 }

func (c *counter) Completed(uint64, kernel.Result) { c.n.Add(1) }
func (c *counter) Flush()                          {}

// BenchmarkPublish publishes to a queue that nobody reads, volatile or durable.
func BenchmarkPublish(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			br := open(b, b.TempDir())
			c := connect(b, br)
			if _, err := c.DeclareQueue(context.Background(), QueueSpec{Name: "q", Durable: durable}); err != nil {
				b.Fatal(err)
			}
			m, err := c.Join(context.Background(), kernel.QueueAddress("/", "q"), kernel.MemberOptions{AutoSettle: true}, sinkConsumer{})
			if err != nil {
				b.Fatal(err)
			}
			m.Credit(1 << 30)
			done := &counter{}
			p := c.Publisher(done)
			r := &kernel.Record{Key: []byte("q"), Value: make([]byte, 100), Timestamp: 1}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := p.ToExchange("", "q", r, kernel.PublishOptions{}, uint64(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

type sinkConsumer struct{}

func (sinkConsumer) Deliver([]kernel.Delivery) {}
func (sinkConsumer) Ended(error)               {}

// BenchmarkRoute looks up a route that was seen before.
func BenchmarkRoute(b *testing.B) {
	br := open(b, b.TempDir())
	c := connect(b, br)
	p := c.Publisher(nil)
	table := c.tenant.table.Load()
	b.ReportAllocs()
	for b.Loop() {
		if p.byKey(table, "amq.topic", "sensors.kitchen.temperature") == nil {
			b.Fatal("no plan")
		}
	}
}
