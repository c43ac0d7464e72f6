package edge

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// overtaken is a host whose sessions are overtaken by a move, once, as they are asked for
// something.
type overtaken struct {
	Host
	move     func()                // nil = it is done
	detached func(end func(error)) // comes after a session is detached; nil = nothing
}

type overtakenLink struct {
	Link
	h   *overtaken
	end func(error)
}

type overtakenSession struct {
	Session
	overtakenLink
}

func (h *overtaken) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	return overtakenLink{l, h, end}, err
}

func (l overtakenLink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s, present, err := l.Link.AttachSession(ctx, a, taken)
	return &overtakenSession{s, l}, present, err
}

func (s overtakenSession) turn() {
	if move := s.h.move; move != nil {
		s.h.move = nil
		move()
	}
}

func (s overtakenSession) Release(numbers []uint16, done func([]uint16, error)) {
	s.turn()
	s.Session.Release(numbers, done)
}

func (s overtakenSession) SetWill(ctx context.Context, w *kernel.Will) error {
	s.turn()
	return s.Session.SetWill(ctx, w)
}

func (s overtakenSession) PinNumber(id kernel.PinID, done kernel.Completion) error {
	s.turn()
	return s.fail(s.Session.PinNumber(id, done))
}

func (s overtakenSession) Detach(expiry time.Duration) {
	s.Session.Detach(expiry)
	if after := s.h.detached; after != nil {
		s.h.detached = nil
		after(s.end)
	}
}

// fail is what a host across the network says of a session that it has given back.
func (s overtakenSession) fail(err error) error {
	if err != nil {
		return err
	}
	return kernel.Errorf(kernel.CodeFenced, "session", "c", "the connection has given it back")
}

// TestSessionOvertakenByAMove: what reaches a host after the session was suspended there,
// for the next one, is done at that; nobody is told that another connection has it.
func TestSessionOvertakenByAMove(t *testing.T) {
	for name, ask := range map[string]func(s Session) error{
		"release": func(s Session) error {
			done := make(chan error, 1)
			s.Release([]uint16{1}, func(_ []uint16, err error) { done <- err })
			return <-done
		},
		"will": func(s Session) error {
			return s.SetWill(context.Background(), &kernel.Will{Topic: "will", Record: kernel.Record{Value: []byte("v")}})
		},
		"number": func(s Session) error {
			done := newOutcomes()
			return s.PinNumber(kernel.PinID{Number: 1, Count: 1}, done)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			b, err := w.node.Serve(soon(t))
			must(t, err)
			w.now = b
			h := &overtaken{Host: Local(b)}
			w.Set(h)
			c := w.conn()
			s, _ := w.session(c, kept, func() { t.Error("it is taken over") })
			h.move = w.move
			must(t, ask(s))
			must(t, s.DropWill())
			s.Detach(0)
		})
	}
}

func (l overtakenLink) Publisher(done kernel.Completion) Publisher {
	return overtakenPublisher{l.Link.Publisher(done), l}
}

type overtakenPublisher struct {
	Publisher
	overtakenLink
}

func (p overtakenPublisher) ToTopicOnce(Session, uint16, string, *kernel.Record, uint64) (int, error) {
	overtakenSession{nil, p.overtakenLink}.turn()
	return 0, kernel.Errorf(kernel.CodeFenced, "session", "c", "the facade has suspended it")
}

// TestPublishOvertakenByAMove: a host that stops lets go of the session before the edge has
// taken it back: what is published with QoS 2 then passes, as while nobody serves. Where
// the session is another's, it does not.
func TestPublishOvertakenByAMove(t *testing.T) {
	w := newWorld(t)
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	h := &overtaken{Host: Local(b)}
	w.Set(h)
	c := w.conn()
	s, _ := w.session(c, kept, nil)
	p := c.Publisher(newOutcomes())
	defer p.Close()
	publish := func() error {
		_, err := p.ToTopicOnce(s, 1, "a", &kernel.Record{Value: []byte("v")}, 1)
		return err
	}
	if err := publish(); kernel.CodeOf(err) != kernel.CodeFenced {
		t.Errorf("of another's session: %v", err)
	}
	h.move = func() { w.Set(nil) }
	if err := publish(); kernel.CodeOf(err) != kernel.CodePressure {
		t.Errorf("of a host that stops: %v", err)
	}
}

// TestPinsUntilTheyAreAskedFor: what an earlier connection has pinned is still pinned at
// the next host when the front-end has not asked for it before the move.
func TestPinsUntilTheyAreAskedFor(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c, pub := w.conn(), w.conn()
	s, _ := w.session(c, kept, nil)
	p := w.subscribe(s, "a", 2)
	w.say(pub, "a", "1")
	p.hears(t, "1")
	p.pin(t, "1", kernel.PinID{Number: 1, Count: 1})
	p.wait(t, "it is pinned", func() bool { return p.pinned[1] == 1 })
	s.Detach(kept.Expiry)
	c.Close()
	s, _ = w.session(w.conn(), kept, nil)
	w.move()
	pins, err := s.Pins(soon(t))
	must(t, err)
	if len(pins) != 1 || pins[0].Number != 1 || pins[0].Taken {
		t.Errorf("%+v", pins)
	}
	w.move()
	if pins, err := s.Pins(soon(t)); len(pins) != 1 || err != nil {
		t.Errorf("%+v, %v", pins, err)
	}
}

// TestDetachedTwiceLeavesOneWill: a link that breaks as the session is given back leaves
// open whether it was, and it is done again; the will comes once.
func TestDetachedTwiceLeavesOneWill(t *testing.T) {
	w := newWorld(t)
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	h := &overtaken{Host: Local(b)}
	w.Set(h)
	c, other := w.conn(), w.conn()
	w.declare(other, broker.QueueSpec{Name: "q", Durable: true})
	must(t, other.Bind(soon(t), kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: "q", Key: "will"}))
	s, _ := w.session(c, kept, nil)
	must(t, s.SetWill(soon(t), &kernel.Will{Topic: "will", Record: kernel.Record{Value: []byte("v")}}))
	h.detached = func(end func(error)) { end(kernel.Errorf(kernel.CodeUnknown, "", "", "cut")) }
	s.Detach(kept.Expiry)
	c.Close()
	w.publish(other, "q", 1) // behind what has come
	w.ready(other, "q", 2, 0)
}

// breaking is a host whose link breaks, once, as a member is to hold something there.
type breaking struct {
	Host
	broken, over bool
}

type breakingLink struct {
	Link
	h *breaking
}

type breakingSession struct {
	Session
	h *breaking
}

type breakingMember struct {
	SessionMember
	h *breaking
}

func (h *breaking) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	return breakingLink{l, h}, err
}

func (l breakingLink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s, present, err := l.Link.AttachSession(ctx, a, taken)
	return &breakingSession{s, l.h}, present, err
}

func (s *breakingSession) Attach(ctx context.Context, spec broker.SubscribeSpec) (SessionMember, error) {
	m, err := s.Session.Attach(ctx, spec)
	return &breakingMember{m, s.h}, err
}

func (s *breakingSession) Pins(ctx context.Context) ([]broker.SessionPin, error) {
	if s.h.broken && !s.h.over {
		s.h.over = true
		return nil, errMoved
	}
	return s.Session.Pins(ctx)
}

func (m *breakingMember) Hold(places []kernel.Place) []bool {
	if !m.h.broken {
		m.h.broken = true
		return make([]bool, len(places))
	}
	return m.SessionMember.Hold(places)
}

// TestNothingIsLostByABreak: a link that breaks as the client's messages are to be held does
// not say that somebody else has them.
func TestNothingIsLostByABreak(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c, pub := w.conn(), w.conn()
	s, _ := w.session(c, kept, nil)
	p := w.subscribe(s, "a", 1)
	w.say(pub, "a", "1")
	p.hears(t, "1")
	w.rest()
	b, err := w.node.Serve(soon(t))
	must(t, err)
	w.now = b
	h := &breaking{Host: Local(b)}
	w.Set(h)
	_, err = c.linked(soon(t))
	must(t, err)
	p.mu.Lock()
	if len(p.lost) > 0 || !h.over {
		t.Errorf("lost %v, %+v", p.lost, h)
	}
	p.mu.Unlock()
	p.settle(t, "1")
	w.say(pub, "a", "2")
	p.hears(t, "1", "2")
}
