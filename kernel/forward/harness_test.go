package forward

import (
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

func TestMain(m *testing.M) {
	// Badger starts these for the process and never ends them.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// patience is for what must come; nothing waits for all of it unless a test fails.
const patience = time.Minute

var loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40000}

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens a broker, closed at the end of the test.
func open(t testing.TB, change ...func(*broker.Config)) *broker.Broker {
	t.Helper()
	cfg := broker.Config{DataDir: t.TempDir(), Logger: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)}
	for _, fn := range change {
		fn(&cfg)
	}
	b, err := broker.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return b
}

// end is one end of a stream in memory; few messages fit between the two.
type end struct {
	in, out chan []byte
	gone    chan struct{} // closed when either has closed
	once    *sync.Once
	over    chan struct{} // closed when the end that serves has returned
	buf     []byte
	spoil   func([]byte) []byte           // nil = nothing is wrong with the stream
	gate    atomic.Pointer[chan struct{}] // Recv waits until it is closed
}

func pipe() (near, far *end) {
	a, b, gone, over := make(chan []byte, 4), make(chan []byte, 4), make(chan struct{}), make(chan struct{})
	once := new(sync.Once)
	return &end{in: a, out: b, gone: gone, once: once, over: over}, &end{in: b, out: a, gone: gone, once: once, over: over}
}

func (e *end) Send(b []byte) error {
	b = slices.Clone(b)
	if e.spoil != nil {
		b = e.spoil(b)
	}
	select {
	case <-e.gone:
		return io.ErrClosedPipe
	default:
	}
	select {
	case e.out <- b:
		return nil
	case <-e.gone:
		return io.ErrClosedPipe
	}
}

func (e *end) Recv() ([]byte, error) {
	m, err := e.recv()
	if gate := e.gate.Load(); gate != nil && err == nil {
		select {
		case <-*gate:
		case <-e.gone:
			return nil, io.ErrClosedPipe // it was on its way
		}
	}
	return m, err
}

func (e *end) recv() ([]byte, error) {
	select {
	case <-e.gone:
		return nil, io.ErrClosedPipe
	default:
	}
	select {
	case b := <-e.in:
		e.buf = append(e.buf[:0], b...) // valid until the next Recv, and not longer
		return e.buf, nil
	case <-e.gone:
		return nil, io.ErrClosedPipe
	case <-e.over:
		select {
		case b := <-e.in:
			e.buf = append(e.buf[:0], b...)
			return e.buf, nil
		default:
			return nil, io.EOF
		}
	}
}

func (e *end) Close() { e.once.Do(func() { close(e.gone) }) }

// network is Peers in memory.
type network struct {
	t      testing.TB
	server *Server
	work   sync.WaitGroup
	spoil  func([]byte) []byte // what clients send
	near   *end                // the last that was opened
	far    *end
}

func (n *network) OpenClient(context.Context, string) (Stream, error) {
	near, far := pipe()
	near.spoil = n.spoil
	n.near, n.far = near, far
	n.work.Go(func() {
		if err := n.server.ServeClient("2", far); err == nil {
			close(far.over)
		}
		// an error breaks the stream at once
		select {
		case <-far.over:
		default:
			far.Close()
		}
	})
	return near, nil
}

func (n *network) CallLogin(ctx context.Context, _ string, req []byte) ([]byte, error) {
	return n.server.AnswerLogin(ctx, "2", req)
}

// serve serves a broker to clients of other nodes.
func serve(t testing.TB, b *broker.Broker) *network {
	n := &network{t: t, server: NewServer(func() *broker.Broker { return b }, zerolog.Nop())}
	t.Cleanup(func() {
		n.server.Close()
		n.work.Wait()
	})
	return n
}

// client is a front-end's connection.
type client struct {
	edge.Link
	t     testing.TB
	ended chan error // capacity 1
}

func (n *network) connect(t testing.TB, change ...func(*kernel.ConnectionInfo)) *client {
	t.Helper()
	h := NewHost(n, "1")
	id, err := h.Authenticate(soon(t), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	info := kernel.ConnectionInfo{Protocol: "test", Remote: loopback}
	for _, fn := range change {
		fn(&info)
	}
	c := &client{t: t, ended: make(chan error, 1)}
	c.Link, err = h.Connect(id, info, func(reason error) { c.ended <- reason })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// direct is the same client of the broker itself.
func direct(t testing.TB, b *broker.Broker) *broker.Conn {
	t.Helper()
	c, err := b.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (c *client) declare(name string) {
	c.t.Helper()
	if _, err := c.DeclareQueue(soon(c.t), broker.QueueSpec{Name: name, Durable: true}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) join(name string, opt kernel.MemberOptions, pool edge.Pool, to kernel.Consumer) edge.Member {
	c.t.Helper()
	addr, err := c.Address(name)
	if err != nil {
		c.t.Fatal(err)
	}
	m, err := c.Join(soon(c.t), addr, opt, pool, to)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// outcomes collects completions.
type outcomes struct {
	mu   sync.Mutex
	got  map[uint64]error
	wake chan struct{}
}

func newOutcomes() *outcomes {
	return &outcomes{got: make(map[uint64]error), wake: make(chan struct{}, 1)}
}

func (o *outcomes) Completed(token uint64, res kernel.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice := o.got[token]; twice {
		panic(fmt.Sprintf("publish %d completed twice", token))
	}
	o.got[token] = res.Err
}

func (o *outcomes) Flush() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// wait returns the outcomes once there are n of them.
func (o *outcomes) wait(t testing.TB, n int) map[uint64]error {
	t.Helper()
	limit := time.After(patience)
	for {
		o.mu.Lock()
		if len(o.got) >= n {
			defer o.mu.Unlock()
			if len(o.got) > n {
				t.Fatalf("%d outcomes, want %d", len(o.got), n)
			}
			return o.got
		}
		o.mu.Unlock()
		select {
		case <-o.wake:
		case <-limit:
			t.Fatalf("%d outcomes, want %d", len(o.got), n)
		}
	}
}

// inbox is a consumer that keeps what it gets.
type inbox struct {
	mu    sync.Mutex
	wake  chan struct{}
	got   []kernel.Delivery // with views of their own
	calls []int             // records in each Deliver call
	ended error
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

func (in *inbox) Deliver(batch []kernel.Delivery) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.take(batch)
}

func (in *inbox) take(batch []kernel.Delivery) {
	for _, d := range batch {
		d.Record = d.Record.Clone()
		in.got = append(in.got, d)
	}
	in.calls = append(in.calls, len(batch))
	in.note()
}

func (in *inbox) note() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *inbox) Ended(reason error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.ended = reason
	in.note()
}

// wait returns what came once there are n, and fails if there are more.
func (in *inbox) wait(t testing.TB, n int) []kernel.Delivery {
	t.Helper()
	in.until(t, func() bool { return len(in.got) >= n })
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.got) > n {
		t.Fatalf("got %d, want %d", len(in.got), n)
	}
	return slices.Clone(in.got)
}

func (in *inbox) until(t testing.TB, cond func() bool) {
	t.Helper()
	limit := time.After(patience)
	for {
		in.mu.Lock()
		ok := cond()
		in.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-in.wake:
		case <-limit:
			t.Fatalf("got %d", len(in.got))
		}
	}
}

// eventually waits for what no callback tells.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(patience); !cond(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func wantCode(t testing.TB, err error, code kernel.Code) {
	t.Helper()
	if err == nil || kernel.CodeOf(err) != code {
		t.Errorf("got error %v, want code %d", err, code)
	}
}

// collect is eventually for what the collector of garbage brings about.
func collect(t testing.TB, what string, cond func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		runtime.GC()
		return cond()
	})
}
