package amqp

import (
	"time"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// contentState is what a channel's content waits for.
type contentState uint8

const (
	contentNone   contentState = iota // no publish under way
	contentHeader                     // the method has come
	contentBody                       // the header has come
)

const (
	// maxEmptyFrames is how many body frames without a byte one message may have.
	maxEmptyFrames = 64
	// maxUnfinished is how many bytes of bodies that are not whole yet a
	// connection may have on all its channels.
	maxUnfinished = 128 << 20
	// pauseTime is how long a publisher is not read because the clients together
	// have sent too much of messages that are not whole.
	pauseTime = 2 * time.Second
	// keepBody is the largest buffer a channel keeps for the next body.
	keepBody = 64 << 10
)

// content puts a publish together from its frames. As long as all of them lie
// in the read buffer it only aliases them; detach copies what is there when
// the buffer is about to change.
type content struct {
	ch      *channel
	state   contentState
	partial bool // listed in conn.partial
	empty   int  // body frames without a byte

	method wire.BasicPublish
	props  wire.Properties
	size   int    // of the body, as announced
	got    []byte // body so far, owned
	taken  int    // bytes of the server's budget for it

	rawHeader []byte // payload of the header frame, aliased
	names     []byte // owned copies made by detach
	header    []byte
}

// begin takes the publish method.
func (t *content) begin(payload []byte) error {
	if err := t.ch.c.decoder.Decode(&t.method, payload); err != nil {
		return err
	}
	if t.method.Immediate {
		return faultf(wire.NotImplemented, "immediate=true")
	}
	t.state, t.empty, t.rawHeader = contentHeader, 0, nil
	t.alias()
	return nil
}

// alias notes that something of the read buffer is held.
func (t *content) alias() {
	if !t.partial {
		t.partial = true
		t.ch.c.partial = append(t.ch.c.partial, t.ch)
	}
}

// headerFrame takes the content header. Sizes are judged before anything is
// allocated for them.
func (t *content) headerFrame(payload []byte) error {
	class, size, err := wire.ParseHeader(payload, &t.props)
	if err != nil {
		return err
	}
	if class != wire.ClassBasic {
		return t.fault(faultf(wire.UnexpectedFrame, "expected content header for class %d, got one for class %d instead", wire.ClassBasic, class))
	}
	if size > hardMaxMessage {
		return t.fault(faultf(wire.FrameErrorCode, "a body of %d bytes is announced, the limit is %d", size, hardMaxMessage))
	}
	if limit := t.ch.c.srv.cfg.MaxMessage; size > uint64(limit) {
		return t.fault(faultf(wire.PreconditionFailed, "message size %d is larger than configured max size %d", size, limit))
	}
	t.size, t.rawHeader, t.state = int(size), payload, contentBody
	t.alias()
	if t.size == 0 {
		return t.complete([]byte{})
	}
	return nil
}

// bodyFrame takes a piece of the body.
func (t *content) bodyFrame(payload []byte) error {
	if len(payload) > t.size-len(t.got) {
		return t.fault(faultf(wire.FrameErrorCode, "the body is longer than the %d bytes announced", t.size))
	}
	if len(payload) == t.size {
		return t.complete(payload)
	}
	if len(payload) == 0 {
		if t.empty++; t.empty > maxEmptyFrames {
			return t.fault(faultf(wire.FrameErrorCode, "more than %d empty body frames", maxEmptyFrames))
		}
	}
	if t.ch.c.unfinished+len(payload) > maxUnfinished {
		return t.fault(faultf(wire.ResourceError, "more than %d bytes of unfinished messages", maxUnfinished))
	}
	if !t.makeRoom(len(payload)) {
		return t.fault(faultf(wire.ResourceError, "too many bytes of unfinished messages on this node"))
	}
	t.got = append(t.got, payload...)
	t.ch.c.unfinished += len(payload)
	if len(t.got) == t.size {
		return t.complete(t.got)
	}
	return nil
}

// makeRoom makes room for n more bytes of the body, within the budget of all
// clients; it may wait for that. An announced size alone takes no memory.
func (t *content) makeRoom(n int) bool {
	if len(t.got)+n <= cap(t.got) {
		return true
	}
	c := t.ch.c
	size := min(t.size, max(len(t.got)+n, 4*len(t.got), keepBody))
	if c.srv.in.Over() {
		c.flush() // nobody waits for it meanwhile
	}
	if !c.srv.in.Take(size-t.taken, pauseTime, c.ctx.Done()) {
		return false
	}
	t.taken = size
	t.got = append(make([]byte, 0, size), t.got...)
	return true
}

// complete publishes.
func (t *content) complete(body []byte) error {
	ch := t.ch
	err, reply := error(errPressed), ch.replyTo(&t.props)
	if reply != nil {
		t.props.ReplyTo = reply
	}
	if !ch.c.pressed() {
		err = ch.publish(ch.pub, ch.confirms, &t.method, &t.props, body)
	}
	if err == error(errPressed) {
		h := t.held(body)
		h.reply = reply
		t.drop()
		err = ch.c.hold(h)
	}
	t.ch.c.rec.trim()
	t.drop()
	if err != nil {
		return t.fault(asFault(err))
	}
	return nil
}

// drop forgets the content, and keeps no large buffer.
func (t *content) drop() {
	t.state = contentNone
	t.ch.c.unfinished -= len(t.got)
	t.ch.c.srv.in.Add(-t.taken)
	t.taken = 0
	if t.got = t.got[:0]; cap(t.got) > keepBody {
		t.got = nil
	}
	if cap(t.header) > keepBody {
		t.header = nil
	}
}

// detach copies what is held of the read buffer.
func (t *content) detach() {
	t.partial = false
	if t.state == contentNone {
		return
	}
	t.names = append(t.names[:0], t.method.Exchange...)
	n := len(t.names)
	t.names = append(t.names, t.method.RoutingKey...)
	t.method.Exchange, t.method.RoutingKey = alias(t.names[:n]), alias(t.names[n:])
	if t.state == contentBody {
		t.header = append(t.header[:0], t.rawHeader...)
		t.rawHeader = t.header
		wire.ParseHeader(t.header, &t.props) // it has been parsed before: no error
	}
}

// unexpected says what is wrong with a frame that does not fit the state.
func (t *content) unexpected(fr wire.Frame) error {
	switch t.state {
	case contentHeader:
		return t.fault(faultf(wire.UnexpectedFrame, "expected content header for class %d, got non content header frame instead", wire.ClassBasic))
	case contentBody:
		return t.fault(faultf(wire.UnexpectedFrame, "expected content body, got non content body frame instead"))
	}
	return faultf(wire.UnexpectedFrame, "expected method frame, got non method frame instead")
}

// fault says that it is the publish that failed.
func (t *content) fault(f *fault) error {
	t.drop()
	f.id = wire.IDBasicPublish
	return f
}
