package amqp

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is for what must come; nothing waits for all of it unless a test fails.
const patience = 30 * time.Second

// startServer serves a fake node on a free port until the test ends.
func startServer(t testing.TB, cfg Config) (*fakeNode, string) {
	t.Helper()
	n, _, addr := startServing(t, cfg)
	return n, addr
}

func startServing(t testing.TB, cfg Config) (*fakeNode, *Server, string) {
	t.Helper()
	n := newFakeNode()
	cfg.Logger = zerolog.Nop()
	s := newServer(cfg, n)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return n, s, l.Addr().String()
}

func dial(t testing.TB, addr string) *amqp.Connection {
	t.Helper()
	c, err := amqp.Dial("amqp://guest:guest@" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func openChannel(t testing.TB, c *amqp.Connection) *amqp.Channel {
	t.Helper()
	ch, err := c.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-from:
		if !ok {
			t.Fatal("closed")
		}
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	panic("unreachable")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, ch *amqp.Channel, key string, p amqp.Publishing) {
	t.Helper()
	must(t, ch.PublishWithContext(context.Background(), "", key, false, false, p))
}

func TestRoundTrip(t *testing.T) {
	_, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	q, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	must(t, ch.Confirm(false))
	sent := amqp.Publishing{
		Headers: amqp.Table{
			"text": "é", "int": int32(5), "void": nil, "list": []any{"a", int64(1)}, "type": "mine", "mq.exchange": "no",
			"nested": amqp.Table{"k": true}, "bytes": []byte{255},
		},
		ContentType: "text/plain", ContentEncoding: "gzip", DeliveryMode: 1, Priority: 7, CorrelationId: "c", ReplyTo: "r",
		MessageId: "m", Timestamp: time.Unix(1700000000, 0), Type: "t", UserId: "guest", AppId: "a", Body: []byte("hello"),
	}
	confirm, err := ch.PublishWithDeferredConfirm("", q.Name, false, false, sent)
	must(t, err)
	if !confirm.Wait() {
		t.Fatal("not confirmed")
	}
	got, ok, err := ch.Get("q", true)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for name, want := range sent.Headers {
		if have := got.Headers[name]; !equal(have, want) {
			t.Errorf("%s: %#v, want %#v", name, have, want)
		}
	}
	if len(got.Headers) != len(sent.Headers) {
		t.Errorf("headers %v", got.Headers)
	}
	if got.ContentType != "text/plain" || got.ContentEncoding != "gzip" || got.DeliveryMode != 1 || got.Priority != 7 ||
		got.CorrelationId != "c" || got.ReplyTo != "r" || got.MessageId != "m" || !got.Timestamp.Equal(sent.Timestamp) || got.Type != "t" ||
		got.UserId != "guest" || got.AppId != "a" || string(got.Body) != "hello" || got.RoutingKey != "q" || got.Exchange != "" {
		t.Errorf("%+v", got)
	}
	if _, ok, err := ch.Get("q", true); ok || err != nil {
		t.Error("a second message", err)
	}
}

func equal(a, b any) bool {
	ta, tb := wire.AppendTable(nil, wire.Table{{Value: plain(a)}}), wire.AppendTable(nil, wire.Table{{Value: plain(b)}})
	return string(ta) == string(tb)
}

// plain turns the client library's types into ours.
func plain(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		var t wire.Table
		for k, e := range v {
			t = append(t, wire.Field{Name: k, Value: plain(e)})
		}
		return t
	case []any:
		a := wire.Array{}
		for _, e := range v {
			a = append(a, plain(e))
		}
		return a
	}
	return v
}

func TestConsume(t *testing.T) {
	n, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	must(t, ch.Qos(10, 0, false))
	deliveries, err := ch.Consume("q", "", false, false, false, false, nil)
	must(t, err)
	const total = 1000
	for i := range total {
		publish(t, ch, "q", amqp.Publishing{Body: []byte{byte(i), byte(i >> 8)}})
	}
	for i := range total {
		d := receive(t, deliveries)
		if int(d.Body[0])|int(d.Body[1])<<8 != i || d.DeliveryTag != uint64(i+1) {
			t.Fatalf("delivery %d: %v tag %d", i, d.Body, d.DeliveryTag)
		}
		if i%10 == 9 {
			must(t, d.Ack(true))
		}
	}
	wait(t, n, func() bool { return n.records == total })
}

// wait waits until the fake node is in a state.
func wait(t testing.TB, n *fakeNode, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		n.mu.Lock()
		done := ok()
		n.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the state never came")
		}
		<-time.After(time.Millisecond)
	}
}

func TestPrefetchIsExact(t *testing.T) {
	_, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	for range 20 {
		publish(t, ch, "q", amqp.Publishing{})
	}
	must(t, ch.Qos(3, 0, false))
	deliveries, err := ch.Consume("q", "c", false, false, false, false, nil)
	must(t, err)
	var last amqp.Delivery
	for range 3 {
		last = receive(t, deliveries)
	}
	q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
	must(t, err)
	if q.Messages != 17 || len(deliveries) != 0 {
		t.Errorf("%d ready, %d more delivered", q.Messages, len(deliveries))
	}
	must(t, last.Reject(true)) // comes back at once, to the only consumer
	if d := receive(t, deliveries); !d.Redelivered || d.DeliveryTag != 4 {
		t.Errorf("%v %d", d.Redelivered, d.DeliveryTag)
	}
	must(t, ch.Cancel("c", false))
	must(t, ch.Nack(0, true, true))
	if q, err = ch.QueueDeclarePassive("q", true, false, false, false, nil); err != nil || q.Messages != 20 {
		t.Errorf("%d ready, %v", q.Messages, err)
	}
}

func TestConfirmsOutOfOrder(t *testing.T) {
	n, addr := startServer(t, Config{})
	n.hold = true
	ch := openChannel(t, dial(t, addr))
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	must(t, ch.Confirm(false))
	var confirms []*amqp.DeferredConfirmation
	for range 6 {
		c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{})
		must(t, err)
		confirms = append(confirms, c)
	}
	wait(t, n, func() bool { return len(n.held) == 6 })
	n.held[2](nil)
	n.held[4](kernel.Errorf(kernel.CodeUnknown, "", "", "unknown"))
	n.held[0](nil)
	for _, i := range []int{1, 3, 5} {
		n.held[i](nil)
	}
	var done kernel.Completion
	n.mu.Lock()
	n.hold = false
	n.mu.Unlock()
	_ = done
	c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{}) // its Flush tells all
	must(t, err)
	if !c.Wait() {
		t.Error("the last")
	}
	for i, c := range confirms {
		if got := c.Wait(); got != (i != 4) {
			t.Errorf("confirm %d: %v", i, got)
		}
	}
}

func TestNackWhenUnavailable(t *testing.T) {
	n, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	must(t, ch.Confirm(false))
	n.mu.Lock()
	n.refuse = kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader")
	n.mu.Unlock()
	c, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{})
	must(t, err)
	if c.Wait() {
		t.Error("confirmed")
	}
}

func TestMandatory(t *testing.T) {
	_, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	must(t, ch.Confirm(false))
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	c, err := ch.PublishWithDeferredConfirm("", "none", true, false, amqp.Publishing{AppId: "a", Body: []byte("b")})
	must(t, err)
	if !c.Wait() {
		t.Error("not confirmed")
	}
	select { // before the confirm, so it is there
	case r := <-returns:
		if r.ReplyCode != 312 || r.ReplyText != "NO_ROUTE" || r.RoutingKey != "none" || r.AppId != "a" || string(r.Body) != "b" {
			t.Errorf("%+v", r)
		}
	default:
		t.Error("not returned before the confirm")
	}
}

func TestQueueDeleted(t *testing.T) {
	_, addr := startServer(t, Config{})
	c := dial(t, addr)
	ch := openChannel(t, c)
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	deliveries, err := ch.Consume("q", "tag", false, false, false, false, nil)
	must(t, err)
	cancels := ch.NotifyCancel(make(chan string, 1))
	_, err = openChannel(t, c).QueueDelete("q", false, false, false)
	must(t, err)
	if tag := receive(t, cancels); tag != "tag" {
		t.Error(tag)
	}
	if _, ok := <-deliveries; ok {
		t.Error("a delivery")
	}
}

func TestLargeMessages(t *testing.T) {
	_, addr := startServer(t, Config{MaxMessage: 1 << 20})
	ch := openChannel(t, dial(t, addr))
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	body := make([]byte, 1<<20)
	for i := range body {
		body[i] = byte(i * 7 >> 3)
	}
	deliveries, err := ch.Consume("q", "", true, false, false, false, nil)
	must(t, err)
	for _, n := range []int{0, 1, 4088, 131064, 131065, 262128, 1 << 20} {
		publish(t, ch, "q", amqp.Publishing{Body: body[:n]})
		if d := receive(t, deliveries); string(d.Body) != string(body[:n]) {
			t.Errorf("%d bytes came back as %d", n, len(d.Body))
		}
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	publish(t, ch, "q", amqp.Publishing{Body: append(body, 0)})
	if e := receive(t, closed); e.Code != 406 || e.Reason != "PRECONDITION_FAILED - message size 1048577 is larger than configured max size 1048576" {
		t.Error(e)
	}
}

// TestShutdownWithIdleClients: those who do not answer hold the end up for no
// longer than closeTimeout, whatever they were about.
func TestShutdownWithIdleClients(t *testing.T) { synctest.Test(t, testShutdownWithIdleClients) }

func testShutdownWithIdleClients(t *testing.T) {
	s := newServer(Config{Logger: zerolog.Nop()}, newFakeNode())
	l := pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	client := func() *raw {
		near, far := net.Pipe()
		l.accept <- far
		return newRaw(t, near)
	}
	all := []*raw{client(), client(), client(), client()}
	all[0].open(60) // and idle
	all[1].bytes([]byte(wire.ProtocolHeader))
	want[wire.ConnectionStart](all[1])
	all[2].bytes([]byte("AMQP")) // half a header; nothing at all of the fourth
	for _, r := range all {
		go r.gone()
	}
	synctest.Wait()
	begin := time.Now()
	must(t, s.Shutdown(t.Context()))
	if took := time.Since(begin); took > closeTimeout+closeTimeout/2 {
		t.Errorf("it took %v", took)
	}
	must(t, <-done)
}

// pipes is a listener whose connections are ends of pipes.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (l pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipes) Close() error   { close(l.closed); return nil }
func (l pipes) Addr() net.Addr { return nil }

func TestForcedClose(t *testing.T) {
	n, addr := startServer(t, Config{})
	c := dial(t, addr)
	closed := c.NotifyClose(make(chan *amqp.Error, 1))
	n.mu.Lock()
	end := n.end
	n.mu.Unlock()
	end(kernel.Errorf(kernel.CodeUnavailable, "", "", "operator"))
	if e := receive(t, closed); e.Code != 320 || e.Reason != "CONNECTION_FORCED - broker forced connection closure with reason 'operator'" {
		t.Error(e)
	}
}
