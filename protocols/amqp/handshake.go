package amqp

import (
	"errors"
	"io"
	"os"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// capabilities tells clients what the server understands (RabbitMQ's list).
// False ones are refused when used; docs/amqp.md.
var capabilities = wire.Table{
	{Name: "publisher_confirms", Value: true},
	{Name: "exchange_exchange_bindings", Value: true},
	{Name: "basic.nack", Value: true},
	{Name: "consumer_cancel_notify", Value: true},
	{Name: "connection.blocked", Value: true},
	{Name: "consumer_priorities", Value: false},
	{Name: "authentication_failure_close", Value: true},
	{Name: "per_consumer_qos", Value: true},
	{Name: "direct_reply_to", Value: true},
}

// handshake brings the connection from its first byte to connection.open-ok.
func (c *conn) handshake() error {
	if err := c.protocolHeader(); err != nil {
		return err
	}
	c.out.send(0, &wire.ConnectionStart{
		VersionMinor: 9, Mechanisms: c.mechanisms(), Locales: "en_US",
		ServerProperties: wire.Table{
			{Name: "capabilities", Value: capabilities},
			{Name: "product", Value: "Trivium"},
			{Name: "version", Value: c.srv.cfg.Version},
			{Name: "platform", Value: "Go"},
			{Name: "copyright", Value: "Apache License 2.0"},
			{Name: "information", Value: "AMQP 0-9-1, MQTT and Kafka on one log"},
		},
	})
	startOk, err := await[wire.ConnectionStartOk](c)
	if err != nil {
		return err
	}
	id, err := c.logIn(startOk)
	if err != nil {
		return err
	}
	if err := c.tune(); err != nil {
		return err
	}
	open, err := await[wire.ConnectionOpen](c)
	if err != nil {
		return err
	}
	return c.open(open, id)
}

// protocolHeader reads the first eight bytes. Whoever speaks something else is
// told what is spoken here (specification 4.2.2); that is no error to log,
// because health checks do it.
func (c *conn) protocolHeader() error {
	got, err := c.frames.ReadRaw(len(wire.ProtocolHeader))
	if err == nil && string(got) == wire.ProtocolHeader {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	if len(got) > 0 {
		c.out.mu.Lock()
		before := len(c.out.buf)
		c.out.buf = append(c.out.buf, wire.ProtocolHeader...)
		c.out.done(before)
	}
	return errors.Join(errSilent, errLostSync)
}

// await reads the next method, which must be an M.
func await[M any, P interface {
	*M
	wire.Method
}](c *conn) (P, error) {
	want := P(new(M))
	for {
		fr, err := c.frames.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil, err
		case err != nil:
			return nil, c.readError(err)
		case fr.Type == wire.FrameHeartbeat:
			if err := heartbeat(fr); err != nil {
				return nil, err
			}
			continue
		case fr.Type != wire.FrameMethod:
			return nil, faultf(wire.UnexpectedFrame, "expected method frame, got non method frame instead")
		}
		m, err := wire.ReadMethod(fr.Payload)
		if err != nil {
			return nil, asFault(err)
		}
		if _, ok := m.(*wire.ConnectionClose); ok && fr.Channel == 0 {
			c.out.sendLast(0, &wire.ConnectionCloseOk{})
			return nil, errClosed
		}
		got, ok := m.(P)
		if !ok || fr.Channel != 0 {
			return nil, &fault{code: wire.ChannelErrorCode, text: "expected '" + want.ID().String() + "'", id: m.ID()}
		}
		return got, nil
	}
}

// readClientProperties takes what matters of them. Their own names and texts
// are only shown.
func (c *conn) readClientProperties(t wire.Table) {
	if v, ok := t.Get("connection_name"); ok {
		c.clientName, _ = v.(string)
	}
	v, _ := t.Get("capabilities")
	caps, _ := v.(wire.Table)
	flag := func(name string) bool {
		v, _ := caps.Get(name)
		set, _ := v.(bool)
		return set
	}
	c.authClose = flag("authentication_failure_close")
	c.cancelNote = flag("consumer_cancel_notify")
	c.blockNote = flag("connection.blocked")
}

// tune agrees on limits.
func (c *conn) tune() error {
	cfg := &c.srv.cfg
	c.out.send(0, &wire.ConnectionTune{
		ChannelMax: uint16(cfg.ChannelMax), FrameMax: uint32(cfg.FrameMax), Heartbeat: uint16(cfg.Heartbeat / time.Second),
	})
	m, err := await[wire.ConnectionTuneOk](c)
	if err != nil {
		return err
	}
	if err := limit("channel_max", uint32(m.ChannelMax), 1, uint32(cfg.ChannelMax)); err != nil {
		return err
	}
	if err := limit("frame_max", m.FrameMax, wire.MinFrameMax, uint32(cfg.FrameMax)); err != nil {
		return err
	}
	c.channelMax, c.frameMax = int(m.ChannelMax), int(m.FrameMax)
	c.frames.SetFrameMax(c.frameMax)
	if beat := time.Duration(m.Heartbeat) * time.Second; beat > 0 {
		c.out.setInterval(beat / 2)
		c.patience = 2 * beat
	}
	return nil
}

func limit(name string, got, low, high uint32) error {
	switch {
	case got == 0:
		return &fault{wire.NotAllowed, sprintf("negotiated %s = 0 (no limit) is higher than the maximum allowed value (%d)", name, high), wire.IDConnectionTuneOk}
	case got > high:
		return &fault{wire.NotAllowed, sprintf("negotiated %s = %d is higher than the maximum allowed value (%d)", name, got, high), wire.IDConnectionTuneOk}
	case got < low:
		return &fault{wire.NotAllowed, sprintf("negotiated %s = %d is lower than the minimum allowed value (%d)", name, got, low), wire.IDConnectionTuneOk}
	}
	return nil
}

// open enters the virtual host.
func (c *conn) open(m *wire.ConnectionOpen, id kernel.Identity) error {
	refuse := func(format string, args ...any) error {
		c.srv.backend.Counters(protocol).Refused.Add(1)
		return &fault{code: wire.NotAllowed, text: sprintf(format, args...), id: m.ID()}
	}
	if known, err := c.srv.backend.HasTenant(m.VirtualHost); err != nil {
		return refuse("%v", err)
	} else if !known {
		return refuse("vhost %s not found", m.VirtualHost)
	}
	id.Tenant = m.VirtualHost
	c.vhost = m.VirtualHost
	l, err := c.srv.backend.Connect(id, c.info(), c.end)
	if kernel.CodeOf(err) == kernel.CodeAccessRefused {
		return refuse("access to vhost '%s' refused for user '%s'", m.VirtualHost, id.User)
	} else if err != nil {
		return refuse("%v", err)
	}
	c.link, c.count = l, c.srv.backend.Counters(protocol)
	c.watchAlarms()
	listener.Authenticated(c.nc)
	c.idle = c.patience
	if c.idle == 0 {
		c.out.mu.Lock()
		if !c.closing.Load() {
			c.nc.SetReadDeadline(time.Time{})
		}
		c.out.mu.Unlock()
	}
	c.out.send(0, &wire.ConnectionOpenOk{})
	return nil
}
