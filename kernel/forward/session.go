package forward

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// leaveTime is how long a client may take to leave when the broker stops, and
	// endTime when it is to be closed for another reason.
	leaveTime = 10 * time.Second
	endTime   = 30 * time.Second
	// partingTime is how long the last frames of a session may take.
	partingTime = 5 * time.Second
	// describeTime is how long a listing waits for the channels of a client.
	describeTime = time.Second
)

// errLeft ends a session in good order.
var errLeft = errors.New("forward: the client has left")

// session is a client of another node at the broker.
type session struct {
	server   *Server
	from     string // Raft name of the client's node
	token    string // of the client's connection; guarded by server.mu
	stream   Stream
	out      outbox
	conn     *broker.Conn
	ctx      context.Context // of what is called; ends with the stream
	cancel   context.CancelFunc
	writer   sync.WaitGroup // sends what is in out
	work     sync.WaitGroup // calls under way, line.run and pressure.retry
	done     chan struct{}  // closed when the stream is not read any more
	pressure pressure
	line     line

	// the reader's
	frames  frames
	pools   map[uint64]*kernel.Pool
	relinks bool // the client may come back when the stream breaks

	// guarded by out.mu
	publishers map[uint64]*feeder
	members    map[uint64]*stub
	hungry     []*stub // those that have credit to get
	reserved   int     // bytes of deliveries that are about to come
	calls      int     // under way
	opened     bool
	reason     error // the broker wants it closed
	late       *time.Timer
	asking     chan struct{} // closed when the channels are here; nil = nobody asks
	silent     bool          // the client did not answer in time
	channels   []kernel.ChannelStatus
	due        []*feeder // see flushDue
	wrong      error     // why the stream was ended, if it was not read
	holding    *holding  // nil = no session is attached
	attaching  bool      // one is being
	flow       flow      // of live messages
}

func newSession(s Stream, live *atomic.Int64) *session {
	c := &session{
		stream: s, done: make(chan struct{}), pools: make(map[uint64]*kernel.Pool),
		publishers: make(map[uint64]*feeder), members: make(map[uint64]*stub), flow: flow{total: live},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.out.init(c.feed)
	c.pressure.init(c)
	c.line.init(c)
	return c
}

// run serves the client, with a broker that may be nil, until it has left, and returns
// why the stream has ended if it has not.
func (c *session) run(b *broker.Broker) error {
	c.writer.Go(func() { c.out.run(c.stream) })
	slow := time.AfterFunc(openTime, c.stream.Close)
	err := c.receive(func(k kind, body []byte) error {
		if c.conn == nil {
			defer slow.Stop()
			return c.open(b, k, read(body))
		}
		return c.handle(k, body)
	})
	slow.Stop()
	close(c.done)
	if errors.Is(err, errLeft) {
		err = nil
		c.part()
	} else {
		c.out.kill()
		c.suspend()
	}
	c.cancel()
	if c.conn != nil {
		c.conn.Close()
	}
	c.work.Wait()
	c.out.close()
	c.out.mu.Lock()
	c.flow.drop()
	if c.late != nil {
		c.late.Stop()
	}
	c.out.mu.Unlock()
	parting := time.AfterFunc(partingTime, c.stream.Close)
	c.writer.Wait()
	parting.Stop()
	return cmp.Or(c.wrong, err)
}

// fail ends the stream for what is wrong with something that was read before.
func (c *session) fail(err error) {
	c.out.mu.Lock()
	c.wrong = cmp.Or(c.wrong, err)
	c.out.mu.Unlock()
	c.stream.Close()
}

func (c *session) receive(fn func(kind, []byte) error) error {
	for {
		b, err := c.stream.Recv()
		if err != nil {
			return err
		}
		if err := c.frames.feed(b, fn); err != nil {
			return err
		}
	}
}

// open handles the first frame.
func (c *session) open(b *broker.Broker, k kind, r *reader) error {
	if k != kindOpen {
		return fmt.Errorf("%w: of kind %d before open", errMalformed, k)
	}
	id := r.identity()
	info, listed, numbered, repeats := r.info()
	if err := r.done(k); err != nil {
		return err
	}
	if listed {
		info.Channels = c
	}
	if b != nil {
		info.Node = b.NodeName(c.from)
	}
	c.relinks = info.Token != ""
	err := errGone()
	var conn *broker.Conn
	if b != nil {
		c.server.replace(c, info.Token)
		conn, err = b.Connect(id, info, c.ending)
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if err != nil {
		start := c.out.begin(kindRefused)
		c.out.buf = appendError(c.out.buf, err)
		c.out.end(start)
		return errLeft
	}
	c.conn = conn
	conn.WatchAlarms(c.alarmed)
	c.opened = true
	start := c.out.begin(kindOpened)
	c.out.buf = appendAlarms(c.out.buf, conn.Alarms())
	if numbered {
		c.out.buf = codec.AppendUint(c.out.buf, uint64(conn.ID()))
	}
	if repeats {
		c.out.buf = codec.AppendFlags(c.out.buf, true)
	}
	c.out.end(start)
	if c.reason != nil {
		c.announce()
	}
	return nil
}

// ending has the client close, because the broker wants it. Not twice.
func (c *session) ending(reason error) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.reason = reason; c.opened {
		c.announce()
	}
}

// announce tells the client why it has to close, and bounds the time it takes. The caller
// holds out.mu.
func (c *session) announce() {
	if c.out.closing || c.out.dead {
		return
	}
	if kernel.CodeOf(c.reason) == kernel.CodeUnavailable {
		c.out.empty(kindLeave)
		c.late = time.AfterFunc(leaveTime, c.stream.Close)
		return
	}
	start := c.out.begin(kindEnd)
	c.out.buf = appendError(c.out.buf, c.reason)
	c.out.end(start)
	c.late = time.AfterFunc(endTime, c.stream.Close)
}

// alarmed tells the client of the alarms, and has what waits for their end tried.
func (c *session) alarmed() {
	c.out.mu.Lock()
	start := c.out.begin(kindAlarms)
	c.out.buf = appendAlarms(c.out.buf, c.conn.Alarms()) // under the mutex: the last told is the last there was
	c.out.end(start)
	c.out.mu.Unlock()
	c.pressure.relieve()
}

// handle handles a frame. An error ends the session.
func (c *session) handle(k kind, body []byte) error {
	if k == kindPublish || k == kindBatch {
		return c.publish(k, body)
	}
	r := read(body)
	switch k {
	case kindCredit:
		id, n := r.Uint(), r.int()
		if err := r.done(k); err != nil {
			return err
		}
		c.credit(id, n)
		return nil
	case kindSettle:
		id := r.Uint()
		s, err := r.settlement()
		if err != nil {
			return err
		}
		if m := c.member(id); m != nil {
			m.m.Settle(s.outcome, s.partition, s.first, s.last)
		}
		return nil
	case kindCall:
		return c.call(r)
	case kindPublisher, kindUnpublish:
		id := r.Uint()
		if err := r.done(k); err != nil {
			return err
		}
		return c.feeders(id, k == kindPublisher)
	case kindPool, kindPoolLimit, kindPoolAdd, kindPoolPut, kindUnpool:
		return c.pool(k, r)
	case kindPin, kindTake, kindRefuse, kindUnpin:
		return c.pin(k, r)
	case kindUnpinNumber:
		id := r.pinID()
		if err := r.done(k); err != nil {
			return err
		}
		h := c.held()
		if h == nil {
			return errNoSession
		}
		h.s.Unpin(id)
		return nil
	case kindLiveTaken:
		return c.taken(r)
	case kindLetMember, kindLetCursor:
		id := r.Uint()
		if err := r.done(k); err != nil {
			return err
		}
		c.let(k, id)
		return nil
	case kindDescribed:
		list := r.channels()
		if err := r.done(k); err != nil {
			return err
		}
		c.described(list)
		return nil
	case kindLeft:
		if err := r.done(k); err != nil {
			return err
		}
		return errLeft
	}
	return fmt.Errorf("%w: of kind %d", errMalformed, k)
}

// part has all that was published get its outcome, as far as that comes in time.
func (c *session) part() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, settleTime)
	defer cancel()
	c.line.wait(ctx, c.line.mark())
	c.pressure.end()
	c.out.mu.Lock()
	list := make([]*feeder, 0, len(c.publishers))
	for _, f := range c.publishers {
		list = append(list, f)
	}
	c.out.mu.Unlock()
	for _, f := range list {
		if f.p.Settle(ctx) != nil {
			return // nor do the others
		}
	}
}

// maxPools bounds the pools of a client.
const maxPools = 1 << 17

// pool handles a frame about a pool. One that is not there, or not any more, is none of
// anybody's business.
func (c *session) pool(k kind, r *reader) error {
	id, n := r.Uint(), 0
	if k != kindUnpool {
		n = r.int()
	}
	if err := r.done(k); err != nil {
		return err
	}
	p := c.pools[id]
	switch {
	case k == kindPool:
		if p != nil || len(c.pools) >= maxPools {
			return fmt.Errorf("%w: one pool too many", errMalformed)
		}
		c.pools[id] = kernel.NewPool(n)
	case p == nil:
	case k == kindPoolLimit:
		p.SetLimit(n)
	case k == kindPoolAdd:
		p.Add(n)
	case k == kindPoolPut:
		p.Put(n)
	case k == kindUnpool:
		delete(c.pools, id)
	}
	return nil
}

// Channels implements kernel.ChannelLister: it asks the client, and waits a second at
// most. Of one that did not answer in time the list is what it was.
func (c *session) Channels() []kernel.ChannelStatus {
	c.out.mu.Lock()
	if c.asking == nil {
		c.asking = make(chan struct{})
		c.out.empty(kindDescribe)
	}
	answer, silent := c.asking, c.silent
	c.out.mu.Unlock()
	if !silent {
		timer := time.NewTimer(describeTime)
		defer timer.Stop()
		select {
		case <-answer:
		case <-c.done:
		case <-timer.C:
			silent = true
		}
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.silent = silent && c.asking == answer
	return c.channels
}

func (c *session) described(list []kernel.ChannelStatus) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.channels = list
	if c.asking != nil {
		close(c.asking)
		c.asking, c.silent = nil, false
	}
}
