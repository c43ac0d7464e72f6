package forward

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestEdgeHistories plays seeded histories of a node whose facade comes and goes, and of
// the clients of three edges, one in its process and two across streams that break. The
// clock is one of synctest: nobody waits for it. TRIVIUM_HISTORIES says how many,
// TRIVIUM_SEED with which to begin.
func TestEdgeHistories(t *testing.T) {
	usual := int64(100)
	if testing.Short() {
		usual = 20
	}
	n, first := setting(t, "TRIVIUM_HISTORIES", usual), setting(t, "TRIVIUM_SEED", 1)
	all := make(wseen)
	if replays { // what the process does once is done before
		for seed := int64(-3); seed < 0; seed++ {
			if !playEdges(t, seed, make(wseen)) {
				return
			}
		}
	}
	for seed := first; seed < first+n; seed++ {
		if !playEdges(t, seed, all) {
			return
		}
	}
	t.Log(all)
}

func setting(t *testing.T, name string, usual int64) int64 {
	v := os.Getenv(name)
	if v == "" {
		return usual
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

const (
	// realTime is how many seconds a history may take, but for TRIVIUM_PATIENCE, and
	// historyTime how long it may take by its own clock.
	realTime    = 120
	historyTime = 10 * time.Minute
)

// playEdges plays one history; false if something was wrong.
func playEdges(t *testing.T, seed int64, all wseen) (ok bool) {
	runtime.GC() // pools of the process have channels of the last bubble
	runtime.GC()
	// What is let go of with a cleanup would be so on a goroutine outside the bubble.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	hung := time.AfterFunc(time.Duration(setting(t, "TRIVIUM_PATIENCE", realTime))*time.Second, func() {
		debug.SetTraceback("all")
		panic(fmt.Sprintf("TRIVIUM_SEED=%d hangs; %s", seed, again(seed)))
	})
	defer hung.Stop()
	cryptotest.SetGlobalRandom(t, uint64(seed))
	defer seeded(seed)()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seed)
		w.run()
		for _, wrong := range w.truth.wrong {
			t.Errorf("seed %d: %s", seed, wrong)
		}
		if ok = len(w.truth.wrong) == 0; !ok {
			t.Error(again(seed)) // the test ends with the bubble
		}
		all.add(w.truth.seen)
		if w.events.on && seed >= 0 {
			t.Logf("seed %d: %v", seed, &w.events)
		}
	})
	return ok
}

// world is a history.
type world struct {
	t      *testing.T
	seed   int64
	rnd    *rand.Rand // of the driver
	truth  *truth
	events wtrace
	node   *broker.Node
	now    *broker.Broker // nil = nobody serves
	facade atomic.Pointer[broker.Broker]
	server *Server
	edges  [3]*edge.Edge
	hosts  [3]*whost      // what they were told last; the driver's
	work   sync.WaitGroup // of wires
	clock  atomic.Uint64
	quiet  atomic.Bool   // no more faults
	over   chan struct{} // closed when the clients are to come to an end

	clients sync.WaitGroup
	talkers sync.WaitGroup
	things  []*wdevice
	mu      sync.Mutex
	all     []*wclient
}

// number returns another number each time.
func (w *world) number() uint64 { return w.clock.Add(1) }

// grumbler fails a history that logs what must not be.
type grumbler struct{ t *truth }

func (g grumbler) Write(b []byte) (int, error) {
	if line := string(b); strings.Contains(line, "is ended") || strings.Contains(line, `"panic"`) {
		g.t.Failf("logged: %s", strings.TrimSpace(line))
	}
	return len(b), nil
}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{t: t, seed: seed, truth: newTruth(), over: make(chan struct{})}
	w.events.on = tracing != ""
	w.rnd = w.rng(0)
	log := zerolog.New(grumbler{w.truth}).Level(zerolog.ErrorLevel)
	n, err := broker.OpenNode(context.Background(), broker.Config{DataDir: "/data", FS: w.events.disk(vfs.NewMem()), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	w.node = n
	w.server = NewServer(w.facade.Load, log)
	for i := range w.edges {
		w.edges[i] = edge.New(edge.Config{Counters: n.Counters, Logger: zerolog.Nop()})
	}
	return w
}

// serve has a new facade serve, without the edges being told.
func (w *world) serve() {
	b, err := w.node.Serve(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = b
	w.truth.closes(false)
	w.facade.Store(b)
}

// tell tells an edge who serves.
func (w *world) tell(at int) {
	w.trace("edge %d learns who serves: %v", at, w.now != nil)
	w.truth.turns(at, w.hosts[at])
	if w.hosts[at] = nil; w.now == nil {
		w.edges[at].Set(nil)
		return
	}
	w.hosts[at] = w.host(at)
	w.edges[at].Set(w.hosts[at])
}

// run plays the history.
func (w *world) run() {
	w.serve()
	for i := range w.edges {
		w.tell(i)
	}
	w.populate()
	for range 3 + w.rnd.IntN(6) {
		w.sleep(time.Duration(w.rnd.IntN(800)) * time.Millisecond)
		if w.truth.failed() {
			break
		}
		w.fault()
	}
	w.sleep(time.Duration(w.rnd.IntN(500)) * time.Millisecond)
	w.quiet.Store(true)
	close(w.over)
	w.await()
	if !w.truth.failed() {
		w.consumeAll()
		w.truth.judge()
	}
	w.end()
}

// sleep has time pass, of the clock of the history.
func (w *world) sleep(d time.Duration) { time.Sleep(d) }

// await waits for the clients, and says who hangs.
func (w *world) await() {
	done := make(chan struct{})
	go func() {
		w.clients.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(historyTime):
		fmt.Fprintf(os.Stderr, "TRIVIUM_SEED=%d: these clients come to no end (%s):\n", w.seed, again(w.seed))
		for _, c := range w.all {
			if what := c.what.Load(); what != nil {
				fmt.Fprintf(os.Stderr, "  %s: %s\n", c.name, *what)
			}
		}
		for _, wrong := range w.truth.wrong {
			fmt.Fprintln(os.Stderr, "  ", wrong)
		}
		panic("a history hangs")
	}
}

// end closes all there is.
func (w *world) end() {
	for i := range w.edges {
		w.edges[i].Close()
	}
	w.facade.Store(nil)
	if err := w.now.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
	w.server.Close()
	w.work.Wait()
	if err := w.node.Close(); err != nil {
		w.t.Error(err)
	}
}

// consumeAll takes what is left of all queues.
func (w *world) consumeAll() {
	w.client("last", func(c *wclient) {
		c.connect(0)
		for name := range w.truth.queues {
			c.takeAll(name)
		}
		w.sleep(time.Minute) // wills wait for those who are linked anew
		w.judgeTopics(c.readWills())
		if n := len(w.now.Connections()); n != 1 {
			w.truth.Failf("%d connections are left", n-1)
		}
		c.close()
	})
	w.await()
}

// wclient is a client.
type wclient struct {
	w    *world
	name string
	rnd  *rand.Rand
	conn *edge.Conn
	at   int // the edge
	n    int // connections so far
	// conns are all that it has had.
	conns []*edge.Conn
	id    string
	what  atomic.Pointer[string] // it does; nil = it has ended
}

// client starts a client.
func (w *world) client(name string, fn func(c *wclient)) {
	c := &wclient{w: w, name: name}
	w.mu.Lock()
	w.all = append(w.all, c)
	c.rnd = w.rng(uint64(len(w.all)))
	w.mu.Unlock()
	w.clients.Go(func() {
		defer c.hangUp()
		fn(c)
	})
}

// hangUp closes what a client has left open that has come to its end too early.
func (c *wclient) hangUp() {
	for _, conn := range c.conns {
		conn.Close()
	}
	c.what.Store(nil)
}

// does says what the client is about to do, for who looks why it hangs.
func (c *wclient) does(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	c.what.Store(&s)
	c.w.trace("%s %s", c.id, s)
}

// connect connects at an edge, -1 = any.
func (c *wclient) connect(at int) {
	if at < 0 {
		at = c.rnd.IntN(len(c.w.edges))
	}
	c.at, c.n = at, c.n+1
	c.id = fmt.Sprintf("%s.%d", c.name, c.n)
	c.does("connects to edge %d", at)
	id := c.id
	conn, err := c.w.edges[at].Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Name: id, Remote: home},
		func(reason error) { c.w.truth.Failf("%s is ended: %v", id, reason) })
	if err != nil {
		c.w.t.Errorf("%s: connect: %v", c.id, err)
		runtime.Goexit()
	}
	c.conn = conn
	c.conns = append(c.conns, conn)
}

// close closes the connection.
func (c *wclient) close() {
	c.does("closes its connection")
	id := c.id
	c.w.truth.ends(func(l *wlink) bool { return l.name == id })
	c.conn.Close()
}

// pause lets some time pass; false if the history comes to its end.
func (c *wclient) pause(most time.Duration) bool {
	timer := time.NewTimer(time.Duration(c.rnd.Int64N(int64(most))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.w.over:
		return false
	}
}

// going reports whether the history goes on.
func (c *wclient) going() bool {
	select {
	case <-c.w.over:
		return false
	default:
		return !c.w.truth.failed()
	}
}

// must fails the history for what no client should see.
func (c *wclient) must(err error) bool {
	if err != nil {
		c.w.truth.Failf("%s, as it %s: %v", c.id, *c.what.Load(), err)
	}
	return err == nil
}
