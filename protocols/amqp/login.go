package amqp

import (
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// The mechanisms. The last two are offered only to clients that could use them.
const (
	mechanismPlain     = "PLAIN"
	mechanismAMQPlain  = "AMQPLAIN"
	mechanismExternal  = "EXTERNAL"  // the user is the one of the client's certificate
	mechanismAnonymous = "ANONYMOUS" // RFC 4505
)

// mechanisms are those that the client may choose from, separated by spaces.
func (c *conn) mechanisms() string {
	list := []string{mechanismPlain, mechanismAMQPlain}
	if _, ok := listener.PeerUser(c.nc); ok {
		list = append(list, mechanismExternal)
	}
	if _, err := c.srv.backend.Anonymous(kernel.DefaultTenant, c.nc.RemoteAddr()); err == nil {
		list = append(list, mechanismAnonymous)
	}
	return strings.Join(list, " ")
}

// logIn finds out who the client is. It may take seconds.
func (c *conn) logIn(m *wire.ConnectionStartOk) (kernel.Identity, error) {
	c.readClientProperties(m.ClientProperties)
	c.mechanism, c.properties = m.Mechanism, arguments(m.ClientProperties)
	id, err := c.authenticate(m.Mechanism, []byte(m.Response))
	c.cutLogin()
	if _, wrong := err.(*fault); wrong {
		return id, err
	}
	if err != nil {
		return id, c.loginRefused(m.Mechanism, err)
	}
	c.user = id.User
	c.frames.SetFrameMax(c.srv.cfg.FrameMax)
	return id, nil
}

// authenticate checks the response of a mechanism. A *fault is for one that is
// malformed.
func (c *conn) authenticate(mechanism string, response []byte) (kernel.Identity, error) {
	remote := c.nc.RemoteAddr()
	var user, password string
	var ok bool
	switch mechanism {
	case mechanismPlain:
		user, password, ok = parsePlain(response)
	case mechanismAMQPlain:
		user, password, ok = parseAMQPlain(response)
	case mechanismExternal:
		// What the response says does not matter, as for RabbitMQ.
		if name, shown := listener.PeerUser(c.nc); shown {
			return c.srv.backend.Admit(kernel.DefaultTenant, name, remote)
		}
		return kernel.Identity{}, unknownMechanism(mechanism)
	case mechanismAnonymous:
		// RabbitMQ takes no notice of the response either: it is a trace of the user.
		return c.srv.backend.Anonymous(kernel.DefaultTenant, remote)
	default:
		return kernel.Identity{}, unknownMechanism(mechanism)
	}
	if !ok {
		return kernel.Identity{}, faultf(wire.SyntaxErrorCode, "response for mechanism %s is malformed", mechanism)
	}
	return c.srv.backend.Authenticate(c.login, kernel.DefaultTenant, user, password, remote)
}

func unknownMechanism(name string) error {
	return faultf(wire.CommandInvalid, "unknown authentication mechanism '%s'", name)
}

// parsePlain reads a response of PLAIN (RFC 4616): whom to act for, which is
// nobody else, user, and password.
func parsePlain(response []byte) (user, password string, ok bool) {
	parts := bytes.Split(response, []byte{0})
	if len(parts) != 3 || len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]) {
		return "", "", false
	}
	return string(parts[1]), string(parts[2]), true
}

// parseAMQPlain reads a response of AMQPLAIN: a table without its length.
func parseAMQPlain(response []byte) (user, password string, ok bool) {
	t, err := wire.ReadTable(response)
	if err != nil {
		return "", "", false
	}
	login, _ := t.Get("LOGIN")
	secret, _ := t.Get("PASSWORD")
	user, okUser := login.(string)
	password, okPassword := secret.(string)
	return user, password, okUser && okPassword
}

// loginRefused answers a failed login: with a reason only to clients that ask
// for it, else, after a pause that makes guessing slow, not at all.
func (c *conn) loginRefused(mechanism string, err error) error {
	c.srv.backend.Counters(protocol).Refused.Add(1)
	c.log.Debug().Err(err).Stringer("peer", c.nc.RemoteAddr()).Msg("AMQP login refused")
	if c.authClose {
		return faultf(wire.AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism)
	}
	c.nc.SetReadDeadline(time.Now().Add(c.srv.cfg.FailureDelay))
	io.Copy(io.Discard, io.LimitReader(c.nc, preAuthFrameMax))
	return errSilent
}
