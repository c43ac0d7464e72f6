package kafka

import (
	"bytes"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// SaslAuthenticate, versions 0-2.
//
// v1: session lifetime in the answer; it is 0 = for ever (KIP-368)
// v2: flexible
//
// PLAIN (RFC 4616): authorization id, user, password, separated by NUL. The
// authorization id must be empty or the user. The user may be "tenant:user".

// login is how far a connection has come with SASL.
type login struct {
	chosen bool // a mechanism was agreed on
	bare   bool // the exchange comes in frames without headers (SaslHandshake v0)
}

func (c *conn) handleSASLAuthenticate(req *kmsg.SASLAuthenticateRequest, r *reply) {
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	if c.client != nil || !c.auth.chosen {
		resp.ErrorCode = kerr.IllegalSaslState.Code
		r.send(resp)
		return
	}
	c.auth = login{}
	if err := c.plain(req.SASLAuthBytes); err != nil {
		text := "authentication failed: wrong user or password"
		resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &text
		c.log.Info().Err(err).Msg("kafka authentication failed")
		r.end = true
	}
	r.send(resp)
}

// bareSASL takes the PLAIN message that follows a SaslHandshake v0; success is
// an empty frame, failure a closed connection.
func (c *conn) bareSASL(frame []byte) error {
	c.auth = login{}
	if err := c.plain(frame); err != nil {
		return err
	}
	r, err := c.queue(0)
	if err != nil {
		return err
	}
	r.sendRaw([]byte{})
	return nil
}

// plain checks a PLAIN message and logs the connection in. A failure is slow.
func (c *conn) plain(msg []byte) error {
	parts := bytes.Split(msg, []byte{0})
	err := error(kernel.Errorf(kernel.CodeAccessRefused, "user", "", "the PLAIN message is malformed"))
	if len(parts) == 3 && (len(parts[0]) == 0 || bytes.Equal(parts[0], parts[1])) {
		var id kernel.Identity
		id, err = c.srv.node.Authenticate(c.ctx, "", string(parts[1]), string(parts[2]), c.net.RemoteAddr())
		if err == nil {
			return c.login(id)
		}
	}
	c.srv.node.Counters(protocol).Refused.Add(1)
	select {
	case <-time.After(failureDelay):
	case <-c.ctx.Done():
		return errors.Join(err, c.ctx.Err())
	case <-c.drain.Done():
	}
	return err
}
