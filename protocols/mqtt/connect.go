package mqtt

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/listener"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// expiryForever is the Session Expiry Interval of a session that never expires.
const expiryForever = 1<<32 - 1

func seconds(n uint32) time.Duration {
	if n == expiryForever {
		return kernel.SessionForever
	}
	return time.Duration(n) * time.Second
}

// handshake reads CONNECT and answers it. After an error nothing more is to be
// sent: a refusal has gone out as CONNACK, never as DISCONNECT (3.14).
func (c *conn) handshake() error {
	if err := c.net.SetReadDeadline(time.Now().Add(c.server.limits.ConnectTimeout)); err != nil {
		return err
	}
	body, err := c.firstPacket()
	if err != nil {
		return err
	}
	req, err := wire.ParseConnect(body)
	c.version = req.Version
	c.out.version = req.Version // guarded by nothing yet: the writer has nothing to write
	if err != nil {
		return c.refuse(err)
	}
	if err := c.accept(req); err != nil {
		return c.refuse(err)
	}
	c.reader.SetLimit(c.server.limits.MaximumPacketSize)
	return c.net.SetReadDeadline(time.Time{}) // arm sets the next one, if there is a keep alive
}

// firstPacket returns the body of the first packet, which must be CONNECT: of
// anything else the first byte is enough to know.
func (c *conn) firstPacket() ([]byte, error) {
	for {
		first, ok := c.reader.First()
		if ok && first != wire.Connect<<4 {
			return nil, errors.New("first packet is not CONNECT")
		}
		if ok {
			_, body, err := c.nextPacket()
			return body, err
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// nextPacket reads one packet before CONNACK.
func (c *conn) nextPacket() (first byte, body []byte, err error) {
	for {
		first, body, ok, err := c.reader.Take()
		if err != nil || ok {
			return first, body, err
		}
		if err := c.fill(); err != nil {
			return 0, nil, err
		}
	}
}

// fill reads what comes before CONNACK.
func (c *conn) fill() error {
	if c.ended.Load() || c.stopped.Load() {
		return errEnded
	}
	_, err := c.reader.Fill()
	c.in.now = kernel.Millis()
	return err
}

// refuse answers CONNECT with an error and returns why the connection ends.
func (c *conn) refuse(err error) error {
	if errors.Is(err, io.EOF) {
		return err // there is nobody to answer
	}
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		e = &wire.Error{Code: connectReason(err), Text: explain(err)}
	}
	if c.stopped.Load() {
		e = &wire.Error{Code: wire.ServerUnavailable, Text: "server shutting down"}
	}
	if c.connected {
		return e // refused after CONNACK: DISCONNECT says so
	}
	if c.client == nil {
		c.server.log.Debug().Err(err).Stringer("remote", c.net.RemoteAddr()).Msg("mqtt connection refused")
	}
	answer := wire.ConnectAnswer{Version: c.version, Code: e.Code, Reason: e.Text}
	if c.version == wire.V311 {
		if answer.Code, ok = returnCode(e.Code); !ok {
			return err
		}
	}
	if c.version != 0 {
		c.out.packet(answer.Append(nil))
	}
	return fmt.Errorf("refused: %w", errRefused)
}

// errRefused says that CONNACK carries the reason.
var errRefused = errors.New("CONNECT refused")

// accept does what a CONNECT asks for, up to CONNACK and the subscriptions that
// the session has already.
func (c *conn) accept(req *wire.ConnectRequest) error {
	if err := c.settings(req); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx, c.server.limits.ConnectTimeout) // while nobody serves
	defer cancel()
	if err := c.login(ctx, req); err != nil {
		return err
	}
	info := kernel.ConnectionInfo{
		Protocol: protocol, Name: fmt.Sprintf("%v -> %v", c.net.RemoteAddr(), c.net.LocalAddr()),
		ClientID: c.clientID, Remote: c.net.RemoteAddr(), Local: c.net.LocalAddr(),
		Version: "3.1.1", Mechanism: c.mechanism, Secure: listener.Secure(c.net), Heartbeat: c.keepAlive,
	}
	if c.version == wire.V5 {
		info.Version = "5.0"
	}
	client, err := c.server.node.Connect(ctx, c.identity, info, c.evict)
	if err != nil {
		return err
	}
	c.client = client
	c.out.mu.Lock()
	c.out.dropped = &client.Counters().Dropped
	c.out.mu.Unlock()
	listener.Authenticated(c.net)
	client.WatchAlarms(c.alarmed)
	c.alarmed()
	taken := func() { c.end(wire.SessionTakenOver, "session taken over", nil) }
	attaching := broker.Attaching{ClientID: c.clientID, Clean: req.Clean, Expiry: c.expiry, Numbers: c.acks.unreleased}
	session, present, err := client.AttachSession(c.ctx, attaching, taken)
	if err != nil {
		return err
	}
	c.session = session
	c.publisher = client.Publisher(c)
	if err := c.leaveBehind(req.Will); err != nil {
		return err
	}
	c.out.mu.Lock()
	c.out.win.resuming = present
	c.out.mu.Unlock()
	c.welcome(req, present)
	if present {
		return c.resume()
	}
	return nil
}

// settings takes the client's parameters and refuses what is not supported.
func (c *conn) settings(req *wire.ConnectRequest) error {
	c.clientID = req.ClientID
	if c.clientID == "" {
		if c.version == wire.V311 && !req.Clean {
			return fault(wire.ClientIDNotValid, "an empty client identifier needs a clean session")
		}
		c.clientID = "auto-" + rand.Text()
	}
	l := &c.server.limits
	c.problem = req.RequestProblem
	c.keepAlive = time.Duration(req.KeepAlive) * time.Second
	if l.KeepAlive != 0 && (req.KeepAlive == 0 || req.KeepAlive > l.KeepAlive) {
		c.keepAlive = time.Duration(l.KeepAlive) * time.Second
	}
	c.acks.strict = c.version == wire.V5
	quota := min(l.InFlight, int(req.ReceiveMaximum))
	if c.version == wire.V311 {
		quota = l.InFlight311
		if !req.Clean {
			c.expiry = kernel.SessionForever
		}
	} else {
		c.expiry = seconds(req.SessionExpiry)
	}
	s := &c.out
	s.mu.Lock()
	s.init(c.version, int(req.MaximumPacketSize), quota, l)
	s.clientID, s.pins = c.clientID, c.expiry > 0
	s.mu.Unlock()
	return nil
}

// evict is called by the kernel when the connection is to be closed. What is no error
// of the kernel's is the node's wish to stop.
func (c *conn) evict(reason error) {
	if _, ok := errors.AsType[*kernel.Error](reason); !ok {
		c.stop()
		return
	}
	code := wire.AdministrativeAction
	switch kernel.CodeOf(reason) {
	case kernel.CodeAccessRefused:
		code = wire.NotAuthorized
	case kernel.CodeUnavailable, kernel.CodeUnknown:
		code = wire.ServerBusy
	}
	c.end(code, "closed by the server: "+explain(reason), reason)
}

// welcome sends CONNACK with what the server can do.
func (c *conn) welcome(req *wire.ConnectRequest, present bool) {
	l := &c.server.limits
	a := wire.ConnectAnswer{
		Version: c.version, SessionPresent: present,
		MaximumQoS: 2, RetainAvailable: true,
		ReceiveMaximum: uint16(l.ReceiveMaximum), MaximumPacketSize: uint32(l.MaximumPacketSize),
		TopicAliasMaximum: uint16(l.TopicAliases),
		AuthMethod:        c.enhanced.method, AuthData: c.enhanced.proof,
	}
	if req.ClientID == "" {
		a.AssignedClientID = c.clientID
	}
	if k := uint16(c.keepAlive / time.Second); k != req.KeepAlive {
		a.KeepAlive = &k
	}
	c.enhanced.proof = nil
	b := a.Append(nil)
	s := &c.out
	s.mu.Lock()
	if !s.closed {
		s.buf = append(s.buf, b...)
		s.told = true
	}
	s.unlock()
	c.connected = true
	c.alive = true
}
