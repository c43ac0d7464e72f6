package mqtt

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

const (
	// maxConnect is the largest packet accepted before CONNECT is answered.
	maxConnect = 64 << 10
	// drainTime is how long a stopping server waits for commits under way, and
	// linger how long a client may take to read our DISCONNECT.
	drainTime = 2 * time.Second
	linger    = time.Second
	// lastWrite is how long a client may take to read what is left for it when
	// the connection ends.
	lastWrite = 5 * time.Second
	// renewBytes of a packet still under way count as a sign of life.
	renewBytes = 64 << 10
)

// conn is one client connection. The goroutine in serve reads and owns it;
// fields without a comment are its own.
type conn struct {
	server *Server
	net    net.Conn
	reader *wire.Reader
	ctx    context.Context // done when the connection ends
	cancel context.CancelFunc

	version   byte
	clientID  string
	identity  kernel.Identity
	mechanism string // by which it has authenticated, "" = by name and password, or not at all
	enhanced  enhanced
	client    client
	session   session
	publisher publisher
	expiry    time.Duration // of the session, after the connection
	connected bool          // CONNACK with success is out
	problem   bool          // reason strings are welcome
	leaving   bool          // DISCONNECT has discarded the will

	in        inbound
	msg       wire.Message // scratch of publish
	names     names
	aliases   []string
	feeds     map[string]*feed // by filter
	streams   streams          // of retained messages; its own locks
	noLocals  int              // durable feeds that do not want our own messages
	acked     int              // acknowledgements since credit was granted
	released  []uint16         // identifiers of PUBRELs not handed on yet
	keepAlive time.Duration
	renewed   time.Time // when the deadline was last set
	progress  int       // bytes since then
	alive     bool      // a packet has come since then

	resuming sync.Mutex    // held while what is due is sent again
	relief   chan struct{} // the alarms have changed; capacity 1
	tired    bool          // it has been held for long enough
	alarms   sync.Mutex    // held while unserved is set
	unserved atomic.Bool   // no publish is taken for want of a node

	acks    acks          // its own lock
	out     sender        // its own lock
	ended   atomic.Bool   // end was called
	stopped atomic.Bool   // the server stops: drain, then end
	written chan struct{} // closed when the writer has returned
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{server: s, net: nc, reader: wire.NewReader(nc, maxConnect), written: make(chan struct{}), relief: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.acks.init(s.limits.ReceiveMaximum)
	c.reader.Grow = c.grow
	c.out.wake = make(chan struct{}, 1)
	c.out.total = s.queued
	c.feeds = map[string]*feed{}
	return c
}

// errEnded says that the server's side ended the connection.
var errEnded = errors.New("connection ended")

// serve runs the connection to its end.
func (c *conn) serve() {
	go c.write()
	err := c.handshake()
	if err == nil {
		err = c.loop()
	}
	c.finish(err)
	c.teardown()
}

// loop reads and handles packets until the connection ends.
func (c *conn) loop() error {
	for {
		first, body, ok, err := c.reader.Take()
		if err != nil {
			return err
		}
		if ok {
			c.alive = true
			if err := c.handle(first, body); err != nil {
				return err
			}
			continue
		}
		c.flush()
		if err := c.checkControl(); err != nil {
			return err
		}
		if err := c.arm(); err != nil {
			return err
		}
		n, err := c.reader.Fill()
		if err != nil {
			return c.readError(err)
		}
		c.progress += n
		c.in.now = kernel.Millis()
	}
}

// handle handles one packet after CONNECT.
func (c *conn) handle(first byte, body []byte) error {
	if first>>4 == wire.Publish {
		return c.publish(first, body)
	}
	if err := wire.CheckFlags(first); err != nil {
		return err
	}
	switch first >> 4 {
	case wire.Puback:
		return c.puback(body)
	case wire.Subscribe:
		return c.subscribe(body)
	case wire.Unsubscribe:
		return c.unsubscribe(body)
	case wire.Pingreq:
		return c.ping(body)
	case wire.Disconnect:
		return c.disconnect(body)
	case wire.Pubrel:
		return c.pubrel(body)
	case wire.Pubrec:
		return c.pubrec(body)
	case wire.Pubcomp:
		return c.pubcomp(body)
	case wire.Auth:
		return c.auth(body)
	case wire.Connect:
		return fault(wire.ProtocolError, "second CONNECT")
	default:
		return fault(wire.ProtocolError, "packet that only servers send")
	}
}

// flush hands on what a run of packets has gathered, before the next read.
func (c *conn) flush() {
	c.settleRun()
	c.releaseRun()
	if c.acked > 0 {
		c.acked = 0
		c.replenish()
	}
	c.Flush()
}

// arm sets the read deadline: one and a half times the keep alive after the
// last packet (3.1.2.10), give or take a thirtieth.
func (c *conn) arm() error {
	if c.keepAlive > 0 && (c.alive || c.progress >= renewBytes) {
		slack := c.keepAlive / 32
		if now := time.Now(); now.Sub(c.renewed) >= slack {
			c.renewed = now
			if err := c.net.SetReadDeadline(now.Add(c.keepAlive + c.keepAlive/2 + slack)); err != nil {
				return err
			}
			c.alive, c.progress = false, 0
		}
	}
	// end sets a deadline in the past after its flag: one of the two is seen.
	if c.ended.Load() || c.stopped.Load() {
		return errEnded
	}
	return nil
}

// inboundWait is how long a client is not read because all together have sent too
// much of packets that are not whole.
const inboundWait = 2 * time.Second

// grow is wire.Reader.Grow. The keep alive does not run while it waits.
func (c *conn) grow(n int) bool {
	in := c.server.inbound
	if n < 0 {
		in.Add(n)
		return true
	}
	begin := time.Now()
	ok := in.Take(n, inboundWait, c.ctx.Done())
	if c.keepAlive > 0 && time.Since(begin) > inboundWait/16 {
		c.alive = true
		_ = c.arm() // what it says, the read that follows finds out as well
	}
	return ok
}

func (c *conn) readError(err error) error {
	if c.ended.Load() || c.stopped.Load() {
		return errEnded
	}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return fault(wire.KeepAliveTimeout, "keep alive timeout")
	}
	return err
}

// finish tells the client, if it may be told, why the connection ends.
func (c *conn) finish(err error) {
	if c.stopped.Load() && !c.ended.Load() && c.connected {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		_ = c.acks.wait(ctx, 1) // what is not committed by then is not acknowledged
		cancel()
		c.Flush()
		c.end(wire.ServerShuttingDown, "server shutting down", errEnded)
		return
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		c.end(e.Code, e.Text, e)
		return
	}
	c.end(wire.Success, "", err)
}

// end closes the connection from any goroutine: the writer sends what waits
// and, to a version 5 client, DISCONNECT with the code. With Success the client
// has gone, and nothing is sent. The first call counts.
func (c *conn) end(code wire.Code, text string, err error) {
	if c.ended.Swap(true) {
		return
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.server.log.Debug().Err(err).Str("client", c.clientID).Stringer("remote", c.net.RemoteAddr()).
			Hex("code", []byte{byte(code)}).Msg("mqtt connection ends")
	}
	c.cancel()
	s := &c.out
	s.mu.Lock()
	if code != wire.Success && s.version == wire.V5 && s.told {
		n := len(s.buf)
		if s.buf = wire.AppendDisconnect(s.buf, wire.V5, code, text); s.tooLarge(len(s.buf) - n) {
			s.buf = wire.AppendDisconnect(s.buf[:n], wire.V5, code, "")
		}
	}
	s.closed = true
	s.dead = code == wire.Success && !errors.Is(err, errRefused)
	s.roomLocked()
	dead := s.dead
	s.unlock()
	if dead {
		_ = c.net.Close() // the writer may be stuck in a write that nobody reads
		return
	}
	_ = c.net.SetWriteDeadline(time.Now().Add(lastWrite)) // these fail only if it is closed already
	_ = c.net.SetReadDeadline(past)
}

var past = time.Unix(1, 0)

// stop asks the reader to end the connection because the server stops.
func (c *conn) stop() {
	c.stopped.Store(true)
	c.cancel() // it may wait for room in the line of PUBACKs
	_ = c.net.SetReadDeadline(past)
}

// teardown gives everything back, in the order that others may rely on: the
// will is out before the session can be taken by another connection. While nobody
// serves that has to wait, and the client does not.
func (c *conn) teardown() {
	if c.publisher != nil {
		c.publisher.Close()
	}
	served := c.client != nil && c.client.Linked()
	if served {
		c.giveBack()
	}
	<-c.written
	c.out.unaccount()
	c.reader.Release()
	c.lingerClose()
	_ = c.net.Close() // nothing more to write
	if !served && c.client != nil {
		c.giveBack()
	}
}

// giveBack ends what the connection has of the kernel.
func (c *conn) giveBack() {
	if c.session != nil {
		c.settleRun() // acknowledged just before the end
		c.farewell()
		c.abandon()
		c.keep()
		c.session.Detach(c.expiry)
	}
	c.client.Close()
}

// lingerClose waits until the client has closed its side, so that closing ours
// does not throw away what it has not read yet.
func (c *conn) lingerClose() {
	half, ok := c.net.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	if c.net.SetReadDeadline(time.Now().Add(linger)) != nil {
		return
	}
	var scrap [512]byte
	for {
		if _, err := c.net.Read(scrap[:]); err != nil {
			return
		}
	}
}
