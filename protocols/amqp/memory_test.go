package amqp

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// TestCreditFollowsSize: messages that become large do not come in the numbers
// that small ones came in.
func TestCreditFollowsSize(t *testing.T) {
	n, addr := startServer(t, Config{})
	p := openChannel(t, dial(t, addr))
	_, err := p.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.BasicConsume{Queue: "q", NoAck: true})
	want[wire.BasicConsumeOk](r)
	const small, large = 600, 12
	for range small {
		publish(t, p, "q", amqp.Publishing{Body: make([]byte, 10)})
	}
	for range small { // the credit is at its most then
		want[wire.BasicDeliver](r)
	}
	for range large {
		publish(t, p, "q", amqp.Publishing{Body: make([]byte, 8<<20)})
	}
	wait(t, n, func() bool { return len(n.queues["q"].batches) == small+large })
	n.mu.Lock()
	handed := large - len(n.queues["q"].ready)
	n.mu.Unlock()
	if handed > 4 { // in the buffers here, in the writer's hands, in the kernel's
		t.Errorf("%d large messages were handed out to a client that does not read", handed)
	}
}

// TestOutTotal: once all clients together have too much waiting, large messages
// wait, but for a client that reads.
func TestOutTotal(t *testing.T) { synctest.Test(t, testOutTotal) }

func testOutTotal(t *testing.T) {
	const clients, size, total, limit = 20, 256 << 10, 400, 4 << 20
	n := newFakeNode()
	q := &fakeQueue{name: "q", node: n, failed: map[int64]int32{}}
	n.queues["q"] = q
	s := newServer(Config{OutTotal: limit}, n)
	var serving sync.WaitGroup
	var all []*raw
	end := func() {
		for _, r := range all {
			r.nc.Close()
		}
		serving.Wait()
	}
	defer end()
	consume := func() *raw {
		server, client := net.Pipe() // no buffer in it
		serving.Go(func() { s.handle(server) })
		r := newRaw(t, client)
		all = append(all, r)
		r.open(0)
		r.send(1, &wire.BasicConsume{Queue: "q", NoAck: true})
		want[wire.BasicConsumeOk](r)
		return r
	}
	publish := func(messages int) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for range messages {
			q.append(&kernel.Record{Value: make([]byte, size)})
		}
	}
	ready := func() int {
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(q.ready)
	}
	reader := consume()
	publish(1)
	want[wire.BasicDeliver](reader)
	publish(total)
	before := ready()
	for range clients {
		consume()
	}
	stuck := before - ready()
	if used := s.out.Used(); used < limit || used > limit+limit/2 {
		t.Errorf("%d bytes wait for clients that do not read", used)
	}
	for range total - stuck {
		want[wire.BasicDeliver](reader)
	}
	end()
	if used := s.out.Used(); used != 0 {
		t.Errorf("%d bytes are still booked", used)
	}
}

// TestStalledClientIsCut: who does not read while memory is short loses the
// connection; nobody does while there is memory.
func TestStalledClientIsCut(t *testing.T) {
	for _, over := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			total := listener.NewMemory(1000)
			o := newOutbox(total)
			server, client := net.Pipe()
			defer client.Close()
			done := make(chan error, 1)
			go func() { done <- o.write(server, make([]byte, 100)) }()
			one := make([]byte, 1)
			for range 3 {
				time.Sleep(stallTime - time.Second)
				if _, err := client.Read(one); err != nil {
					t.Error(err)
				}
			}
			if over {
				total.Add(2000)
			}
			time.Sleep(2*stallTime + time.Second)
			synctest.Wait()
			select {
			case err := <-done:
				if !over || err != errStalled {
					t.Errorf("over %v: %v", over, err)
				}
			default:
				if over {
					t.Error("the client is still waited for")
				}
				o.hurry(server)
				if err := <-done; err == nil || err == errStalled {
					t.Errorf("at the end: %v", err)
				}
			}
		})
	}
}

// TestInTotal: a body beyond what all clients together may send waits for
// memory, and its connection is closed if there is none.
func TestInTotal(t *testing.T) {
	_, s, addr := startServing(t, Config{InTotal: 1 << 20})
	booked := func(ok func(int64) bool) { wait(t, newFakeNode(), func() bool { return ok(s.in.Used()) }) }
	begin := func(r *raw) {
		b := wire.AppendMethod(nil, 1, &wire.BasicPublish{RoutingKey: "q"})
		b = append(b, headerFrame(60, 1_000_000, 0)...)
		for range 8 { // fits alone, but not twice
			b = append(b, frame(3, 1, make([]byte, 100_000))...)
		}
		r.bytes(b)
	}
	first, second := rawOpen(t, addr, 0), rawOpen(t, addr, 0)
	begin(first)
	booked(func(used int64) bool { return used == 1_000_000 })
	begin(second)
	closed := func(r *raw) {
		m, _, err := r.next()
		if c, ok := m.(*wire.ConnectionClose); err != nil || !ok || c.ReplyCode != 506 {
			t.Errorf("%+v, %v", m, err)
		}
	}
	closed(second)
	second.send(0, &wire.ConnectionCloseOk{})
	second.gone()
	third := openChannel(t, dial(t, addr))
	must(t, third.Confirm(false))
	third.QueueDeclare("q", true, false, false, false, nil)
	first.nc.Close()
	booked(func(used int64) bool { return used == 0 })
	d, err := third.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Body: make([]byte, 900_000)})
	must(t, err)
	if !d.Wait() {
		t.Error("memory was not given back")
	}
}
