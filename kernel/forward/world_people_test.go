package forward

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// populate makes what the clients share, and starts them.
func (w *world) populate() {
	made := make(chan struct{})
	w.client("first", func(c *wclient) {
		c.connect(-1)
		ctx := context.Background()
		c.does("declares")
		c.must(c.conn.DeclareExchange(ctx, kernel.Exchange{Name: "all", Type: kernel.Fanout, Durable: true}))
		for _, q := range []string{"a", "b", "lock"} {
			_, err := c.conn.DeclareQueue(ctx, broker.QueueSpec{Name: q, Durable: true})
			c.must(err)
			c.must(c.conn.Bind(ctx, kernel.Binding{Exchange: "all", Queue: q}))
			w.truth.declare(q)
		}
		for _, q := range []string{"up", "wills"} {
			_, err := c.conn.DeclareQueue(ctx, broker.QueueSpec{Name: q, Durable: true})
			c.must(err)
			c.must(c.conn.Bind(ctx, kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: q, Key: q + ".#"}))
		}
		w.truth.declare("up")
		c.close()
		close(made)
	})
	<-made
	for i := range 1 + w.rnd.IntN(3) {
		w.publishes(fmt.Sprint("publisher", i), "a", "b", "lock")
	}
	for i := range 1 + w.rnd.IntN(4) {
		w.consumes(fmt.Sprint("consumer", i), "a", "b")
	}
	for i := range w.rnd.IntN(3) {
		w.locks(fmt.Sprint("locker", i), "lock")
	}
	for i := range w.rnd.IntN(3) {
		w.asks(fmt.Sprint("asker", i))
	}
	devices := w.rnd.IntN(3)
	var ready sync.WaitGroup
	ready.Add(devices)
	for i := range devices {
		w.devices(fmt.Sprint("device", i), ready.Done)
	}
	ready.Wait()
	for i := range min(devices, 1) * (1 + w.rnd.IntN(2)) {
		w.talks(fmt.Sprint("talker", i))
	}
}

// wasker has a queue of its own in memory, that answers go to by a binding.
type wasker struct {
	*wclient
	queue string
	wake  chan struct{}

	mu   sync.Mutex
	got  map[string]int
	last int64
}

// Deliver implements kernel.Consumer.
func (k *wasker) Deliver(batch []kernel.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range batch {
		if d.Offset <= k.last && !d.Redelivered {
			k.w.truth.Failf("%s: the answer at %d comes after %d", k.id, d.Offset, k.last)
		}
		k.last = max(k.last, d.Offset)
		k.got[string(d.Record.Value)]++
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Ended implements kernel.Consumer.
func (k *wasker) Ended(reason error) { k.w.truth.Failf("%s: its own queue: %v", k.id, reason) }

// asks is the life of a client that publishes to a queue of its own, as if somebody
// answered: whatever hosts come and go, it has a target.
func (w *world) asks(name string) {
	w.client(name, func(c *wclient) {
		k := &wasker{wclient: c, wake: make(chan struct{}, 1), got: make(map[string]int), last: -1}
		c.connect(-1)
		if !k.prepare() {
			return
		}
		for n := 1; c.going(); n++ {
			k.ask(n, false)
			c.pause(100 * time.Millisecond)
		}
		for n := 1; n <= 3 && !w.truth.failed(); n++ { // nothing happens any more
			k.ask(-n, true)
		}
		c.close()
	})
}

// prepare declares the queue.
func (k *wasker) prepare() bool {
	ctx := context.Background()
	k.does("declares a queue of its own")
	spec := broker.QueueSpec{Exclusive: true, AutoDelete: k.rnd.IntN(2) == 0}
	if k.rnd.IntN(2) == 0 {
		spec.Name = k.name
	}
	info, err := k.conn.DeclareQueue(ctx, spec)
	if !k.must(err) {
		return false
	}
	k.queue = info.Name
	k.does("binds it")
	if !k.must(k.conn.Bind(ctx, kernel.Binding{Exchange: kernel.ExchangeDirect, Queue: k.queue, Key: k.name})) {
		return false
	}
	addr, err := k.conn.Address(k.queue)
	if !k.must(err) {
		return false
	}
	k.does("joins it")
	m, err := k.conn.Join(ctx, addr, kernel.MemberOptions{AutoSettle: true, Exclusive: k.rnd.IntN(2) == 0}, nil, k)
	if !k.must(err) {
		return false
	}
	m.Credit(1 << 20)
	return true
}

// ask publishes, and waits for the answer; sure says that it must come.
func (k *wasker) ask(n int, sure bool) {
	token := fmt.Sprint(k.id, "/", n)
	for limit := time.Now().Add(historyTime); ; {
		k.does("asks %d", n)
		once := &wonce{done: make(chan error, 1)}
		p := k.conn.Publisher(once)
		matched, err := p.ToExchange(kernel.ExchangeDirect, k.name, &kernel.Record{Value: []byte(token)}, kernel.PublishOptions{Mandatory: true}, 1)
		if err == nil && matched == 0 {
			k.w.truth.Failf("%s: its own queue is not there", k.id)
			return
		}
		if err == nil {
			k.does("waits for the outcome of %d", n)
			err = <-once.done
		}
		p.Close()
		if err == nil {
			break
		}
		if code := kernel.CodeOf(err); code != kernel.CodePressure && code != kernel.CodeUnavailable && code != kernel.CodeUnknown || time.Now().After(limit) {
			k.w.truth.Failf("%s asks: %v", k.id, err)
			return
		}
		timer := time.NewTimer(5 * time.Millisecond)
		<-timer.C
	}
	k.await(n, token, sure)
}

// await waits for an answer, which a host may have taken with it.
func (k *wasker) await(n int, token string, sure bool) {
	k.does("waits for answer %d", n)
	limit := time.NewTimer(2 * time.Second)
	defer limit.Stop()
	for {
		k.mu.Lock()
		times := k.got[token]
		k.mu.Unlock()
		if times > 0 {
			k.w.truth.count("replies")
			return
		}
		select {
		case <-k.wake:
		case <-limit.C:
			if sure {
				k.w.truth.Failf("%s: answer %d does not come", k.id, n)
			}
			return
		}
	}
}

// wonce takes one outcome.
type wonce struct{ done chan error }

// Completed implements kernel.Completion.
func (o *wonce) Completed(_ uint64, res kernel.Result) {
	select {
	case o.done <- res.Err:
	default:
		panic("a second outcome")
	}
}

// Flush implements kernel.Completion.
func (o *wonce) Flush() {}
