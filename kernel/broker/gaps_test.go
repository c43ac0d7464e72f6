package broker

import (
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestCrashGaps loses power before every sync of a change. Whatever is left of
// it, the client that repeats it gets what it wants.
func TestCrashGaps(t *testing.T) {
	topic := func(t *testing.T, c *Conn) {
		if _, err := c.CreateTopic(soon(t), TopicSpec{Name: "q", Partitions: 1, Retention: kernel.RetainWeek}); err != nil {
			t.Fatal(err)
		}
		publisher(t, c).topic("q", "1")
	}
	queue := func(t *testing.T, c *Conn) {
		declare(t, c, QueueSpec{Name: "q", Durable: true})
		declare(t, c, QueueSpec{Name: "$share/other/q", Durable: true})
		bind(t, c, "amq.direct", "q", "k")
		publisher(t, c).exchange("amq.direct", "k", "1")
	}
	ready := func(want int64) func(t *testing.T, c *Conn) {
		return func(t *testing.T, c *Conn) {
			if info, err := c.Queue("q"); err != nil || info.Ready != want {
				t.Errorf("%+v, %v", info, err)
			}
		}
	}
	for _, tt := range []struct {
		name          string
		before        func(t *testing.T, c *Conn)
		change, check func(t *testing.T, c *Conn)
	}{
		{name: "declare", change: func(t *testing.T, c *Conn) { declare(t, c, QueueSpec{Name: "q", Durable: true}) }, check: ready(0)},
		{name: "adopt", before: topic, change: func(t *testing.T, c *Conn) { declare(t, c, QueueSpec{Name: "q", Durable: true}) }, check: ready(1)},
		{name: "adopt a subscription's", before: func(t *testing.T, c *Conn) {
			s, _ := attach(t, c, "client", true, kernel.SessionForever)
			subscribe(t, s, "q", 1)
			publisher(t, c).topic("q", "1")
			s.Detach(kernel.SessionForever)
		}, change: func(t *testing.T, c *Conn) { declare(t, c, QueueSpec{Name: "q", Durable: true}) }, check: ready(1)},
		{name: "adopt a provisional", before: func(t *testing.T, c *Conn) { publisher(t, c).exchange("", "q", "1") },
			change: func(t *testing.T, c *Conn) { declare(t, c, QueueSpec{Name: "q", Durable: true}) }, check: ready(1)},
		{name: "bind", before: queue, change: func(t *testing.T, c *Conn) { bind(t, c, "amq.fanout", "q", "") }, check: func(t *testing.T, c *Conn) {
			publisher(t, c).exchange("amq.fanout", "", "2")
			ready(2)(t, c)
		}},
		{name: "delete", before: queue, change: func(t *testing.T, c *Conn) {
			if _, err := c.DeleteQueue(soon(t), "q", false, false); err != nil {
				t.Error(err)
			}
		}, check: func(t *testing.T, c *Conn) {
			_, err := c.Queue("q")
			wantCode(t, err, kernel.CodeNotFound)
			if info, err := c.Queue("$share/other/q"); err != nil || info.Ready != 1 {
				t.Errorf("%+v, %v", info, err)
			}
			if n := publisher(t, c).exchange("amq.direct", "k", "2"); n != 0 {
				t.Errorf("the binding matches %d", n)
			}
			declare(t, c, QueueSpec{Name: "q", Durable: true})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := vfs.NewMem()
			fault := vfs.NewFault(disk)
			b := open(t, "/node", func(c *Config) { c.FS = fault })
			c := connect(t, b)
			if tt.before != nil {
				tt.before(t, c)
			}
			var mu sync.Mutex
			var gaps []*vfs.MemFS
			fault.Add(vfs.Rule{Op: vfs.OpSync, Name: "*.wal", Before: func(vfs.Op, string) {
				mu.Lock()
				defer mu.Unlock()
				gaps = append(gaps, disk.CrashClone(nil))
			}})
			tt.change(t, c)
			fault.Clear()
			mu.Lock()
			gaps = append(gaps, disk.CrashClone(nil))
			mu.Unlock()
			shut(t, b)
			for i, gap := range gaps {
				b := open(t, "/node", func(c *Config) { c.FS = gap })
				c := connect(t, b)
				tt.change(t, c)
				tt.check(t, c)
				shut(t, b)
				if t.Failed() {
					t.Fatalf("after losing power before sync %d of %d", i, len(gaps))
				}
			}
		})
	}
}

// TestBindUnbindRace binds and unbinds the same thing from several connections:
// memory and catalog end up the same, whoever was last.
func TestBindUnbindRace(t *testing.T) {
	b := open(t, "/node", func(c *Config) { c.FS = vfs.NewMem() })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	bd := kernel.Binding{Exchange: kernel.ExchangeDirect, Queue: "q", Key: "k"}
	for round := range 200 {
		var wg sync.WaitGroup
		for i := range 24 {
			wg.Go(func() {
				change := c.Bind
				if i%3 == 2 {
					change = c.Unbind
				}
				if err := change(soon(t), bd); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		durable := false
		b.catalog.State().Bindings(func(*catalog.Binding) { durable = true })
		if bound := c.tenant.table.Load().HasBinding(bd); bound != durable {
			t.Fatalf("round %d: bound %v, in the catalog %v", round, bound, durable)
		}
	}
}
