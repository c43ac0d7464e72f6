package amqp

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// conn is one connection. Fields without remark belong to the reader
// goroutine; what is guarded by out.mu says so.
type conn struct {
	srv    *Server
	nc     net.Conn
	log    zerolog.Logger
	frames *wire.FrameReader
	out    *outbox
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	// login lasts as long as that may take, until cutLogin.
	login    context.Context
	cutLogin context.CancelFunc

	link  link // nil until connection.open
	count *broker.Counters
	vhost string
	user  string

	frameMax   int
	channelMax int
	authClose  bool // client wants connection.close on a failed login
	cancelNote bool // client understands basic.cancel from the server
	blockNote  bool // client understands connection.blocked
	clientName string
	mechanism  string            // it authenticated by
	properties []kernel.Argument // what it says of itself

	patience time.Duration // two heartbeats as agreed, 0 = for ever
	idle     time.Duration // patience once the handshake is over: a read may take that long
	renewed  time.Time     // when the read deadline was last set

	channels map[uint16]*channel // changed under out.mu
	last     *channel            // of them, whose frame was the last; nil = not known
	partial  []*channel          // with a content that aliases the read buffer
	settling []*consumer         // with settles or credit not yet handed on
	returned []*confirms         // with outcomes of the reader's own to flush
	entries  []unackedEntry      // for settles of many at once
	rec      builder
	decoder  wire.Decoder

	unfinished int // bytes of bodies that are not whole yet
	blocked    blocked

	gone atomic.Bool // the writer has failed

	closing atomic.Bool // a close is under way, frames are discarded; set under out.mu

	// guarded by out.mu
	hungry    []*consumer // to be given credit when something was written
	feeding   []*consumer // hungry of the last round, kept for its memory
	consuming int         // consumers that are fed
	cut       bool        // a header frame was cut, and that logged
	enc       encoder
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, log: s.log, out: newOutbox(s.out),
		frameMax: s.cfg.FrameMax, channelMax: s.cfg.ChannelMax,
		channels: make(map[uint16]*channel),
	}
	c.frames = wire.NewFrameReader(c, preAuthFrameMax)
	c.blocked.wake = make(chan struct{}, 1)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.login, c.cutLogin = context.WithCancel(c.ctx)
	return c
}

// run is the life of a connection.
func (c *conn) run() {
	var writer sync.WaitGroup
	writer.Go(func() {
		if err := c.out.run(c.nc, c.feed); err != nil {
			if errors.Is(err, errStalled) {
				c.log.Warn().Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).Msg("AMQP connection cut: " + err.Error())
			}
			c.nc.Close() // the reader ends, too
			c.gone.Store(true)
			c.unpark()
		} else if w, ok := c.nc.(interface{ CloseWrite() error }); ok {
			w.CloseWrite() // what was written arrives although more is unread
		}
	})
	c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.HandshakeTimeout))
	err := c.handshake()
	if err == nil {
		err = c.serve()
	}
	c.release()
	c.leave(err)
	c.cancel()
	c.out.hurry(c.nc)
	c.out.end()
	writer.Wait()
	if errors.Is(err, errLostSync) {
		c.nc.SetReadDeadline(time.Now().Add(closeTimeout))
		io.Copy(io.Discard, io.LimitReader(c.nc, hardMaxMessage))
	}
	c.nc.Close()
}

// Ends of a connection that are not the client's fault.
var (
	errClosed   = errors.New("closed")        // by the client, in order
	errSilent   = errors.New("closed")        // without any word to the client
	errLostSync = errors.New("lost sync")     // joined to a fault: nothing more can be read
	errForced   = errors.New("forced closed") // by forceClose
)

// leave says goodbye: a fault is sent as connection.close and its answer
// awaited.
func (c *conn) leave(err error) {
	f, ok := errors.AsType[*fault](err)
	if !ok {
		if !errors.Is(err, errClosed) && !errors.Is(err, io.EOF) && !errors.Is(err, errSilent) && !errors.Is(err, errForced) {
			c.log.Debug().Err(err).Stringer("peer", c.nc.RemoteAddr()).Msg("AMQP connection lost")
		}
		return
	}
	event := c.log.Info()
	if c.user == "" {
		event = c.log.Debug() // anybody can cause any number of those
	}
	event.Str("error", f.Error()).Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).Msg("AMQP connection closed with an error")
	c.setClosing(&wire.ConnectionClose{
		ReplyCode: uint16(f.code), ReplyText: f.Error(), ClassID: f.id.Class(), MethodID: f.id.Method(),
	})
	if !errors.Is(err, errLostSync) {
		c.awaitCloseOk()
	}
}

// awaitCloseOk discards everything until the client has answered
// connection.close, or closed, or has taken too long.
func (c *conn) awaitCloseOk() {
	for {
		fr, err := c.frames.Next()
		if err != nil {
			return
		}
		if id, err := wire.MethodID(fr.Payload); fr.Type != wire.FrameMethod || err != nil {
			continue
		} else if id == wire.IDConnectionCloseOk {
			return
		} else if id == wire.IDConnectionClose {
			c.out.sendLast(0, &wire.ConnectionCloseOk{})
			return
		}
	}
}

// setClosing sends connection.close, once; nothing follows it.
func (c *conn) setClosing(m *wire.ConnectionClose) {
	c.out.mu.Lock()
	already := c.closing.Swap(true)
	c.nc.SetReadDeadline(time.Now().Add(closeTimeout))
	c.out.mu.Unlock()
	c.out.hurry(c.nc) // the client may have stopped to read
	if !already {
		c.out.sendLast(0, m)
	}
	c.unpark()
}

// forceClose ends the connection from outside. It does not block.
func (c *conn) forceClose(text string) {
	c.cutLogin()
	c.force(faultf(wire.ConnectionForced, "%s", text))
}

func (c *conn) force(f *fault) {
	c.setClosing(&wire.ConnectionClose{ReplyCode: uint16(f.code), ReplyText: f.Error()})
}

// Read reads from the socket; it is what the frame reader calls. It keeps the
// deadline ahead, with some slack so that not every read has to set it.
func (c *conn) Read(b []byte) (int, error) {
	for {
		if c.blocked.relief.Load() {
			if err := c.relieved(); err != nil {
				return 0, err
			}
		}
		n, err := c.read(b)
		if n > 0 || err == nil || !c.blocked.relief.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

func (c *conn) read(b []byte) (int, error) {
	if c.idle > 0 {
		if now := time.Now(); now.Sub(c.renewed) > c.idle/8 {
			c.out.mu.Lock()
			if !c.closing.Load() && !c.blocked.relief.Load() {
				c.nc.SetReadDeadline(now.Add(c.idle + c.idle/8))
			}
			c.out.mu.Unlock()
			c.renewed = now
		}
	}
	n, err := c.nc.Read(b)
	c.rec.now = time.Now().UnixMilli() // of all that is read at once: a clock costs as much as a route
	return n, err
}

// serve handles frames until the connection ends.
func (c *conn) serve() error {
	for {
		if !c.frames.Ready() {
			c.flush()
			c.detach()
			c.out.waitRoom()
		}
		fr, err := c.frames.Next()
		if err != nil {
			return c.readError(err)
		}
		if c.closing.Load() {
			return c.discard(fr)
		}
		if err := c.frame(fr); err != nil {
			return err
		}
	}
}

// discard is what remains after forceClose.
func (c *conn) discard(fr wire.Frame) error {
	if id, err := wire.MethodID(fr.Payload); err != nil || fr.Type != wire.FrameMethod || id != wire.IDConnectionCloseOk {
		c.release() // at once, and not when the client has answered
		c.awaitCloseOk()
	}
	return errForced
}

// readError turns what the frame reader says into the end of the connection.
func (c *conn) readError(err error) error {
	if fe, ok := errors.AsType[*wire.FrameError](err); ok {
		return errors.Join(faultf(wire.FrameErrorCode, "%v", fe), errLostSync)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.idle > 0 && !c.closing.Load() {
		c.log.Info().Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).Msg("AMQP connection closed: missed heartbeats")
	}
	return err
}

// frame handles one frame. A soft fault has been dealt with; what it returns
// ends the connection.
func (c *conn) frame(fr wire.Frame) error {
	if fr.Type == wire.FrameHeartbeat {
		return heartbeat(fr)
	}
	if c.blocked.leaving {
		return nil // nothing may follow connection.close
	}
	if fr.Channel == 0 {
		return c.control(fr)
	}
	ch := c.last
	if ch == nil || ch.id != fr.Channel {
		if ch = c.channels[fr.Channel]; ch == nil {
			return c.unopened(fr)
		}
		c.last = ch
	}
	err := ch.frame(fr)
	if err == nil {
		return nil
	}
	f := asFault(err)
	if fr.Type == wire.FrameMethod && f.id == 0 {
		f.id, _ = wire.MethodID(fr.Payload)
	}
	if f.code.Hard() {
		return f
	}
	ch.fail(f)
	return nil
}

// heartbeat judges a heartbeat frame.
func heartbeat(fr wire.Frame) error {
	switch {
	case len(fr.Payload) != 0:
		return faultf(wire.FrameErrorCode, "%v", &wire.FrameError{Type: fr.Type, Octets: fr.Payload, Problem: "unknown_frame"})
	case fr.Channel != 0:
		return faultf(wire.UnexpectedFrame, "a heartbeat on channel %d", fr.Channel)
	}
	return nil
}

// asFault makes any error of a handler a fault.
func asFault(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	switch {
	case errors.Is(err, wire.ErrUnknownMethod):
		return faultf(wire.NotImplemented, "%v", err)
	case errors.Is(err, wire.ErrSyntax):
		return faultf(wire.FrameErrorCode, "%v", err)
	}
	return faultf(wire.InternalError, "%v", err)
}

// control handles a frame on channel 0.
func (c *conn) control(fr wire.Frame) error {
	if fr.Type != wire.FrameMethod {
		return faultf(wire.UnexpectedFrame, "expected method frame, got non method frame instead")
	}
	m, err := wire.ReadMethod(fr.Payload)
	if err != nil {
		return asFault(err)
	}
	switch m := m.(type) {
	case *wire.ConnectionClose:
		if c.blocked.holding.Load() {
			c.leaveHolding()
			return nil
		}
		return c.leaveInOrder()
	case *wire.ConnectionUpdateSecret:
		return &fault{code: wire.NotAllowed, text: "passwords are not updated on a connection", id: m.ID()}
	}
	return &fault{code: wire.ChannelErrorCode, text: "unexpected method in connection state running", id: m.ID()}
}

// leaveInOrder answers connection.close.
func (c *conn) leaveInOrder() error {
	c.awaitStored()
	c.release()
	c.out.sendLast(0, &wire.ConnectionCloseOk{})
	return errClosed
}

// awaitStored waits, bounded, until what was published on all channels is stored:
// the client leaves in order and nobody will tell it anything any more.
func (c *conn) awaitStored() {
	ctx, cancel := context.WithTimeout(c.ctx, settleTime)
	defer cancel()
	for _, ch := range c.channels {
		if err := ch.pub.Settle(ctx); err != nil {
			c.log.Warn().Err(err).Stringer("peer", c.nc.RemoteAddr()).Str("user", c.user).
				Msg("AMQP connection closed before all that it published was stored")
			return
		}
	}
}

// unopened handles a frame on a channel that is not open: only channel.open is
// right, and answers that crossed a close.
func (c *conn) unopened(fr wire.Frame) error {
	id, _ := wire.MethodID(fr.Payload)
	if fr.Type == wire.FrameMethod {
		switch id {
		case wire.IDChannelOpen:
			return c.openChannel(fr)
		case wire.IDChannelCloseOk:
			return nil
		}
	} else {
		id = 0
	}
	return &fault{code: wire.ChannelErrorCode, text: "expected 'channel.open'", id: id}
}

// flush hands on what has gathered while frames were at hand.
func (c *conn) flush() {
	c.flushSettles()
	for i, confirms := range c.returned {
		confirms.Flush()
		confirms.queued = false
		c.returned[i] = nil
	}
	c.returned = c.returned[:0]
}

// detach copies what unfinished contents hold of the read buffer.
func (c *conn) detach() {
	for i, ch := range c.partial {
		ch.content.detach()
		c.partial[i] = nil
	}
	c.partial = c.partial[:0]
}

// release gives everything back: channels, then the broker's connection.
// Idempotent.
func (c *conn) release() {
	c.flush()
	c.forgetHeld()
	for id, ch := range c.channels {
		ch.release()
		c.dropChannel(id)
	}
	if c.link != nil {
		c.link.Close()
		c.link = nil
	}
}

// refused turns a kernel error into a fault.
func (c *conn) refused(err error) error { return refused(c.vhost, err) }

// end is called by the kernel when it wants the connection closed.
func (c *conn) end(reason error) {
	if e, ok := errors.AsType[*kernel.Error](reason); ok && e.Code == kernel.CodeInternal {
		c.force(faultf(wire.InternalError, "%v", e)) // the node has failed
		return
	}
	text := "broker forced connection closure"
	if reason != nil {
		text += " with reason '" + reason.Error() + "'"
	}
	c.forceClose(text)
}

// info describes the connection for listings.
func (c *conn) info() kernel.ConnectionInfo {
	name := c.clientName
	if name == "" {
		name = c.nc.RemoteAddr().String() + " -> " + c.nc.LocalAddr().String()
	}
	return kernel.ConnectionInfo{
		Protocol: protocol, Name: name, Remote: c.nc.RemoteAddr(), Local: c.nc.LocalAddr(), Version: "0-9-1", Mechanism: c.mechanism,
		Secure: listener.Secure(c.nc), Properties: c.properties, Heartbeat: c.patience / 2, Channels: c,
	}
}
