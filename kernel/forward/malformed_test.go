package forward

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// hello is how a client's node begins.
func hello() []byte {
	info := kernel.ConnectionInfo{Protocol: "mqtt"}
	return frame(kindOpen, appendInfo(appendIdentity(nil, kernel.Identity{User: "guest", Tenant: "/"}), &info))
}

// called is a call.
func called(id uint64, m method, args ...byte) []byte {
	return frame(kindCall, append(append(codec.AppendUint(nil, id), byte(m)), args...))
}

// attaching is the call, of number 1, that attaches a session.
func attaching(a broker.Attaching) []byte {
	return called(1, methodAttachSession, appendAttaching([]byte{50}, &a)...)
}

// bare is a client's node that sends what it is told to.
type bare struct {
	t       testing.TB
	near    *end
	results chan uint64 // ids of calls
	work    sync.WaitGroup
	once    sync.Once // of over
	err     error     // why the stream has ended
}

func (n *network) bare(t testing.TB) *bare {
	near, far := pipe()
	b := &bare{t: t, near: near, results: make(chan uint64, 100)}
	b.work.Go(func() {
		if b.err = n.server.ServeClient("2", far); b.err == nil {
			b.over()
			return
		}
		far.Close()
	})
	b.work.Go(func() {
		defer close(b.results)
		var in frames
		for {
			m, err := near.Recv()
			if err != nil {
				return
			}
			_ = in.feed(m, func(k kind, body []byte) error {
				if k == kindResult {
					b.results <- read(body).Uint()
				}
				return nil
			})
		}
	})
	b.send(hello())
	return b
}

func (b *bare) send(m ...[]byte) { _ = b.near.Send(slices.Concat(m...)) }

// ask makes a call and waits for its result.
func (b *bare) ask(m []byte) {
	b.t.Helper()
	b.send(m)
	if _, ok := <-b.results; !ok {
		b.t.Fatal("the stream has ended")
	}
}

// over ends the stream in good order.
func (b *bare) over() { b.once.Do(func() { close(b.near.over) }) }

// wait returns why the stream has ended.
func (b *bare) wait() error {
	b.work.Wait()
	return b.err
}

// TestNoSession: what takes a session ends the stream of a client that has none, and that
// stream alone.
func TestNoSession(t *testing.T) {
	n := serve(t, open(t))
	s := n.connect(t, tokened("other")).kept("other")
	once, _ := appendPublish(nil, &publish{publisher: 2, number: 1, key: "a", named: true, once: true, use: 1}, &kernel.Record{}, &kernel.PublishOptions{}, nil)
	for name, bad := range map[string][]byte{
		"pin":          frame(kindPin, []byte{5, 1, 1, 0, 0}),
		"take":         frame(kindTake, []byte{5, 1, 1, 0, 0}),
		"refuse":       frame(kindRefuse, []byte{5, 1, 1, 0, 0}),
		"unpin":        frame(kindUnpin, []byte{5, 1, 1}),
		"unpin number": frame(kindUnpinNumber, []byte{1, 1}),
		"once":         slices.Concat(frame(kindPublisher, []byte{2}), frame(kindPublish, once)),
		"subscribe":    called(2, methodSubscribe, 0, 0),
		"unsubscribe":  called(2, methodUnsubscribe, 1, 'a'),
		"release":      called(2, methodRelease, 1, 1),
		"next":         called(2, methodNext, 8, 1, 1, '#', 2, 2, 0),
		"will":         called(2, methodSetWill, appendWill(nil, &kernel.Will{Topic: "w"})...),
		"pins":         called(2, methodPins),
		"keep":         called(2, methodKeep, 0),
		"read":         called(2, methodRead, 5, 0, 0),
		"detach":       called(2, methodDetach, 0, 0),
	} {
		for _, before := range []bool{false, true} {
			b := n.bare(t)
			if before { // one that was given back
				b.ask(attaching(broker.Attaching{ClientID: name}))
				b.ask(called(2, methodDetach, 0, 0))
			}
			b.send(bad)
			if err := b.wait(); !errors.Is(err, errMalformed) {
				t.Errorf("%s, %v: %v", name, before, err)
			}
		}
	}
	s.one(t, "a", 1, newSubscriber())
}

// TestMalformedSession: nonsense about a session that is attached ends the stream.
func TestMalformedSession(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t, tokened("other"))
	c.declare("q")
	join := appendAddress([]byte{9, 0}, &kernel.GroupAddress{Tenant: "/", Group: "q", Topic: "q"})
	join = append(appendMemberOptions(join, &kernel.MemberOptions{}), 1)
	for name, bad := range map[string][]byte{
		"no method":               called(2, methodNewProducerID+1),
		"an unknown cursor":       called(2, methodNext, 8, 0, 2, 2, 0),
		"two calls of a cursor":   called(2, methodNext, 8, 1, 1, '#', 2, 2, 0),
		"a long pin":              frame(kindPin, []byte{5, 1, 1, 0, 0, 0}),
		"a large number":          frame(kindUnpinNumber, []byte{0xff, 0xff, 0xff, 1, 1}),
		"too much taken":          frame(kindLiveTaken, []byte{1}),
		"a short subscription":    called(2, methodSubscribe, 0, 1, 9, 1, 'a'),
		"too many subscriptions":  called(2, methodSubscribe, 0, 200, 9),
		"a member that is no one": frame(kindPin, []byte{9, 1, 1, 0, 0}),
		"a long text":             called(2, methodKeep, appendBytes(nil, make([]byte, maxKept+1))...),
	} {
		b := n.bare(t)
		b.ask(attaching(broker.Attaching{ClientID: name}))
		b.ask(called(3, methodJoin, join...))
		if name == "two calls of a cursor" { // one of them is at work
			bad = slices.Repeat(bad, 1000)
		}
		for part := range slices.Chunk(bad, sendSize) {
			b.send(part)
		}
		if err := b.wait(); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	(&client{Link: c.Link, t: t}).declare("q")
}

// TestWellFormedSession: what is about nothing that is there, and all that a client may
// do, ends no stream.
func TestWellFormedSession(t *testing.T) {
	n := serve(t, open(t))
	b := n.bare(t)
	b.ask(attaching(broker.Attaching{ClientID: "c"}))
	b.send(frame(kindPin, []byte{5, 1, 1, 0, 0}), frame(kindLetMember, []byte{5}), frame(kindLetCursor, []byte{5}), frame(kindUnpinNumber, []byte{1, 1}))
	b.ask(called(2, methodSubscribe, 0, 1, 9, 1, 'a', 0, 0, 0))
	b.ask(called(3, methodSubscribe, 1, 1, 10, 1, 'a', 0, 0, 0))
	b.ask(called(4, methodRead, 9, 0, 0))
	b.ask(called(5, methodHold, 9, 1, 0, 0))
	b.ask(called(6, methodRelease, 1, 1))
	b.ask(called(7, methodAttachSession, appendAttaching([]byte{50}, &broker.Attaching{ClientID: "d"})...))
	b.ask(called(8, methodRetainedAgain, 1, 'a', 1))
	b.ask(called(9, methodDetach, 0, 0))
	b.send(frame(kindLeft, nil))
	if err := b.wait(); err != nil {
		t.Error(err)
	}
}

// TestEarlierVersion: a node that does not know that connections have numbers, or of calls
// that are made again, is not told, and one that does not tell is understood.
func TestEarlierVersion(t *testing.T) {
	n := serve(t, open(t))
	info := kernel.ConnectionInfo{Protocol: "amqp"}
	body := appendInfo(appendIdentity(nil, kernel.Identity{User: "guest", Tenant: "/"}), &info)
	flags := len(body) - 3 // then no properties, and no heartbeat
	if body[flags] != 4|8 {
		t.Fatalf("flags %x", body[flags])
	}
	body[flags] = 0
	near, far := pipe()
	var work sync.WaitGroup
	work.Go(func() { _ = n.server.ServeClient("2", far) })
	_ = near.Send(frame(kindOpen, body))
	answer, err := near.Recv()
	if err != nil || !slices.Equal(answer, frame(kindOpened, appendAlarms(nil, &broker.Alarms{}))) {
		t.Errorf("%x %v", answer, err)
	}
	near.Close()
	work.Wait()

	near, far = pipe()
	l := newLink(deaf{near}, nil, nil)
	l.start()
	_ = far.Send(answer)
	if err := <-l.opened; err != nil || l.ID() != 0 || l.repeats {
		t.Error(err, l.ID(), l.repeats)
	}
	close(far.over)
	<-l.done
}
