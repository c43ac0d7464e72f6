package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// Time limits of a connection.
const (
	// loginTimeout is Config.LoginTimeout by default.
	loginTimeout = 30 * time.Second
	// idleTimeout is Kafka's connections.max.idle.ms.
	idleTimeout = 10 * time.Minute
	// chunkTimeout is how long each doubling of a frame may take to arrive.
	chunkTimeout = time.Minute
	// patience is how long a request waits while no node serves.
	patience = 5 * time.Second
)

// errStopping ends connections when the server stops.
// protocol is the front-end's name in listings and metrics.
const protocol = "kafka"

var errStopping = errors.New("kafka: server is stopping")

// conn is one client connection. Its fields belong to the reader's goroutine,
// except where a comment says otherwise.
type conn struct {
	srv     *Server
	net     net.Conn
	log     zerolog.Logger
	ctx     context.Context // done when the connection ends; for all goroutines
	end     context.CancelCauseFunc
	drain   context.Context // done when long polls should be answered, and nothing more is read; for all
	finish  context.CancelFunc
	frames  frameReader
	pending chan *reply
	waiting atomic.Int32 // requests without an answer; the writer counts down
	auth    login
	client  client // set once authenticated; safe for concurrent use
	produce producer
	started time.Time
	served  bool // a request has been understood: the peer speaks Kafka
	// clientID is what the peer calls itself, from its latest request.
	clientID string
}

// serve runs one connection to its end.
func (s *Server) serve(nc net.Conn) {
	ctx, end := context.WithCancelCause(s.ctx)
	defer end(nil)
	drain, finish := context.WithCancel(s.drain)
	defer finish()
	c := &conn{
		srv: s, net: nc, ctx: ctx, end: end, drain: drain, finish: finish, pending: make(chan *reply, maxPending),
		log: s.cfg.Log.With().Stringer("peer", nc.RemoteAddr()).Logger(), started: time.Now(),
	}
	c.produce.init(c)
	c.frames = frameReader{src: nc, arriving: func() { c.deadline(chunkTimeout) }}
	stop := context.AfterFunc(drain, func() { _ = nc.SetReadDeadline(time.Unix(1, 0)) }) // wakes the reader
	defer stop()
	abort := context.AfterFunc(ctx, func() { _ = nc.Close() }) // wakes reader and writer
	defer abort()

	w := &writer{conn: nc, pending: c.pending, answered: func() { c.waiting.Add(-1) }}
	written := make(chan struct{})
	go func() {
		defer close(written)
		if err := w.run(ctx); err != nil {
			end(err)
		}
	}()
	err := c.read()
	close(c.pending)
	if !errors.Is(err, errStopping) {
		end(err) // nobody is there to read what is still pending
	}
	<-written
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	c.produce.close()
	if c.client != nil {
		c.client.Close()
	}
	c.report(err)
}

// report logs why a connection ended: that a client breaks the rules is worth a
// line now and then, what scanners and health checks send is not.
func (c *conn) report(err error) {
	event := c.log.Debug()
	if c.served && errors.Is(err, errFrame) {
		event = c.srv.faults.Info().Stringer("peer", c.net.RemoteAddr())
	}
	event.Err(err).Str("client", c.clientID).Msg("kafka connection closed")
}

// read decodes and handles requests until the connection ends; the error says
// why.
func (c *conn) read() error {
	for {
		if c.drain.Err() != nil {
			return errStopping
		}
		size, err := c.awaitFrame()
		if err != nil {
			return err
		}
		if c.client == nil && size > maxEarlyFrame {
			// franz-go's first request on a connection may be a large Produce.
			if err := c.admitLarge(size); err != nil {
				return err
			}
		}
		held := int64(0)
		if size > keptFrame {
			held = int64(size)
			if err := c.srv.memory.Acquire(c.ctx, held); err != nil {
				return fmt.Errorf("wait for request memory: %w", err)
			}
		}
		frame, err := c.frames.body(size)
		if err == nil {
			err = c.handle(frame)
		}
		c.srv.memory.Release(held)
		if err != nil {
			return err
		}
	}
}

// awaitFrame waits for the next frame's size. A connection that waits for an
// answer is not idle.
func (c *conn) awaitFrame() (int, error) {
	for {
		c.deadline(idleTimeout)
		size, err := c.frames.next(maxFrame)
		switch {
		case err == nil:
			return size, nil
		case c.drain.Err() != nil:
			return 0, errStopping
		case errors.Is(err, os.ErrDeadlineExceeded) && c.client != nil && c.waiting.Load() > 0:
			continue // no byte of a frame was lost: the size is read at once or not at all
		case errors.Is(err, io.EOF):
			return 0, io.EOF
		default:
			return 0, err
		}
	}
}

// deadline sets the read deadline, unless the server is stopping. Before the
// login it is what is left of LoginTimeout, however the bytes come.
func (c *conn) deadline(d time.Duration) {
	at := time.Now().Add(d)
	if c.client == nil {
		at = c.started.Add(c.srv.cfg.LoginTimeout)
	}
	_ = c.net.SetReadDeadline(at) // fails only when closed: the read will say so
	if c.drain.Err() != nil {
		_ = c.net.SetReadDeadline(time.Unix(1, 0))
	}
}

// queue takes the next place in the order of answers, waiting while too many
// are pending.
func (c *conn) queue(correlation int32) (*reply, error) {
	r := newReply(correlation)
	c.waiting.Add(1)
	select {
	case c.pending <- r:
		return r, nil
	case <-c.ctx.Done():
		return nil, context.Cause(c.ctx)
	}
}

// handle runs the handler of one request. An error closes the connection.
func (c *conn) handle(frame []byte) error {
	if c.auth.bare {
		return c.bareSASL(frame)
	}
	h, rest, err := parseHeader(frame)
	if err != nil {
		return err
	}
	c.clientID = h.clientID
	a, known := apis[h.key]
	if h.key == keyApiVersions && h.version > a.max {
		return c.unsupportedApiVersions(h)
	}
	if !known || h.version < a.min || h.version > a.max {
		return fmt.Errorf("%w: %s version %d is not served", errFrame, apiName(h.key), h.version)
	}
	if limit := frameLimit(h.key); len(frame) > limit {
		return fmt.Errorf("%w: %s of %d bytes, the limit is %d", errFrame, apiName(h.key), len(frame), limit)
	}
	if err := c.admit(h.key); err != nil {
		return err
	}
	r, err := c.queue(h.correlation)
	if err != nil {
		return err
	}
	if cost := decodedSize(h.key, len(frame)); cost > 0 {
		if err := c.srv.decoded.Acquire(c.ctx, cost); err != nil {
			return fmt.Errorf("wait for request memory: %w", err)
		}
		defer c.srv.decoded.Release(cost)
	}
	req, err := decode(h, rest)
	if err != nil {
		return err
	}
	c.served = true
	a.handle(c, req, r)
	return nil
}

// decode decodes the body of a request, whose header's tags come first.
func decode(h header, rest []byte) (kmsg.Request, error) {
	req := kmsg.RequestForKey(h.key)
	req.SetVersion(h.version)
	var err error
	if req.IsFlexible() {
		if rest, err = skipTags(rest); err != nil {
			return nil, err
		}
	}
	if h.key == keyProduce {
		if err := checkProduce(h.version, rest); err != nil {
			return nil, err
		}
	}
	if err := req.ReadFrom(rest); err != nil {
		return nil, fmt.Errorf("%w: %s version %d: %w", errFrame, apiName(h.key), h.version, err)
	}
	return req, nil
}

func apiName(key int16) string {
	if name := kmsg.NameForKey(key); name != "" && !strings.Contains(name, "Unknown") {
		return name
	}
	return fmt.Sprintf("API key %d", key)
}

// admit makes sure that the peer may send requests of this kind. One that has
// not logged in is, with the first request that needs it, the user of its
// certificate, or anonymous if the broker allows that.
func (c *conn) admit(key int16) error {
	if c.client != nil || key == keyApiVersions || key == keySASLHandshake || key == keySASLAuthenticate {
		return nil
	}
	if c.auth.mechanism != "" {
		return fmt.Errorf("%w: %s in the midst of a SASL exchange", errFrame, apiName(key))
	}
	var id kernel.Identity
	how, err := "", c.judged(c.ctx)
	if user, ok := listener.PeerUser(c.net); err == nil && ok {
		how = mechanismCertificate
		id, err = c.srv.node.Admit("", user, c.net.RemoteAddr())
	} else if err == nil {
		id, err = c.srv.node.Anonymous("", c.net.RemoteAddr())
	}
	if err == nil {
		err = c.login(id, how)
	}
	if err != nil {
		c.srv.node.Counters(protocol).Refused.Add(1)
		return fmt.Errorf("access without SASL: %w", err)
	}
	return nil
}

// judged waits for a node that serves, who can say who may log in; no longer than any
// request does.
func (c *conn) judged(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.srv.node.Await(ctx)
}

// admitLarge lets a peer send a large request before it has said who it is,
// if it may be anonymous.
func (c *conn) admitLarge(size int) error {
	if c.auth.mechanism != "" {
		return fmt.Errorf("%w: SASL message of %d bytes, the limit is %d", errFrame, size, maxEarlyFrame)
	}
	return c.admit(keyProduce)
}

// mechanismCertificate is how a peer with a certificate has logged in, in
// listings.
const mechanismCertificate = "EXTERNAL"

// leaveTime is how long what is under way may take when the connection is to be closed.
const leaveTime = 5 * time.Second

// leave closes the connection for a reason that is not the client's, when what is under
// way is answered.
func (c *conn) leave(reason error) {
	c.finish()
	late := time.AfterFunc(leaveTime, func() { c.end(reason) })
	context.AfterFunc(c.ctx, func() { late.Stop() })
}

// login connects a peer to the broker that has authenticated by a mechanism, ""
// = by none.
func (c *conn) login(id kernel.Identity, mechanism string) error {
	info := kernel.ConnectionInfo{
		Protocol: protocol, ClientID: c.clientID, Remote: c.net.RemoteAddr(), Local: c.net.LocalAddr(),
		Name:      fmt.Sprintf("%s -> %s", c.net.RemoteAddr(), c.net.LocalAddr()),
		Mechanism: mechanism, Secure: listener.Secure(c.net),
	}
	client, err := c.srv.node.Connect(c.ctx, id, info, c.leave)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	c.client = client
	listener.Authenticated(c.net)
	c.produce.to = client.Publisher(&c.produce)
	return nil
}
