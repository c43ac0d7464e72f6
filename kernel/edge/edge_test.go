package edge

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

func TestMain(m *testing.M) {
	// Badger starts these for the process and never ends them.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// patience is for what must come.
const patience = time.Minute

func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var newQueue = broker.QueueSpec{Name: "q", Durable: true}

// world is a node whose facade comes and goes under an edge.
type world struct {
	*Edge
	t    testing.TB
	node *broker.Node
	now  *broker.Broker
}

func newWorld(t testing.TB) *world {
	n, err := broker.OpenNode(soon(t), broker.Config{DataDir: t.TempDir(), Logger: zerolog.Nop()})
	must(t, err)
	w := &world{Edge: New(Config{Counters: n.Counters, Logger: zerolog.Nop()}), t: t, node: n}
	t.Cleanup(func() {
		w.rest()
		w.Close()
		must(t, n.Close())
	})
	return w
}

// serve lets a new facade serve.
func (w *world) serve() {
	w.t.Helper()
	b, err := w.node.Serve(soon(w.t))
	must(w.t, err)
	w.now = b
	w.Set(Local(b))
}

// rest ends the facade: it asks its connections to leave.
func (w *world) rest() {
	w.t.Helper()
	if w.now != nil {
		must(w.t, w.now.Close(soon(w.t)))
		w.now = nil
	}
}

// move lets another facade serve.
func (w *world) move() {
	w.rest()
	w.serve()
}

func (w *world) conn() *Conn {
	w.t.Helper()
	c, err := w.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Name: w.t.Name(), Remote: &net.TCPAddr{}},
		func(reason error) { w.t.Errorf("ended: %v", reason) })
	must(w.t, err)
	w.t.Cleanup(c.Close)
	return c
}

// outcomes counts what became of publishes.
type outcomes struct {
	mu   sync.Mutex
	seen map[uint64]error
	dup  int
}

func newOutcomes() *outcomes { return &outcomes{seen: map[uint64]error{}} }

// Completed implements kernel.Completion.
func (o *outcomes) Completed(token uint64, res kernel.Result) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice := o.seen[token]; twice {
		o.dup++
	}
	o.seen[token] = res.Err
}

// Flush implements kernel.Completion.
func (o *outcomes) Flush() {}

// reader is a consumer that keeps the offsets of what comes.
type reader struct {
	got   chan int64
	again chan bool
	ended chan error
}

func newReader() *reader {
	return &reader{make(chan int64, 1000), make(chan bool, 1000), make(chan error, 1)}
}

// Deliver implements kernel.Consumer.
func (r *reader) Deliver(batch []kernel.Delivery) {
	for _, d := range batch {
		r.got <- d.Offset
		r.again <- d.Redelivered
	}
}

// Ended implements kernel.Consumer.
func (r *reader) Ended(reason error) { r.ended <- reason }

func (r *reader) next(t testing.TB) int64 {
	t.Helper()
	select {
	case at := <-r.got:
		return at
	case <-time.After(patience):
		t.Fatal("nothing comes")
		return 0
	}
}

func (w *world) declare(c *Conn, q broker.QueueSpec) string {
	w.t.Helper()
	info, err := c.DeclareQueue(soon(w.t), q)
	must(w.t, err)
	return info.Name
}

func (w *world) publish(c *Conn, queue string, n int) {
	w.t.Helper()
	out := newOutcomes()
	p := c.Publisher(out)
	defer p.Close()
	for i := range n {
		_, err := p.ToExchange("", queue, &kernel.Record{Key: []byte(queue), Value: []byte("v")}, kernel.PublishOptions{}, uint64(i))
		must(w.t, err)
	}
	must(w.t, p.Settle(soon(w.t)))
	if len(out.seen) != n {
		w.t.Fatalf("%d outcomes of %d", len(out.seen), n)
	}
}

func (w *world) join(c *Conn, queue string, under Pool, r *reader) Member {
	w.t.Helper()
	addr, err := c.Address(queue)
	must(w.t, err)
	m, err := c.Join(soon(w.t), addr, kernel.MemberOptions{}, under, r)
	must(w.t, err)
	return m
}

// ready waits until a queue has so many messages ready and held.
func (w *world) ready(c *Conn, queue string, ready, held int64) {
	w.t.Helper()
	for ctx := soon(w.t); ; {
		info, err := c.Queue(queue)
		must(w.t, err)
		if info.Ready == ready && info.Held == held {
			return
		}
		if ctx.Err() != nil {
			w.t.Fatalf("%+v, want %d ready and %d held", info, ready, held)
		}
	}
}

// TestMemoryOnlyComesAgain: exclusive and other queues of memory only, with names of the
// server's making too, are there at the next host with what they were bound to; one
// that had gone by itself, or was deleted, is not.
func TestMemoryOnlyComesAgain(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	own := w.declare(c, broker.QueueSpec{Exclusive: true})
	w.declare(c, broker.QueueSpec{Name: "shared", AutoDelete: true})
	w.declare(c, broker.QueueSpec{Name: "deleted"})
	w.declare(c, broker.QueueSpec{Name: "deserted", AutoDelete: true})
	must(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "x", Type: kernel.Fanout}))
	must(t, c.Bind(soon(t), kernel.Binding{Exchange: "x", Queue: own}))
	must(t, c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: own, Key: "k"}))
	must(t, c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: own, Key: "gone"}))
	must(t, c.Unbind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: own, Key: "gone"}))
	_, err := c.DeleteQueue(soon(t), "deleted", false, false)
	must(t, err)
	w.join(c, "deserted", nil, newReader()).Leave()
	r := newReader()
	m := w.join(c, own, nil, r)
	m.Credit(10)
	w.move()
	if _, err := c.Queue("shared"); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{"deleted", "deserted"} {
		if _, err := c.Queue(gone); kernel.CodeOf(err) != kernel.CodeNotFound {
			t.Errorf("%s: %v", gone, err)
		}
	}
	p := c.Publisher(newOutcomes())
	defer p.Close()
	for _, to := range [][2]string{{"x", ""}, {"amq.direct", "k"}, {"amq.direct", "gone"}, {"", own}} {
		matched, err := p.ToExchange(to[0], to[1], &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{Mandatory: true}, 0)
		must(t, err)
		if want := to[1] != "gone"; (matched == 1) != want {
			t.Errorf("%v: %d targets", to, matched)
		}
	}
	for range 3 {
		r.next(t)
	}
	m.Leave()
}

// TestNobodyServes: publishes are refused as during an alarm, which is told, and what
// else is asked for waits for a host.
func TestNobodyServes(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	w.declare(c, broker.QueueSpec{Name: "q", Durable: true})
	told := make(chan struct{}, 10)
	c.WatchAlarms(func() { told <- struct{}{} })
	w.rest()
	for !c.Alarms().Leader.On {
		<-told
	}
	p := c.Publisher(newOutcomes())
	defer p.Close()
	if _, err := p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{}, 1); kernel.CodeOf(err) != kernel.CodePressure {
		t.Error(err)
	}
	asked := make(chan error, 2)
	go func() {
		_, err := c.Queue("q")
		asked <- err
	}()
	go func() {
		_, err := w.Authenticate(context.Background(), "/", "guest", "guest", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		asked <- err
	}()
	w.serve()
	must(t, <-asked)
	must(t, <-asked)
	for c.Alarms().Any() {
		<-told
	}
	w.publish(c, "q", 1)
	w.ready(c, "q", 1, 0)
}

// TestPlannedMovesFailNothing: while facades come and go in good order, every publish
// that is taken is stored, once.
func TestPlannedMovesFailNothing(t *testing.T) {
	w := newWorld(t)
	w.serve()
	const publishers = 4
	conns := [publishers]*Conn{}
	for i := range conns {
		conns[i] = w.conn()
	}
	w.declare(conns[0], broker.QueueSpec{Name: "q", Durable: true})
	over, taken := make(chan struct{}), [publishers]int{}
	var work sync.WaitGroup
	for i, c := range conns {
		work.Go(func() {
			out := newOutcomes()
			p := c.Publisher(out)
			for n := uint64(0); ; n++ {
				select {
				case <-over:
					if err := p.Settle(soon(t)); err != nil {
						t.Error(err)
					}
					p.Close()
					out.mu.Lock()
					defer out.mu.Unlock()
					for token, err := range out.seen {
						if err != nil {
							t.Errorf("%d: %v", token, err)
						}
					}
					if len(out.seen) != taken[i] || out.dup > 0 {
						t.Errorf("%d outcomes of %d, %d more than one", len(out.seen), taken[i], out.dup)
					}
					return
				default:
				}
				_, err := p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, n)
				switch {
				case err == nil:
					taken[i]++
				case kernel.CodeOf(err) != kernel.CodePressure:
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		w.move()
	}
	close(over)
	work.Wait()
	total := 0
	for _, n := range taken {
		total += n
	}
	w.ready(conns[0], "q", int64(total), 0)
	t.Logf("%d messages", total)
}
