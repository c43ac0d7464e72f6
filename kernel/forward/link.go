package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// closeTime bounds Close: after it what has no outcome is unknown.
const closeTime = 10 * time.Second

// window is how many bytes of publishes a link may have under way, if they are several.
const window = 4 << 20

// link is a client's connection at another node. It implements edge.Link.
type link struct {
	stream   Stream
	channels kernel.ChannelLister // nil = it has none to list
	tell     func(reason error)   // may be nil
	out      outbox
	changed  *sync.Cond // on out.mu: there is room for publishes, or something is told
	slots    chan struct{}
	work     sync.WaitGroup // what the link has started, but for its reader
	opened   chan error     // the answer to open; capacity 1
	ended    chan struct{}  // closed when the stream has ended
	done     chan struct{}  // and when all that follows from it is told
	closer   sync.Once
	alarms   atomic.Pointer[broker.Alarms]
	watch    atomic.Pointer[func()]
	gathered chan struct{}       // closed when Gather is over, as the alarms have told
	id       kernel.ConnectionID // known once the link is open; 0 = of an earlier version
	repeats  bool                // the host knows of calls that are made again; the same
	traffic  *broker.Counters    // see CountIn

	// the reader's
	frames   frames
	batch    deliveries
	finished []finished
	isOpen   bool // it was opened
	pinned   []uint16

	// guarded by out.mu
	refusal    error // why nothing is published any more, nil = it is
	broken     bool  // nothing is asked any more
	told       bool  // tell was called, or will not be
	lastID     uint64
	calls      map[uint64]*call
	publishers map[uint64]*publisher
	members    map[uint64]*member
	underway   int       // bytes of publishes without outcome
	attached   *attached // nil = there is no session
	live       live

	recall recall // what the node has said of topics
}

var _ edge.Counting = (*link)(nil)

func newLink(s Stream, channels kernel.ChannelLister, tell func(error)) *link {
	l := &link{
		stream: s, channels: channels, tell: tell, slots: make(chan struct{}, maxCalls),
		traffic: &broker.Counters{}, opened: make(chan error, 1), ended: make(chan struct{}), done: make(chan struct{}), gathered: make(chan struct{}),
		calls: make(map[uint64]*call), publishers: make(map[uint64]*publisher), members: make(map[uint64]*member),
	}
	l.changed = sync.NewCond(&l.out.mu)
	l.live.feeds, l.live.wake = make(map[uint64]*feed), make(chan struct{}, 1)
	l.out.init(nil)
	l.alarms.Store(&broker.Alarms{})
	return l
}

// start begins to send and to receive.
func (l *link) start() {
	l.work.Go(func() { l.out.run(l.stream) })
	go l.run() // until done
}

// nextID gives a number to what is made on the link. The caller holds out.mu.
func (l *link) nextID() uint64 {
	l.lastID++
	return l.lastID
}

func errGone() error {
	return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node does not serve any more")
}

func errBroken() error {
	return kernel.Errorf(kernel.CodeUnknown, "", "", "the connection to the node that serves has broken")
}

// run handles what comes until the stream ends.
func (l *link) run() {
	err := l.receive()
	l.stream.Close()
	l.out.mu.Lock()
	l.broken = true
	if l.refusal == nil {
		l.refusal = errGone()
	}
	sent := l.out.sent
	l.out.die()
	calls, publishers, tell := l.calls, l.publishers, l.tell
	l.calls, l.publishers = nil, nil
	if l.told {
		tell = nil
	}
	l.told = true
	l.changed.Broadcast()
	l.out.mu.Unlock()
	close(l.ended)
	for _, c := range calls {
		c.lose(sent)
	}
	l.work.Wait()
	for _, p := range publishers {
		p.lose()
	}
	l.empty()
	if !l.isOpen {
		l.opened <- err
	} else if tell != nil {
		tell(errBroken())
	}
	close(l.done)
}

// empty lets go of all that the link has led to.
func (l *link) empty() {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	clear(l.members)
	clear(l.live.feeds)
	l.attached = nil
}

// receive returns why a link was not opened, if it was not.
func (l *link) receive() error {
	for {
		b, err := l.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return errGone()
			}
			return kernel.Errorf(kernel.CodeUnavailable, "", "", "the node that serves cannot be asked: %v", err)
		}
		if err := l.frames.feed(b, l.handle); err != nil {
			return err
		}
	}
}

// abandon ends a link that nobody has yet.
func (l *link) abandon() {
	l.out.mu.Lock()
	l.told = true
	l.out.mu.Unlock()
	l.stream.Close()
}

// Close implements edge.Link. It takes 10 seconds at most. When it returns, all that was
// published has its outcome.
func (l *link) Close() {
	l.closer.Do(func() {
		l.out.mu.Lock()
		l.told, l.refusal = true, errGone()
		l.out.empty(kindLeft)
		l.out.seal()
		l.changed.Broadcast()
		l.out.mu.Unlock()
		late := time.AfterFunc(closeTime, l.stream.Close)
		<-l.done
		late.Stop()
	})
	<-l.done
}

// handle handles a frame. An error ends the link.
func (l *link) handle(k kind, body []byte) error {
	if k == kindLive && l.isOpen {
		return l.onLive(body)
	}
	r := read(body)
	if !l.isOpen {
		return l.welcome(k, r)
	}
	switch k {
	case kindPinned, kindTaken:
		return l.onPinned(k, r)
	case kindClaimed:
		return l.onClaimed(r)
	case kindOutcomes:
		return l.onOutcomes(r)
	case kindDeliver:
		return l.onDeliver(r)
	case kindResult:
		return l.onResult(r)
	case kindRouted:
		return l.onRouted(r)
	case kindDeclined:
		return l.onDeclined(r)
	case kindStored:
		return l.onStored(r)
	case kindEnded:
		return l.onEnded(r)
	case kindAlarms:
		a := r.alarms()
		if err := r.done(k); err != nil {
			return err
		}
		l.heard(a)
		l.out.mu.Lock()
		l.changed.Broadcast()
		l.out.mu.Unlock()
		if fn := l.watch.Load(); fn != nil {
			(*fn)()
		}
		return nil
	case kindDescribe:
		return l.describe(r)
	case kindLeave:
		l.leave(errGone())
		return r.done(k)
	case kindEnd:
		reason := r.error()
		if err := r.done(k); err != nil {
			return err
		}
		if reason != nil {
			l.leave(reason)
		}
		return nil
	}
	return fmt.Errorf("%w: of kind %d", errMalformed, k)
}

// welcome handles the first frame.
func (l *link) welcome(k kind, r *reader) error {
	switch k {
	case kindOpened:
		a := r.alarms()
		if len(r.B) > 0 {
			l.id = kernel.ConnectionID(r.Uint())
		}
		if len(r.B) > 0 {
			r.Flags(&l.repeats)
		}
		if err := r.done(k); err != nil {
			return err
		}
		l.heard(a)
		l.isOpen = true
		l.opened <- nil
		return nil
	case kindRefused:
		reason := r.error()
		if err := r.done(k); err != nil || reason == nil {
			return errors.Join(errMalformed, err)
		}
		return reason
	}
	return fmt.Errorf("%w: of kind %d before the link is open", errMalformed, k)
}

// leave tells, once, that the link is to be closed. With CodeUnavailable nothing is
// published any more.
func (l *link) leave(reason error) {
	l.out.mu.Lock()
	tell := l.tell
	if l.told {
		tell = nil
	}
	l.told = true
	if l.refusal == nil && kernel.CodeOf(reason) == kernel.CodeUnavailable {
		l.refusal = reason
		l.changed.Broadcast()
	}
	l.out.mu.Unlock()
	if tell != nil {
		tell(reason)
	}
}

// describe answers the question for the channels.
func (l *link) describe(r *reader) error {
	var list []kernel.ChannelStatus
	if l.channels != nil {
		list = l.channels.Channels()
	}
	l.out.mu.Lock()
	start := l.out.begin(kindDescribed)
	l.out.buf = appendChannels(l.out.buf, list)
	l.out.end(start)
	l.out.mu.Unlock()
	return r.done(kindDescribe)
}

// CountIn implements edge.Counting. Until it is called nobody looks at what is counted.
func (l *link) CountIn(n *broker.Counters) {
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	l.traffic = n
}

// ID implements edge.Link.
func (l *link) ID() kernel.ConnectionID { return l.id }

// Alarms implements edge.Link: as of what the node has told last.
func (l *link) Alarms() *broker.Alarms { return l.alarms.Load() }

// heard takes over what the node tells of its alarms. A facade gathers once, when it begins.
// The reader's.
func (l *link) heard(a *broker.Alarms) {
	if l.alarms.Store(a); a.Leader.On {
		return
	}
	select {
	case <-l.gathered:
	default:
		close(l.gathered)
	}
}

// Gathered implements edge.Link.
func (l *link) Gathered(ctx context.Context) {
	select {
	case <-l.gathered:
	case <-l.ended:
	case <-ctx.Done():
	}
}

// WatchAlarms implements edge.Link.
func (l *link) WatchAlarms(fn func()) { l.watch.Store(&fn) }

// number appends a frame of numbers. The caller holds out.mu.
func (l *link) number(k kind, id uint64, n ...int64) {
	start := l.out.begin(k)
	l.out.buf = codec.AppendUint(l.out.buf, id)
	for _, v := range n {
		l.out.buf = codec.AppendInt(l.out.buf, v)
	}
	l.out.end(start)
}
