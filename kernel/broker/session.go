package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Session is a client id's attached session. Its methods are safe for
// concurrent use.
type Session struct{}

// AttachSession takes the session of a client id for c: the present one, or a
// new one when there is none or clean is set (the old one is then discarded).
// A connection that holds it is told through its taken callback and given a few
// seconds to Detach. expiry is what to keep it for after Detach; 0 = not at all.
func (c *Conn) AttachSession(ctx context.Context, clientID string, clean bool, expiry time.Duration, taken func()) (s *Session, present bool, err error) {
	panic("unfinished")
}

// State returns the session's subscriptions and settings.
func (s *Session) State() kernel.SessionState { panic("unfinished") }

// Attachment is one subscription's feed while the session is attached: either
// a Member of a share group (durable or shared subscription, QoS 1 or a share
// address) or, with Member nil, a live feed from memory.
type Attachment struct {
	Subscription kernel.Subscription
	Member       *Member
	// Handle is what Live calls of this subscription carry.
	Handle uint64
}

// Subscribe adds or replaces a subscription and attaches it; replacing loses
// nothing. A durable session's is committed before it returns. Share addresses
// ($share, $queue) join that group; a session without expiry reads other
// filters live. Errors: CodeInvalidName (bad filter), CodeNotFound ($queue),
// CodeAccessRefused, CodeLocked.
func (s *Session) Subscribe(ctx context.Context, sub kernel.Subscription, handle uint64, to kernel.Consumer, live kernel.LiveSubscriber) (*Attachment, error) {
	panic("unfinished")
}

// Attach feeds a subscription that the session already has (after a
// reconnect). Parameters as for Subscribe.
func (s *Session) Attach(ctx context.Context, sub kernel.Subscription, handle uint64, to kernel.Consumer, live kernel.LiveSubscriber) (*Attachment, error) {
	panic("unfinished")
}

// Unsubscribe removes a subscription and reports whether it existed.
func (s *Session) Unsubscribe(ctx context.Context, filter string) (existed bool, err error) {
	panic("unfinished")
}

// Detach gives the session back; expiry replaces the one given at AttachSession.
// Members leave, live feeds end, an expiry of 0 discards it. Idempotent.
func (s *Session) Detach(expiry time.Duration) { panic("unfinished") }
