package placement

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// counter is a publisher's end with at most window publishes outstanding, and
// a consumer that settles what it gets and grants the credit again.
type counter struct {
	room chan struct{}
	done atomic.Int64

	member  *Member
	got     atomic.Int64
	want    int64
	reached chan struct{}
}

func (c *counter) Completed(_ uint64, res kernel.Result) {
	if res.Err != nil {
		panic(res.Err)
	}
	c.done.Add(1)
	<-c.room
}
func (c *counter) Flush()      {}
func (c *counter) Ended(error) {}
func (c *counter) Deliver(batch []kernel.Delivery) {
	for _, d := range batch {
		c.member.Settle(kernel.Accept, d.Partition, d.Offset, d.Offset)
	}
	c.member.Credit(len(batch))
	if c.got.Add(int64(len(batch))) >= c.want {
		signal(c.reached)
	}
}

func benchmark(b *testing.B, g *Group, publishers, window int) {
	parts, id := queue(b, g, 1, 1, kernel.RetainUsed)
	set := g.Targets(parts...)
	consumer := &counter{want: int64(b.N), reached: make(chan struct{}, 1)}
	consumer.member = join(b, g, id, kernel.MemberOptions{}, consumer)
	consumer.member.Credit(1000)
	value := make([]byte, 100)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for p := range publishers {
		n := b.N / publishers
		if p == 0 {
			n += b.N % publishers
		}
		wg.Go(func() {
			c := &counter{room: make(chan struct{}, window)}
			r := kernel.Record{Key: []byte("bench"), Value: value, Timestamp: 1}
			for range n {
				c.room <- struct{}{}
				if err := g.Wait(nil); err != nil {
					b.Error(err)
				}
				if err := g.Append(set, &r, c, 0); err != nil {
					b.Error(err)
				}
			}
			for range window {
				c.room <- struct{}{}
			}
		})
	}
	wg.Wait()
	<-consumer.reached
	b.StopTimer()
	consumer.member.Leave()
	b.ReportMetric(float64(g.metrics.Entries.Load())/float64(b.N), "entries/op")
}

func BenchmarkAppendDeliverSettle(b *testing.B) {
	b.Run("durable", func(b *testing.B) {
		n := newNode(b, vfs.OS(), b.TempDir())
		g := n.open()
		defer n.close(g)
		benchmark(b, g, 4, 1000)
	})
	b.Run("volatile", func(b *testing.B) { benchmark(b, volatileGroup(b, Limits{}), 4, 1000) })
}

// BenchmarkManyQueues spreads the records over a thousand queues with a
// consumer each.
func BenchmarkManyQueues(b *testing.B) {
	const queues = 1000
	n := newNode(b, vfs.OS(), b.TempDir())
	g := n.open()
	defer n.close(g)
	var sets []*TargetSet
	for i := range queues {
		id := kernel.TopicID{0: byte(i >> 8), 1: byte(i), 2: 1}
		parts, err := g.CreatePartitions(soon(b), id, []PartitionSpec{{Retention: kernel.RetainDay}}, 1)
		must(b, err)
		gid := group(b, g, GroupSpec{Address: kernel.QueueAddress("/", fmt.Sprint(i)), Topic: id, FromStart: true, Owner: true})
		c := &counter{want: 1 << 62}
		c.member = join(b, g, gid, kernel.MemberOptions{}, c)
		c.member.Credit(100)
		sets = append(sets, g.Targets(parts...))
	}
	r := kernel.Record{Key: []byte("bench"), Value: make([]byte, 100), Timestamp: 1}
	const window = 4000
	c := &counter{room: make(chan struct{}, window)}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c.room <- struct{}{}
		must(b, g.Append(sets[i%queues], &r, c, 0))
	}
	for range window {
		c.room <- struct{}{}
	}
	b.StopTimer()
}

// BenchmarkIdleQueue measures the memory of a queue that nobody uses.
func BenchmarkIdleQueue(b *testing.B) {
	g := volatileGroup(b, Limits{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range b.N {
		id := kernel.TopicID{0: byte(i >> 16), 1: byte(i >> 8), 2: byte(i), 3: 1}
		_, err := g.CreatePartitions(soon(b), id, []PartitionSpec{{Retention: kernel.RetainDay}}, 1)
		must(b, err)
		group(b, g, GroupSpec{Address: kernel.QueueAddress("/", fmt.Sprint(i)), Topic: id, FromStart: true, Owner: true})
	}
	b.StopTimer()
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(b.N), "heap-B/queue")
}

// BenchmarkLonePublish is the latency of one publish at a time.
func BenchmarkLonePublish(b *testing.B) {
	n := newNode(b, vfs.OS(), b.TempDir())
	g := n.open()
	defer n.close(g)
	parts, _ := queue(b, g, 1, 1, kernel.RetainUsed)
	set := g.Targets(parts...)
	c := &counter{room: make(chan struct{}, 1)}
	r := kernel.Record{Value: make([]byte, 100)}
	b.ResetTimer()
	for range b.N {
		c.room <- struct{}{}
		if err := g.Append(set, &r, c, 0); err != nil {
			b.Fatal(err)
		}
		c.room <- struct{}{}
		<-c.room
	}
}
