package forward

import (
	"encoding/binary"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// liveWindow is how many bytes of live messages of a link may be under way and not
	// taken by the front-end, if they are several; liveLow below how many publishers that
	// wait are told that there is room.
	liveWindow = 1 << 20
	liveLow    = liveWindow / 2
	// liveStep is how many may have been taken without being acknowledged.
	liveStep = 64 << 10
)

// flow bounds the live messages of a link. The session's out.mu guards it.
type flow struct {
	unacked int           // bytes
	room    chan struct{} // closed when there is room again; nil = there is
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
	if f := &c.flow; f.unacked >= liveStep && f.unacked+size > liveWindow {
		if f.room == nil {
			f.room = make(chan struct{})
		}
		return false
	}
	o.grow(size)
	start := o.begin(kindLive)
	b := codec.AppendUint(codec.AppendUint(o.buf, w.id), uint64(m.Origin))
	o.buf = appendRecord(codec.AppendString(b, m.Name), m.Record)
	c.flow.unacked += len(o.buf) - start
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
	if f.unacked -= int(n); f.room != nil && f.unacked <= liveLow {
		close(f.room)
		f.room = nil
	}
	return nil
}
