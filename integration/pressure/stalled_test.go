package pressure

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// valve is a socket that its client reads only while it is open.
type valve struct {
	net.Conn
	open *sync.RWMutex // write-locked while it is shut
}

func (v valve) Read(b []byte) (int, error) {
	v.open.RLock()
	conn := v.Conn // the gate is open
	v.open.RUnlock()
	return conn.Read(b)
}

// sleepers are consumers of one queue that stop to read all at once.
type sleepers struct {
	at    harness.Addresses
	queue string
	gate  sync.RWMutex

	mu   sync.Mutex
	seen map[uint64]int // messages acknowledged, by number
	ends sync.WaitGroup
	cut  atomic.Int32
}

// consume opens one connection and acknowledges what comes, with a new connection
// when it is cut off.
func (s *sleepers) consume(ctx context.Context, ready func()) {
	for ctx.Err() == nil {
		if err := s.once(ctx, ready); err != nil && ctx.Err() == nil {
			s.cut.Add(1)
		}
		ready = func() {}
	}
}

func (s *sleepers) once(ctx context.Context, ready func()) error {
	conn, err := amqp.DialConfig("amqp://guest:guest@"+s.at.AMQP, amqp.Config{Heartbeat: 10 * time.Minute,
		Dial: func(network, addr string) (net.Conn, error) {
			nc, err := net.Dial(network, addr)
			if err == nil {
				err = nc.(*net.TCPConn).SetReadBuffer(64 << 10)
			}
			return valve{nc, &s.gate}, err
		}})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.CloseDeadline(time.Now().Add(time.Second)) })
	defer stop()
	defer conn.CloseDeadline(time.Now().Add(time.Second))
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	from, err := ch.Consume(s.queue, "", false, false, false, false, nil)
	if err != nil {
		return err
	}
	ready()
	for d := range from {
		number := binary.BigEndian.Uint64(d.Body)
		if d.Ack(false) == nil {
			s.mu.Lock()
			s.seen[number]++
			s.mu.Unlock()
		}
	}
	return net.ErrClosed
}

func (s *sleepers) got() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// TestStalledConsumersOfLargeMessages: many consumers whose clients do not read
// take no more than the node's budget, however large their messages are and
// although they had credit before any message was there; others go on, and
// everything arrives once they read.
func TestStalledConsumersOfLargeMessages(t *testing.T) {
	const clients, messages, size, bound = 150, 160, 8 << 20, 1 << 30
	b := harness.Start(t, "--memory-limit", "1GiB") // an 8th of it is for what waits for AMQP clients
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "large")
	harness.Declare(t, ch, "small")
	harness.Must(t, ch.Confirm(false))
	s := &sleepers{at: b.Addresses, queue: "large", seen: make(map[uint64]int)}
	ctx, cancel := context.WithCancel(context.Background())
	defer s.ends.Wait()
	defer cancel()
	var ready sync.WaitGroup
	ready.Add(clients)
	for range clients {
		s.ends.Go(func() { s.consume(ctx, ready.Done) })
	}
	ready.Wait()
	s.gate.Lock()
	shut := true
	defer func() {
		if shut {
			s.gate.Unlock()
		}
	}()

	body := bytes.Repeat([]byte{7}, size)
	var peak int64
	for i := range messages {
		binary.BigEndian.PutUint64(body, uint64(i))
		harness.Confirmed(t, ch, "", "large", amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
		peak = max(peak, resident(t, b.PID()))
	}
	peak = max(peak, smallOnes(t, b), resident(t, b.PID()))
	t.Logf("at most %d MiB were resident while nobody read, %d were cut off", peak>>20, s.cut.Load())
	if peak > bound {
		t.Errorf("%d MiB are resident while %d consumers do not read", peak>>20, clients)
	}
	s.gate.Unlock()
	shut = false
	begin := time.Now()
	harness.Wait(t, 6*harness.Patience, "all large messages", func() bool {
		peak = max(peak, resident(t, b.PID()))
		return s.got() == messages
	})
	t.Logf("all large messages after %v, at most %d MiB", time.Since(begin), peak>>20)
}

// smallOnes checks that a consumer of another queue is served meanwhile, and
// returns the most memory it saw.
func smallOnes(t *testing.T, b *harness.Broker) (peak int64) {
	t.Helper()
	_, ch := b.DialAMQP(t)
	harness.Must(t, ch.Confirm(false))
	from, err := ch.Consume("small", "", false, false, false, false, nil)
	harness.Must(t, err)
	for range 200 {
		harness.Confirmed(t, ch, "", "small", amqp.Publishing{Body: make([]byte, 4000)})
		drain(t, from, 1)
		peak = max(peak, resident(t, b.PID()))
	}
	return peak
}
