package amqp

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// outcome of one publish in the confirm window.
type outcome uint8

const (
	pending  outcome = iota
	acked            // to be told
	nacked           // to be told
	answered         // told, out of order
)

// confirms is the window of publishes of one channel that the client has not
// been told about: a ring of outcomes from the lowest unconfirmed one. It is
// the channel's kernel.Completion; its own mutex is taken before out.mu.
type confirms struct {
	ch     *channel
	queued bool // listed in conn.returned; the reader's

	mu     sync.Mutex
	ring   []outcome // a power of two long
	base   uint64    // lowest sequence number not known to the client
	next   uint64    // sequence number of the next publish
	front  uint64    // all below it are done
	late   []uint64  // done out of order since the last flush
	closed bool
	ack    wire.BasicAck
	nack   wire.BasicNack
}

const minRing = 64

func newConfirms(ch *channel) *confirms {
	return &confirms{ch: ch, ring: make([]outcome, minRing), base: 1, next: 1, front: 1}
}

func (w *confirms) at(seq uint64) *outcome { return &w.ring[seq&uint64(len(w.ring)-1)] }

// begin gives a publish its sequence number.
func (w *confirms) begin() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next-w.base == uint64(len(w.ring)) {
		w.grow()
	}
	seq := w.next
	w.next++
	*w.at(seq) = pending
	return seq
}

// undo takes back the last begin: the publish is made later.
func (w *confirms) undo(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if seq+1 == w.next {
		w.next--
	}
}

func (w *confirms) grow() {
	old := w.ring
	w.ring = make([]outcome, 2*len(old))
	for seq := w.base; seq < w.next; seq++ {
		*w.at(seq) = old[seq&uint64(len(old)-1)]
	}
}

// Completed implements kernel.Completion. Whatever the error was, the client
// learns the same: it must assume that the message is not there.
func (w *confirms) Completed(seq uint64, res kernel.Result) {
	if res.Err != nil {
		w.finish(seq, nacked)
		return
	}
	w.finish(seq, acked)
}

// Declined implements edge.Decliner.
func (w *confirms) Declined(seq uint64, err error) {
	if passing(err) {
		w.finish(seq, nacked)
		return
	}
	w.ch.decline(err) // the end of the channel is the answer
}

func (w *confirms) finish(seq uint64, o outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*w.at(seq) = o
	if seq == w.front {
		w.front++
	} else {
		w.late = append(w.late, seq)
	}
}

// Flush implements kernel.Completion: it tells the client. What is done from
// the lowest unconfirmed on goes out as one answer per run of equal outcomes,
// with multiple set; what is done beyond a gap goes out by itself.
func (w *confirms) Flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.ch.c.out
	o.mu.Lock()
	before := len(o.buf)
	w.flushRuns()
	for _, seq := range w.late {
		if at := w.at(seq); seq >= w.base && *at != answered {
			w.tell(seq, *at, false)
			*at = answered
		}
	}
	w.late = w.late[:0]
	o.done(before)
}

// flushRuns moves base over everything done.
func (w *confirms) flushRuns() {
	first, last, run := uint64(0), uint64(0), answered // which is not told
	for ; w.base < w.next; w.base++ {
		o := *w.at(w.base)
		if o == pending {
			break
		}
		if o != run { // also at what was told before: an answer must not span it
			w.tell(last, run, last != first)
			first, run = w.base, o
		}
		last = w.base
	}
	w.tell(last, run, last != first)
	w.front = max(w.front, w.base)
}

// tell appends the answer for seq. The caller holds both mutexes.
func (w *confirms) tell(seq uint64, o outcome, multiple bool) {
	out := w.ch.c.out
	if w.closed || out.closing || out.ended {
		return
	}
	switch o {
	case acked:
		w.ack = wire.BasicAck{DeliveryTag: seq, Multiple: multiple}
		out.buf = wire.AppendMethod(out.buf, w.ch.id, &w.ack)
	case nacked:
		w.nack = wire.BasicNack{DeliveryTag: seq, Multiple: multiple}
		out.buf = wire.AppendMethod(out.buf, w.ch.id, &w.nack)
	}
}

// close makes all later outcomes unheard.
func (w *confirms) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// settled records an outcome that the reader itself knows; flush tells it.
func (w *confirms) settled(seq uint64, o outcome) {
	w.finish(seq, o)
	if !w.queued {
		w.queued = true
		w.ch.c.returned = append(w.ch.c.returned, w)
	}
}

func (ch *channel) onConfirmSelect(m *wire.ConfirmSelect) error {
	if ch.confirms == nil {
		ch.confirms = newConfirms(ch)
		ch.confirming.Store(true)
		ch.pub.Close() // nothing is under way: see inOrder
		ch.pub = ch.c.link.Publisher(ch.confirms)
	}
	ch.answer(m.NoWait, &wire.ConfirmSelectOk{})
	return nil
}
