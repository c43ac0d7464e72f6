package kafka

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// SaslAuthenticate, versions 0-2.
//
// v1: session lifetime in the answer; it is 0 = for ever (KIP-368)
// v2: flexible
//
// PLAIN (RFC 4616): authorization id, user, password, separated by NUL. The
// authorization id must be empty or the user. SCRAM (RFC 5802): two requests. The
// user may be "tenant:user".
//
// A login that no node can judge now ends the connection: an error would be final for
// clients, which connect again.

// login is how far a connection has come with SASL.
type login struct {
	mechanism string     // agreed on, "" = none
	bare      bool       // the exchange comes in frames without headers (SaslHandshake v0)
	scram     edge.Scram // nil before its first message
}

func (c *conn) handleSASLAuthenticate(req *kmsg.SASLAuthenticateRequest, r *reply) {
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	if c.client != nil || c.auth.mechanism == "" {
		resp.ErrorCode = kerr.IllegalSaslState.Code
		r.send(resp)
		return
	}
	mechanism := c.auth.mechanism
	answer, err := c.sasl(req.SASLAuthBytes)
	if unjudged(err) {
		c.log.Debug().Err(err).Msg("kafka authentication without an outcome")
		r.silent(true)
		return
	}
	if err != nil {
		text := fmt.Sprintf("Authentication failed with SASL mechanism %s: invalid credentials, or too many failures before", mechanism)
		if kernel.CodeOf(err) == kernel.CodeNotFound || kernel.CodeOf(err) == kernel.CodeInvalid {
			text = fmt.Sprintf("Authentication failed with SASL mechanism %s: %v", mechanism, err)
		}
		resp.ErrorCode, resp.ErrorMessage = kerr.SaslAuthenticationFailed.Code, &text
		c.log.Debug().Err(err).Msg("kafka authentication failed")
	}
	resp.SASLAuthBytes = answer
	if resp.SASLAuthBytes == nil {
		resp.SASLAuthBytes = []byte{}
	}
	if err != nil {
		r.later(func(ctx context.Context, w *writer) error {
			return w.answerAfter(ctx, failedPause, c.drain, &reply{correlation: r.correlation, resp: resp, end: true})
		})
		return
	}
	r.send(resp)
}

// failedPause is how long the answer to a login that has failed is kept back: clients try
// again at once, whatever the reason (Kafka's connection.failed.authentication.delay.ms).
const failedPause = 100 * time.Millisecond

// unjudged reports whether an error is not about who logs in.
func unjudged(err error) bool {
	if err == nil {
		return false
	}
	switch kernel.CodeOf(err) {
	case kernel.CodeUnavailable, kernel.CodeUnknown, kernel.CodePressure, kernel.CodeInternal:
		return true
	}
	return false
}

// bareSASL takes a message that follows a SaslHandshake v0; failure is a closed
// connection.
func (c *conn) bareSASL(frame []byte) error {
	answer, err := c.sasl(frame)
	if err != nil {
		return err
	}
	r, err := c.queue(0)
	if err != nil {
		return err
	}
	if answer == nil {
		answer = []byte{}
	}
	r.sendRaw(answer)
	return nil
}

// sasl takes one message of the exchange. With the last one the connection is
// logged in; after an error the exchange is over. It may take seconds.
func (c *conn) sasl(msg []byte) (answer []byte, err error) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	defer context.AfterFunc(c.drain, cancel)()
	id, done := kernel.Identity{}, true
	switch err = c.judged(ctx); {
	case err != nil:
	case c.auth.mechanism == mechanismPlain:
		id, err = c.plain(ctx, msg)
	default:
		answer, done, err = c.scram(ctx, msg)
		if done {
			id = c.auth.scram.Identity()
		}
	}
	if err == nil && !done {
		return answer, nil
	}
	mechanism := c.auth.mechanism
	c.auth = login{}
	if err == nil {
		err = c.login(id, mechanism)
	}
	if err != nil {
		c.srv.node.Counters(protocol).Refused.Add(1)
		return nil, err
	}
	return answer, nil
}

// plain checks a PLAIN message.
func (c *conn) plain(ctx context.Context, msg []byte) (kernel.Identity, error) {
	parts := bytes.Split(msg, []byte{0})
	if len(parts) != 3 || len(parts[0]) > 0 && !bytes.Equal(parts[0], parts[1]) {
		return kernel.Identity{}, kernel.Errorf(kernel.CodeInvalid, "", "", "the PLAIN message is malformed")
	}
	return c.srv.node.Authenticate(ctx, "", string(parts[1]), string(parts[2]), c.net.RemoteAddr())
}

// scram takes the next message of a SCRAM exchange.
func (c *conn) scram(ctx context.Context, msg []byte) (answer []byte, done bool, err error) {
	if c.auth.scram == nil {
		s, ok := c.srv.node.BeginScram(c.auth.mechanism, "", c.net.RemoteAddr())
		if !ok {
			return nil, false, kernel.Errorf(kernel.CodeNotImplemented, "user", "", "no mechanism %s", c.auth.mechanism)
		}
		c.auth.scram = s
	}
	return c.auth.scram.Step(ctx, msg)
}
