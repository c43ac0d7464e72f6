package broker

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// clock is a clock that tests move, ahead of the real one.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// pass lets time pass and what has become due then happen.
func (c *clock) pass(b *Broker, d time.Duration) {
	c.ahead.Add(int64(d))
	b.expiry.fire()
}

func expiring(name string, ms int64) QueueSpec {
	return QueueSpec{Name: name, Durable: true, Arguments: []kernel.Argument{{Name: "x-expires", Value: ms}}}
}

func hasQueue(b *Broker, name string) bool {
	_, ok := b.QueueStatus(kernel.DefaultTenant, name)
	return ok
}

const hour = int64(time.Hour / time.Millisecond)

// TestUnusedQueuesExpire tells what is a use of a queue from what is none, as
// RabbitMQ does.
func TestUnusedQueuesExpire(t *testing.T) {
	for _, tc := range []struct {
		name  string
		spec  QueueSpec
		use   func(*testing.T, *Conn)
		stays bool
	}{
		{name: "nothing", spec: expiring("q", hour)},
		{name: "publish", spec: expiring("q", hour), use: func(t *testing.T, c *Conn) { publisher(t, c).exchange("", "q", "1") }},
		{name: "declaration", spec: expiring("q", hour), stays: true, use: func(t *testing.T, c *Conn) { declare(t, c, expiring("q", hour)) }},
		{name: "passive declaration", spec: expiring("q", hour), stays: true, use: func(t *testing.T, c *Conn) {
			if _, err := c.Queue("q"); err != nil {
				t.Error(err)
			}
		}},
		{
			name: "declaration of a quorum queue", spec: QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum, Arguments: expiring("q", hour).Arguments},
			use: func(t *testing.T, c *Conn) {
				declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum, Arguments: expiring("q", hour).Arguments})
			},
		},
		{name: "get from the empty queue", spec: expiring("q", hour), stays: true, use: func(t *testing.T, c *Conn) {
			m, _ := consume(t, c, "q", kernel.MemberOptions{Pull: true}, 0)
			if err := m.Acquire(1, func([]kernel.Delivery, int64) {}); err != nil {
				t.Error(err)
			}
		}},
		{name: "consumer that has left", spec: expiring("q", hour), stays: true, use: func(t *testing.T, c *Conn) {
			m, _ := consume(t, c, "q", kernel.MemberOptions{}, 1)
			m.Leave()
		}},
		{name: "exclusive", spec: QueueSpec{Name: "q", Exclusive: true, Arguments: expiring("q", hour).Arguments}},
		{name: "auto-delete, never used", spec: QueueSpec{Name: "q", AutoDelete: true, Arguments: expiring("q", hour).Arguments}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var now clock
			b := open(t, t.TempDir(), func(c *Config) { c.Now = now.now })
			c := connect(t, b)
			declare(t, c, tc.spec)
			now.pass(b, 50*time.Minute)
			if !hasQueue(b, "q") {
				t.Fatal("it went before its time")
			}
			if tc.use != nil {
				tc.use(t, c)
			}
			now.pass(b, 50*time.Minute)
			if hasQueue(b, "q") != tc.stays {
				t.Fatalf("there: %v, want %v", !tc.stays, tc.stays)
			}
			if tc.stays {
				now.pass(b, time.Hour)
			}
			if hasQueue(b, "q") {
				t.Error("it never goes")
			}
			publishLate(t, c)
		})
	}
}

// publishLate: a message to a queue that has expired does not make it anew.
func publishLate(t *testing.T, c *Conn) {
	t.Helper()
	if n := publisher(t, c).exchange("", "q", "late"); n != 0 {
		t.Errorf("a late message made %d queues", n)
	}
}

// TestEndlessExpiry: a policy may say more than there are nanoseconds.
func TestEndlessExpiry(t *testing.T) {
	var now clock
	b := open(t, t.TempDir(), func(c *Config) { c.Now = now.now })
	declare(t, connect(t, b), QueueSpec{Name: "q"})
	putPolicy(t, b, policyOf("p", "", kernel.PolicyQueues, "expires", 1<<62))
	now.pass(b, 50*365*24*time.Hour)
	if !hasQueue(b, "q") {
		t.Error("it went")
	}
	b.expiry.mu.Lock()
	defer b.expiry.mu.Unlock()
	if len(b.expiry.waiting) != 1 || b.expiry.waiting[0].at <= b.uptime() {
		t.Error("it is looked at again and again")
	}
}

func TestConsumersKeepQueues(t *testing.T) {
	var now clock
	b := open(t, t.TempDir(), func(c *Config) { c.Now = now.now })
	c := connect(t, b)
	declare(t, c, expiring("q", hour))
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 5)
	now.pass(b, 3*time.Hour)
	publisher(t, c).exchange("", "q", "1")
	in.wait(t, 1)
	m.Leave()
	now.pass(b, 59*time.Minute)
	if !hasQueue(b, "q") {
		t.Error("its time began before the consumer left")
	}
	now.pass(b, 2*time.Minute)
	if hasQueue(b, "q") {
		t.Error("it stays after the consumer has left")
	}
}

// TestExpiryBeginsAnewAtStart also sees the real timer at work.
func TestExpiryBeginsAnewAtStart(t *testing.T) {
	dir := t.TempDir()
	var now clock
	b := open(t, dir, func(c *Config) { c.Now = now.now })
	c := connect(t, b)
	declare(t, c, expiring("long", hour))
	declare(t, c, expiring("short", 100))
	shut(t, b)
	now.ahead.Add(int64(50 * time.Minute))
	b = open(t, dir, func(c *Config) { c.Now = now.now })
	until(t, "the short one is gone", func() bool { return !hasQueue(b, "short") })
	now.pass(b, 50*time.Minute)
	if !hasQueue(b, "long") {
		t.Fatal("the time before the start counted")
	}
	now.pass(b, 11*time.Minute)
	if hasQueue(b, "long") {
		t.Error("it stays")
	}
}

// TestManyQueuesExpire: one timer deletes them all, and none that it should not.
func TestManyQueuesExpire(t *testing.T) {
	var now clock
	b := open(t, t.TempDir(), func(c *Config) { c.Now = now.now })
	c := connect(t, b)
	const n = 200
	for i := range n {
		q := expiring("q"+string(rune('a'+i%26))+time.Duration(i).String(), hour*int64(1+i%2))
		q.Durable = false
		declare(t, c, q)
	}
	b.timers.mu.Lock()
	timers := len(b.timers.pending)
	b.timers.mu.Unlock()
	if timers > 5 {
		t.Errorf("%d timers", timers)
	}
	for hours, want := range []int{n, n / 2, 0} {
		if got := len(b.QueueStatuses()); got != want {
			t.Errorf("after %d h: %d queues, want %d", hours, got, want)
		}
		now.pass(b, time.Hour+time.Minute)
	}
}
