package amqp

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

const (
	// keepBuffer is the largest write buffer kept for reuse.
	keepBuffer = 1 << 20
	// fullBuffer is when consumers get no more credit until some was written,
	// and the reader stops to handle requests whose answers add to it.
	fullBuffer = 1 << 20
	// tightBuffer is the same while the clients together have too much waiting.
	tightBuffer = 64 << 10
	// accountStep is how far a connection's backlog may be from what the sum of
	// all has of it.
	accountStep = 32 << 10
	// stallTime is how long a client may take to read stallBytes while the clients
	// together have too much waiting. So what waits gets less in the end.
	stallTime  = 15 * time.Second
	stallBytes = 128 << 10
	// promptTime is how long a client may take for one write to be one that
	// reads.
	promptTime = time.Second
	// pollTime is about how often who waits for that looks.
	pollTime = 250 * time.Millisecond
)

var errStalled = errors.New("the client does not read, and too much waits for all clients together")

// outbox is the buffer between all who have something to send and the one
// goroutine that writes. Its mutex also guards what has to agree with the
// order of bytes in it: delivery tags and credit.
type outbox struct {
	mu   sync.Mutex
	buf  []byte        // waiting to be written
	wake chan struct{} // capacity 1; sent to when buf stops being empty
	room sync.Cond     // broadcast when buf has been taken, and at the end

	total   *listener.Memory // what waits for all connections
	counted int              // what it knows of this one
	hurried bool             // the write deadline is that of the end
	poll    bool             // the writer looks whether the total has become less
	prompt  bool             // the client has taken large messages at once so far
	shut    bool             // a consumer waits for that, seen since the last look

	reserved int           // bytes of total for what comes next
	busy     int           // bytes taken and not yet written
	interval time.Duration // between heartbeats, 0 = none
	closing  bool          // connection.close has been appended: nothing may follow but close-ok
	ended    bool          // nothing is written any more
}

func newOutbox(total *listener.Memory) *outbox {
	o := &outbox{wake: make(chan struct{}, 1), total: total}
	o.room.L = &o.mu
	return o
}

// done ends a piece of work under the mutex that may have appended to buf:
// before is len(buf) at its start.
func (o *outbox) done(before int) {
	wake := before == 0 && len(o.buf) > 0
	o.account()
	o.mu.Unlock()
	if wake {
		o.poke()
	}
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// send appends one method.
func (o *outbox) send(channel uint16, m wire.Method) {
	o.mu.Lock()
	before := len(o.buf)
	if !o.closing && !o.ended {
		o.buf = wire.AppendMethod(o.buf, channel, m)
	}
	o.done(before)
}

// sendLast appends a last method; all later ones are dropped.
func (o *outbox) sendLast(channel uint16, m wire.Method) {
	o.mu.Lock()
	before := len(o.buf)
	if !o.ended {
		o.buf = wire.AppendMethod(o.buf, channel, m)
	}
	o.closing = true
	o.done(before)
}

// backlog is how many bytes the client has not taken.
func (o *outbox) backlog() int { return len(o.buf) + o.busy }

// account keeps the sum of all connections about right. The caller holds mu.
func (o *outbox) account() {
	if d := o.backlog() + o.reserved - o.counted; d >= accountStep || d <= -accountStep || d < 0 && o.backlog() == 0 {
		o.total.Add(d)
		o.counted += d
	}
}

// overdraft is how many bytes may wait beyond the total before a message of n
// bytes: none, but for a client that has shown that it reads. So the others cannot
// hold it up, and nor can many that stop to read. The caller holds mu.
func (o *outbox) overdraft(n int) int {
	if o.prompt && o.backlog() == 0 {
		return max(o.total.Limit()/4, n)
	}
	return 0
}

// reserve books n bytes for what is appended next, if the total has room. The
// caller holds mu.
func (o *outbox) reserve(n int) bool {
	if !o.total.Book(n, o.overdraft(n)) {
		return false
	}
	o.reserved += n
	o.counted += n
	return true
}

// makeRoom grows the buffer for a large message at once, and not by doubling.
// The caller holds mu.
func (o *outbox) makeRoom(d *kernel.Delivery, frameMax int) {
	size := d.Record.Size
	if size < keepBuffer/16 {
		return
	}
	frames := size/(frameMax-wire.FrameOverhead) + 4
	o.buf = slices.Grow(o.buf, size+frames*wire.FrameOverhead+d.Record.HeaderCount()*8+1024)
}

// full reports whether so much waits that nothing should be added.
func (o *outbox) full() bool {
	return o.backlog() >= fullBuffer || o.backlog() >= tightBuffer && o.total.Over()
}

// waitRoom blocks while the buffer is full.
func (o *outbox) waitRoom() {
	o.mu.Lock()
	for o.full() && !o.ended {
		o.room.Wait()
	}
	o.mu.Unlock()
}

// setInterval sets the time between heartbeats.
func (o *outbox) setInterval(d time.Duration) {
	o.mu.Lock()
	o.interval = d
	o.mu.Unlock()
	o.poke() // let the writer see it
}

// end stops the writer after what is buffered has been written.
func (o *outbox) end() {
	o.mu.Lock()
	o.ended = true
	o.room.Broadcast()
	o.mu.Unlock()
	o.poke()
}

// take swaps a buffer that holds something for an empty one.
func (o *outbox) take(empty []byte) (b []byte, interval time.Duration, last bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buf) > 0 {
		b, o.buf = o.buf, empty[:0]
		o.busy = len(b)
	}
	return b, o.interval, o.ended
}

// written records that what was taken is on its way. It returns with the
// mutex held, so that the caller may look at credit in the same step.
func (o *outbox) written() {
	o.mu.Lock()
	o.busy = 0
	o.account()
	o.room.Broadcast()
}

// run is the writer: it returns after end, or when a write fails. after is
// called, with the mutex held, after each write; it must release the mutex.
func (o *outbox) run(nc net.Conn, after func()) error {
	defer o.forget()
	var spare []byte
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	silent := time.Duration(0)
	for {
		b, interval, last := o.take(spare)
		if len(b) > 0 {
			silent = 0
			begin := time.Now()
			err := o.write(nc, b)
			prompt := len(b) < tightBuffer || time.Since(begin) < promptTime
			if spare = b; cap(spare) > keepBuffer {
				spare = nil
			}
			o.written()
			o.prompt = prompt && (o.prompt || len(b) >= tightBuffer)
			after()
			if err != nil {
				o.end()
				return err
			}
			if !last {
				continue // more may have come meanwhile
			}
		}
		if last {
			return nil
		}
		if wait := o.pollIn(interval - silent); wait > 0 {
			if o.idle(timer, wait) {
				silent += wait
			}
			o.mu.Lock()
			after()
			continue
		}
		if o.idle(timer, interval-silent) {
			o.heartbeat()
		}
		silent = 0
	}
}

// look makes the writer look from time to time whether the total has room. The
// caller holds mu.
func (o *outbox) look() {
	o.shut = true
	if !o.poll {
		o.poll = true
		o.poke()
	}
}

// pollIn returns how long to wait until consumers look for memory again: 0 if
// none waits for it, or the next heartbeat comes first.
func (o *outbox) pollIn(heartbeat time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	wait := pollTime + rand.N(pollTime) // not all at once
	if !o.poll || heartbeat > 0 && heartbeat <= wait {
		return 0
	}
	return wait
}

// write writes b, however long the client takes to read, unless the connection
// ends or the client reads nothing while memory is short.
func (o *outbox) write(nc net.Conn, b []byte) error {
	for {
		o.mu.Lock()
		if !o.hurried {
			nc.SetWriteDeadline(time.Now().Add(stallTime))
		}
		o.mu.Unlock()
		n, err := nc.Write(b)
		if err == nil {
			return nil
		}
		o.mu.Lock()
		hurried := o.hurried
		o.mu.Unlock()
		if hurried || !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		if b = b[n:]; n < stallBytes && o.total.Over() {
			return errStalled
		}
	}
}

// hurry gives the client a last moment to read what waits for it.
func (o *outbox) hurry(nc net.Conn) {
	o.mu.Lock()
	o.hurried = true
	nc.SetWriteDeadline(time.Now().Add(closeTimeout))
	o.mu.Unlock()
}

// forget drops what will not be written any more.
func (o *outbox) forget() {
	o.mu.Lock()
	o.buf, o.busy = nil, 0
	o.account()
	o.mu.Unlock()
}

// idle waits for something to write; it reports true if there was nothing for so
// long. No limit is 0 or less.
func (o *outbox) idle(timer *time.Timer, limit time.Duration) bool {
	if limit <= 0 {
		<-o.wake
		return false
	}
	timer.Reset(limit)
	select {
	case <-o.wake:
		return false
	case <-timer.C:
		return true
	}
}

func (o *outbox) heartbeat() {
	o.mu.Lock()
	if len(o.buf) == 0 && !o.closing {
		o.buf = wire.AppendHeartbeat(o.buf)
	}
	o.mu.Unlock()
}
