package amqp

import (
	"net"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

const (
	// keepBuffer is the largest write buffer kept for reuse.
	keepBuffer = 1 << 20
	// fullBuffer is when consumers get no more credit until some was written,
	// and the reader stops to handle requests whose answers add to it.
	fullBuffer = 1 << 20
)

// outbox is the buffer between all who have something to send and the one
// goroutine that writes. Its mutex also guards what has to agree with the
// order of bytes in it: delivery tags and credit.
type outbox struct {
	mu   sync.Mutex
	buf  []byte        // waiting to be written
	wake chan struct{} // capacity 1; sent to when buf stops being empty
	room sync.Cond     // broadcast when buf has been taken, and at the end

	busy     int           // bytes taken and not yet written
	interval time.Duration // between heartbeats, 0 = none
	closing  bool          // connection.close has been appended: nothing may follow but close-ok
	ended    bool          // nothing is written any more
}

func newOutbox() *outbox {
	o := &outbox{wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

// done ends a piece of work under the mutex that may have appended to buf:
// before is len(buf) at its start.
func (o *outbox) done(before int) {
	wake := before == 0 && len(o.buf) > 0
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

// full reports whether so much waits that nothing should be added.
func (o *outbox) full() bool { return len(o.buf)+o.busy >= fullBuffer }

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
	o.room.Broadcast()
}

// run is the writer: it returns after end, or when a write fails. after is
// called, with the mutex held, after each write; it must release the mutex.
func (o *outbox) run(nc net.Conn, after func()) error {
	var spare []byte
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		b, interval, last := o.take(spare)
		if len(b) > 0 {
			_, err := nc.Write(b)
			if spare = b; cap(spare) > keepBuffer {
				spare = nil
			}
			o.written()
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
		o.idle(timer, interval)
	}
}

// idle waits for something to write; after interval that is a heartbeat.
func (o *outbox) idle(timer *time.Timer, interval time.Duration) {
	if interval == 0 {
		<-o.wake
		return
	}
	timer.Reset(interval)
	select {
	case <-o.wake:
	case <-timer.C:
		o.mu.Lock()
		if len(o.buf) == 0 && !o.closing {
			o.buf = wire.AppendHeartbeat(o.buf)
		}
		o.mu.Unlock()
	}
}
