package mqtt

import (
	"context"
	"io"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/listener"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// enhanced is where a connection is with enhanced authentication (4.12).
type enhanced struct {
	method string     // that CONNECT has chosen, "" = none
	proof  []byte     // for CONNACK
	scram  edge.Scram // the exchange under way
	begun  time.Time  // when that was
}

// login finds out who the client is. It may take seconds.
func (c *conn) login(ctx context.Context, req *wire.ConnectRequest) (err error) {
	given := req.HasUser || req.HasPassword
	certified, shown := listener.PeerUser(c.net)
	remote := c.net.RemoteAddr()
	if err = c.server.node.Await(ctx); err != nil {
		c.server.node.Counters(protocol).Refused.Add(1)
		return err
	}
	switch {
	case req.AuthMethod != "":
		err = c.exchange(req)
	case shown && (!given || c.server.certificateFirst):
		given, c.mechanism = false, "EXTERNAL"
		c.identity, err = c.server.node.Admit("", certified, remote)
	case given:
		c.identity, err = c.server.node.Authenticate(ctx, "", req.User, string(req.Password), remote)
	case listener.Rebindable(c.net):
		err = kernel.Errorf(kernel.CodeAccessRefused, "user", "", "credentials are required: the host name is not in mqtt.ws_origins")
	default:
		c.identity, err = c.server.node.Anonymous(kernel.DefaultTenant, remote)
	}
	if err == nil {
		return nil
	}
	c.server.node.Counters(protocol).Refused.Add(1)
	return loginFault(err, given)
}

// loginFault turns a refused login into the reason that the client is told.
// given says that there was a password, or the proof of one.
func loginFault(err error, given bool) error {
	switch {
	case kernel.CodeOf(err) == kernel.CodeAccessRefused && given:
		return fault(wire.BadCredentials, "user name or password refused")
	case kernel.CodeOf(err) == kernel.CodeLimit:
		return fault(wire.Banned, "too many failed logins")
	case kernel.CodeOf(err) == kernel.CodeInvalid:
		return fault(wire.NotAuthorized, explain(err))
	default:
		return err
	}
}

// exchange runs the enhanced authentication that CONNECT asks for, up to what
// CONNACK will carry.
func (c *conn) exchange(req *wire.ConnectRequest) error {
	e := &c.enhanced
	if err := c.beginExchange(req.AuthMethod); err != nil {
		return err
	}
	e.method, c.mechanism = req.AuthMethod, req.AuthMethod
	data, first := req.AuthData, true
	for {
		answer, done, err := c.step(data, first)
		if err != nil {
			return err
		}
		if done {
			c.identity, e.proof, e.scram = e.scram.Identity(), answer, nil
			break
		}
		first = false
		if data, err = c.awaitAuth(); err != nil {
			return err
		}
	}
	if id := c.identity; req.HasUser && req.User != id.User && req.User != id.Tenant+":"+id.User {
		return fault(wire.BadCredentials, "the user name is not the one that was authenticated")
	}
	return nil
}

func (c *conn) beginExchange(method string) error {
	s, ok := c.server.node.BeginScram(method, "", c.net.RemoteAddr())
	if !ok {
		return fault(wire.BadAuthMethod, "the authentication method is not supported")
	}
	c.enhanced.scram, c.enhanced.begun = s, time.Now()
	return nil
}

// step hands on what the client has sent. Until that is the last message the
// answer goes out as AUTH. The client may leave its first message for after an
// empty challenge.
func (c *conn) step(data []byte, first bool) (answer []byte, done bool, err error) {
	e := &c.enhanced
	if len(data) > 0 || !first {
		if answer, done, err = e.scram.Step(c.ctx, data); err != nil {
			return nil, false, loginFault(err, true)
		}
	}
	if !done {
		c.out.packet((&wire.AuthExchange{Code: wire.ContinueAuth, Method: e.method, Data: answer}).Append(nil))
	}
	return answer, done, nil
}

// awaitAuth reads the next packet before CONNACK, which must be AUTH.
func (c *conn) awaitAuth() ([]byte, error) {
	first, body, err := c.nextPacket()
	switch {
	case err != nil:
		return nil, err
	case first == wire.Disconnect<<4:
		return nil, io.EOF
	case first != wire.Auth<<4:
		return nil, fault(wire.ProtocolError, "another packet than AUTH before CONNACK")
	}
	a, err := wire.ParseAuth(body)
	switch {
	case err != nil:
		return nil, err
	case a.Method != c.enhanced.method:
		return nil, fault(wire.BadAuthMethod, "AUTH with another authentication method")
	case a.Code != wire.ContinueAuth:
		return nil, fault(wire.ProtocolError, "AUTH does not continue the authentication")
	}
	return a.Data, nil
}

// auth handles AUTH after CONNACK: the client authenticates again (4.12.1), as
// the same user. Packets that come in between are handled as ever.
func (c *conn) auth(body []byte) error {
	if c.version != wire.V5 {
		return fault(wire.ProtocolError, "AUTH in MQTT 3.1.1")
	}
	a, err := wire.ParseAuth(body)
	if err != nil {
		return err
	}
	e := &c.enhanced
	first := a.Code == wire.ReAuthenticate
	switch {
	case e.method == "":
		return fault(wire.ProtocolError, "AUTH without an authentication method in CONNECT")
	case a.Method != e.method:
		return fault(wire.BadAuthMethod, "AUTH with another authentication method")
	case first && e.scram == nil:
		err = c.beginExchange(e.method)
	case a.Code == wire.ContinueAuth && e.scram != nil:
		if time.Since(e.begun) > c.server.limits.ConnectTimeout {
			err = fault(wire.NotAuthorized, "the authentication has taken too long")
		}
	default:
		err = fault(wire.ProtocolError, "AUTH out of place")
	}
	if err != nil {
		return err
	}
	answer, done, err := c.step(a.Data, first)
	if err != nil {
		c.server.node.Counters(protocol).Refused.Add(1)
		return err
	}
	if !done {
		return nil
	}
	id := e.scram.Identity()
	if e.scram = nil; id != c.identity {
		return fault(wire.NotAuthorized, "authenticated as another user")
	}
	c.out.packet((&wire.AuthExchange{Code: wire.Success, Method: e.method, Data: answer}).Append(nil))
	return nil
}
