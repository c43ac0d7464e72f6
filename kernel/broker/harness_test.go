package broker

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
)

func TestMain(m *testing.M) {
	// Badger starts these for the process and never ends them.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// patience is for what must come; nothing waits for all of it unless a test fails.
const patience = time.Minute

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}

// open opens a broker on dir, closed at the end of the test.
func open(t testing.TB, dir string, change ...func(*Config)) *Broker {
	t.Helper()
	cfg := Config{DataDir: dir, Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	for _, fn := range change {
		fn(&cfg)
	}
	b, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, b) })
	return b
}

func shut(t testing.TB, b *Broker) {
	t.Helper()
	b.mu.Lock()
	conns := b.connections()
	b.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	if err := b.Close(soon(t)); err != nil {
		t.Error(err)
	}
}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t testing.TB, b *Broker) *Conn {
	t.Helper()
	id, err := b.Authenticate(context.Background(), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// outcomes collects completions.
type outcomes struct {
	mu   sync.Mutex
	got  map[uint64]kernel.Result
	wake chan struct{}
}

func newOutcomes() *outcomes {
	return &outcomes{got: make(map[uint64]kernel.Result), wake: make(chan struct{}, 1)}
}

func (o *outcomes) Completed(token uint64, res kernel.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice := o.got[token]; twice {
		panic("completed twice")
	}
	o.got[token] = res
}

func (o *outcomes) Flush() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outcomes) wait(t testing.TB, token uint64) kernel.Result {
	t.Helper()
	limit := time.After(patience)
	for {
		o.mu.Lock()
		res, ok := o.got[token]
		o.mu.Unlock()
		if ok {
			return res
		}
		select {
		case <-o.wake:
		case <-limit:
			t.Fatalf("publish %d was not completed", token)
		}
	}
}

// pub publishes and waits for each outcome.
type pub struct {
	t    testing.TB
	p    *Publisher
	done *outcomes
	next uint64
}

func publisher(t testing.TB, c *Conn) *pub {
	done := newOutcomes()
	p := c.Publisher(done)
	t.Cleanup(p.Close)
	return &pub{t: t, p: p, done: done}
}

func (p *pub) exchange(exchange, key, value string) int {
	p.t.Helper()
	p.next++
	n, err := p.p.ToExchange(exchange, key, &kernel.Record{Key: []byte(key), Value: []byte(value)}, kernel.PublishOptions{}, p.next)
	if err != nil {
		p.t.Fatalf("publish %s to %q %q: %v", value, exchange, key, err)
	}
	if res := p.done.wait(p.t, p.next); res.Err != nil {
		p.t.Fatalf("publish %s to %q %q: %v", value, exchange, key, res.Err)
	}
	return n
}

func (p *pub) topic(name, value string) int {
	p.t.Helper()
	p.next++
	n, err := p.p.ToTopic(name, &kernel.Record{Key: []byte(name), Value: []byte(value)}, p.next)
	if err != nil {
		p.t.Fatalf("publish %s to %s: %v", value, name, err)
	}
	if res := p.done.wait(p.t, p.next); res.Err != nil {
		p.t.Fatalf("publish %s to %s: %v", value, name, res.Err)
	}
	return n
}

// inbox is a consumer and a live subscriber that keeps what it gets.
type inbox struct {
	mu     sync.Mutex
	wake   chan struct{}
	values []string
	offset map[string]int64
	ended  error
	room   chan struct{} // nil = there is always room
	max    int
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1), offset: make(map[string]int64)} }

func (in *inbox) note(value string) {
	in.values = append(in.values, value)
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) Deliver(batch []kernel.Delivery) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for i := range batch {
		v := string(batch[i].Record.Value)
		in.offset[v] = batch[i].Offset
		in.note(v)
	}
}

func (in *inbox) Ended(reason error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = reason
	in.note("(ended)")
}

func (in *inbox) Live(m *kernel.LiveMessage, handle uint64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.room != nil && len(in.values) >= in.max {
		return false
	}
	in.note(fmt.Sprintf("%s=%s", m.Name, m.Record.Value))
	return true
}

func (in *inbox) Room() <-chan struct{} {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.room == nil || len(in.values) < in.max {
		open := make(chan struct{})
		close(open)
		return open
	}
	return in.room
}

// wait returns the values once there are n of them.
func (in *inbox) wait(t testing.TB, n int) []string {
	t.Helper()
	limit := time.After(patience)
	for {
		in.mu.Lock()
		got := append([]string(nil), in.values...)
		in.mu.Unlock()
		if len(got) >= n {
			if len(got) > n {
				t.Fatalf("got %d: %.20q, want %d", len(got), got, n)
			}
			return got
		}
		select {
		case <-in.wake:
		case <-limit:
			t.Fatalf("got %d: %.20q, want %d", len(got), got, n)
		}
	}
}

func declare(t testing.TB, c *Conn, q QueueSpec) QueueInfo {
	t.Helper()
	info, err := c.DeclareQueue(soon(t), q)
	if err != nil {
		t.Fatalf("declare %q: %v", q.Name, err)
	}
	return info
}

func consume(t testing.TB, c *Conn, name string, opt kernel.MemberOptions, credit int) (*Member, *inbox) {
	t.Helper()
	addr, err := c.Address(name)
	if err != nil {
		t.Fatal(err)
	}
	in := newInbox()
	m, err := c.Join(soon(t), addr, opt, in)
	if err != nil {
		t.Fatalf("join %s: %v", name, err)
	}
	m.Credit(credit)
	return m, in
}

func bind(t testing.TB, c *Conn, exchange, queue, key string) {
	t.Helper()
	if err := c.Bind(soon(t), kernel.Binding{Exchange: exchange, Queue: queue, Key: key}); err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, code kernel.Code) {
	t.Helper()
	if err == nil || kernel.CodeOf(err) != code {
		t.Errorf("got error %v, want code %d", err, code)
	}
}
