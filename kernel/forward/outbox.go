package forward

import (
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel/cluster"
)

// Stream is what a link runs on.
type Stream = cluster.Stream

// sendSize is how many bytes go in one message at most.
const sendSize = 128 << 10

// outbox gathers frames for one goroutine, run, that sends them. Its mutex guards all
// that the link at its end shares between goroutines.
type outbox struct {
	mu       sync.Mutex
	buf      []byte  // whole frames; nil while there are none
	box      *[]byte // what buf goes back to buffers in
	waiting  int     // bytes in buf, and of what is being sent those that are not taken
	appended uint64  // bytes ever appended
	sent     uint64  // and of those ever given to the stream
	idle     bool    // run waits
	closing  bool    // run ends when all is sent; what is appended is lost
	dead     bool    // nothing is sent any more
	wake     chan struct{}
	drained  func() // called by run, without the mutex, after each message; may be nil
}

func (o *outbox) init(drained func()) { o.wake, o.drained = make(chan struct{}, 1), drained }

// buffers are for frames: most links are idle, and need none then.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// begin and end append a frame; what is between them appends its body to o.buf. The
// caller holds o.mu.
func (o *outbox) begin(k kind) (start int) {
	o.need()
	o.buf, start = beginFrame(o.buf, k)
	return start
}

func (o *outbox) end(start int) {
	if o.dead || o.closing {
		o.buf = o.buf[:start]
		return
	}
	o.buf = endFrame(o.buf, start)
	n := len(o.buf) - start
	o.waiting += n
	o.appended += uint64(n)
	o.rouse()
}

// need gets a buffer if there is none. The caller holds o.mu.
func (o *outbox) need() {
	if o.buf == nil {
		o.box = buffers.Get().(*[]byte)
		o.buf = (*o.box)[:0]
	}
}

// grow makes room for a large frame at once. The caller holds o.mu.
func (o *outbox) grow(n int) {
	if o.need(); n > sendSize {
		o.buf = slices.Grow(o.buf, n)
	}
}

// empty appends a frame without a body. The caller holds o.mu.
func (o *outbox) empty(k kind) { o.end(o.begin(k)) }

// rouse wakes run. The caller holds o.mu.
func (o *outbox) rouse() {
	if o.idle {
		o.idle = false
		o.wake <- struct{}{} // there is room: run waits for one
	}
}

// close has run end when all is sent; kill, at once.
func (o *outbox) close() {
	o.mu.Lock()
	o.seal()
	o.mu.Unlock()
}

// seal is close for who holds o.mu.
func (o *outbox) seal() {
	o.closing = true
	o.rouse()
}

func (o *outbox) kill() {
	o.mu.Lock()
	o.die()
	o.mu.Unlock()
}

// die is kill for who holds o.mu.
func (o *outbox) die() {
	o.dead, o.buf, o.waiting = true, nil, 0
	o.rouse()
}

// run sends until it is told to end, or cannot.
func (o *outbox) run(s Stream) {
	for {
		b, box := o.take()
		if b == nil {
			return
		}
		for rest := b; len(rest) > 0; {
			n := min(len(rest), sendSize)
			if !o.giving(n) {
				return
			}
			if s.Send(rest[:n]) != nil {
				o.kill()
				return
			}
			rest = rest[n:]
			if o.taken(n); o.drained != nil {
				o.drained()
			}
		}
		if cap(b) <= keepBuffer {
			*box = b[:0]
			buffers.Put(box)
		}
	}
}

// take waits for what there is to send; nil is the end.
func (o *outbox) take() (b []byte, box *[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) == 0 {
		if o.closing || o.dead {
			return nil, nil
		}
		o.idle = true
		o.mu.Unlock()
		<-o.wake
		o.mu.Lock()
	}
	b, box = o.buf, o.box
	o.buf, o.box = nil, nil
	return b, box
}

// giving counts bytes that the stream is about to have.
func (o *outbox) giving(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent += uint64(n)
	return !o.dead
}

func (o *outbox) taken(n int) {
	o.mu.Lock()
	o.waiting = max(o.waiting-n, 0)
	o.mu.Unlock()
}
