package forward

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// liveWindow is how many bytes of live messages of a link may be under way and not
	// taken by the front-end, if they are several; liveLow below how many publishers that
	// wait are told that there is room.
	liveWindow = 1 << 20
	liveLow    = liveWindow / 2
	// liveStep is how many may have been taken without being acknowledged: those are
	// what a link may always have under way.
	liveStep = 64 << 10
	// liveTotal is how many all links together may have under way beyond that.
	liveTotal = 256 << 20
)

// flow bounds the live messages of a link. The session's out.mu guards it.
type flow struct {
	unacked int           // bytes
	room    chan struct{} // closed when there is room again; nil = there is
	total   *atomic.Int64 // unacked of all links of the server
}

// full reports whether so many bytes more have to wait.
func (f *flow) full(n int) bool {
	return f.unacked >= liveStep && (f.unacked+n > liveWindow || f.total.Load() > liveTotal)
}

func (f *flow) add(n int) {
	f.unacked += n
	f.total.Add(int64(n))
}

// watch is the live subscriber at the broker that stands for one at another node. It
// implements kernel.LiveSubscriber.
type watch struct {
	session *session
	id      uint64
}

// Live implements kernel.LiveSubscriber.
func (w *watch) Live(m *kernel.LiveMessage, _ uint64) bool {
	c, o := w.session, &w.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dead || o.closing {
		return true
	}
	size := headSize + 3*binary.MaxVarintLen64 + len(m.Name) + recordSize(m.Record)
	if f := &c.flow; f.full(size) {
		if f.room == nil {
			f.room = make(chan struct{})
		}
		return false
	}
	o.grow(size)
	start := o.begin(kindLive)
	b := codec.AppendUint(codec.AppendUint(o.buf, w.id), uint64(m.Origin))
	o.buf = appendRecord(codec.AppendString(b, m.Name), m.Record)
	c.flow.add(len(o.buf) - start)
	o.end(start)
	return true
}

// Room implements kernel.LiveSubscriber.
func (w *watch) Room() <-chan struct{} {
	o := &w.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := w.session.flow.room; room != nil {
		return room
	}
	return roomy
}

// drop ends the account of a link.
func (f *flow) drop() {
	if f.add(-f.unacked); f.room != nil {
		close(f.room)
		f.room = nil
	}
}

// roomy is a channel that is closed.
var roomy = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// taken notes how many bytes of live messages the front-end has taken.
func (c *session) taken(r *reader) error {
	n := r.Uint()
	if err := r.done(kindLiveTaken); err != nil {
		return err
	}
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	f := &c.flow
	if n > uint64(f.unacked) {
		return fmt.Errorf("%w: more live messages are taken than there were", errMalformed)
	}
	if f.add(-int(n)); f.room != nil && f.unacked <= liveLow && (f.unacked < liveStep || f.total.Load() <= liveTotal) {
		close(f.room)
		f.room = nil
	}
	return nil
}
