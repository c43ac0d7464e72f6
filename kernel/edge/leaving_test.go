package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// slack is a host that does not answer while hangs is open, and whose links say, once
// they are over, that it does not serve.
type slack struct {
	Host
	hangs    chan struct{}
	acquired int
	// attaching is closed when a session is being attached.
	attaching chan struct{}
}

type slackLink struct {
	Link
	host *slack
	end  func(error)
	gone chan struct{} // closed by Close
}

type slackMember struct {
	Member
	link *slackLink
}

type slackPublisher struct {
	Publisher
	link *slackLink
}

func (h *slack) Connect(_ kernel.Identity, _ kernel.ConnectionInfo, end func(error)) (Link, error) {
	return &slackLink{host: h, end: end, gone: make(chan struct{})}, nil
}

func (l *slackLink) Close()                  { close(l.gone) }
func (l *slackLink) WatchAlarms(func())      {}
func (l *slackLink) Alarms() *broker.Alarms  { return &broker.Alarms{} }
func (l *slackLink) ID() kernel.ConnectionID { return 1 }

// AttachSession waits for the end of ctx if somebody is to know that it does.
func (l *slackLink) AttachSession(ctx context.Context, _ broker.Attaching, _ func()) (Session, bool, error) {
	if l.host.attaching == nil {
		return slackSession{}, true, nil
	}
	close(l.host.attaching)
	<-ctx.Done()
	return nil, false, ctx.Err()
}

type slackSession struct{ Session }

func (slackSession) Epoch() uint64              { return 1 }
func (slackSession) State() kernel.SessionState { return kernel.SessionState{} }
func (slackSession) Suspend()                   {}

func (l *slackLink) Join(context.Context, kernel.GroupAddress, kernel.MemberOptions, Pool, kernel.Consumer) (Member, error) {
	return &slackMember{link: l}, nil
}

func (l *slackLink) Publisher(kernel.Completion) Publisher { return &slackPublisher{link: l} }

func (m *slackMember) Type() kernel.QueueType { return kernel.Classic }
func (m *slackMember) Volatile() bool         { return false }

func (m *slackMember) Acquire(int, func([]kernel.Delivery, int64)) error {
	if m.link.host.acquired++; m.link.host.hangs != nil {
		return errMoved
	}
	return nil
}

func (p *slackPublisher) ToExchange(string, string, *kernel.Record, kernel.PublishOptions, uint64) (int, error) {
	select {
	case <-p.link.host.hangs:
		return 1, nil
	case <-p.link.gone:
		return 0, errMoved
	}
}

func (p *slackPublisher) Settle(ctx context.Context) error {
	select {
	case <-p.link.host.hangs:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slacking returns a connection to a host that hangs, and one that does not.
func slacking(t *testing.T) (e *Edge, c *Conn, next *slack) {
	e, next = New(Config{}), &slack{}
	e.Set(&slack{hangs: make(chan struct{})})
	c, err := e.Connect(kernel.Identity{}, kernel.ConnectionInfo{}, func(reason error) { t.Errorf("ended: %v", reason) })
	must(t, err)
	return e, c, next
}

// TestLeavingWaitsForNoPublish: a publish that a host has got, and does not answer, holds
// up the way to the next host no longer than those whose outcome is not known.
func TestLeavingWaitsForNoPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c, next := slacking(t)
		p := c.Publisher(newOutcomes())
		refused := make(chan error, 1)
		go func() {
			_, err := p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{}, 1)
			refused <- err
		}()
		synctest.Wait()
		begin := time.Now()
		e.Set(next)
		if err := <-refused; kernel.CodeOf(err) != kernel.CodePressure {
			t.Error(err)
		}
		if took := time.Since(begin); took > settleTime {
			t.Errorf("it took %v", took)
		}
		_, err := c.linked(t.Context())
		must(t, err)
		c.Close()
		e.Close()
	})
}

// TestPublishesWhileLeaving: while it waits for the outcomes of a link that is left, a
// publisher refuses at once what is published.
func TestPublishesWhileLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c, next := slacking(t)
		p := c.Publisher(newOutcomes()).(*publisher)
		p.bind()
		e.Set(next)
		synctest.Wait()
		begin := time.Now()
		if _, err := p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{}, 1); kernel.CodeOf(err) != kernel.CodePressure {
			t.Error(err)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("it took %v", took)
		}
		c.Close()
		e.Close()
	})
}

// TestAcquireAsItMoves: what wants records now asks a host that does not serve any more
// once, however long it takes to leave that.
func TestAcquireAsItMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c, next := slacking(t)
		m, err := c.Join(t.Context(), kernel.GroupAddress{}, kernel.MemberOptions{Pull: true}, nil, nil)
		must(t, err)
		c.Publisher(newOutcomes()).(*publisher).bind() // whose outcomes do not come
		first, _ := e.current()
		e.Set(next)
		if err := m.Acquire(1, nil); err != nil {
			t.Error(err)
		}
		if n := first.Host.(*slack).acquired; n > 1 || next.acquired != 1 {
			t.Errorf("asked %d times, and the next host %d times", n, next.acquired)
		}
		m.(*member).over = true // the fakes know no Leave
		c.Close()
		e.Close()
	})
}

// TestClosedWhileItIsRestored: a connection that is closed while it is linked anew is not
// to be closed for that.
func TestClosedWhileItIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c, next := slacking(t)
		_, _, err := c.AttachSession(t.Context(), broker.Attaching{ClientID: "c"}, nil)
		must(t, err)
		next.attaching = make(chan struct{})
		e.Set(next)
		<-next.attaching
		c.Close()
		e.Close()
	})
}
