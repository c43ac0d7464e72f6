package broker

import (
	"context"
	"time"
)

// relinkTime is how long a session waits for a client whose connection may have
// outlasted the broker that it was linked to.
const relinkTime = 10 * time.Second

// epochBits are those of an attachment's number within a leadership.
const epochBits = 40

// nextEpoch numbers an attachment: above all of this leadership so far, and of those
// before.
func (b *Broker) nextEpoch() uint64 { return b.Epoch()<<epochBits | b.node.epochs.Add(1) }

// Suspend is Detach for a client that goes on with another host, with the same Epoch:
// no will is published and nothing is discarded, as if the broker had ended. If the
// client does not come back to this one, or another host, within relinkTime, it is
// Detach as agreed. Idempotent.
func (h *Session) Suspend() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.suspend()
}

// Suspend suspends the sessions of a connection whose client goes on with another link.
// One that is being attached now is suspended by Close.
func (c *Conn) Suspend() {
	c.mu.Lock()
	c.goesOn = true
	c.mu.Unlock()
	for _, s := range c.sessions() {
		s.Suspend()
	}
}

// release ends, with its connection, what has been attached by it.
func (h *Session) release(goesOn bool) {
	if goesOn {
		h.Suspend()
		return
	}
	h.detachAsAgreed()
}

func (h *Session) suspend() {
	if !h.letGo() {
		return
	}
	h.s.adrift = true
	close(h.released)
	h.s.wake(h.conn.b.patience, h.s.strand)
}

// strand is what becomes of a session whose client has not come back.
func (e *sessionEntry) strand(context.Context) {
	e.adrift = false
	e.leaveWill(nil, e.expiry)
	e.detached(e.expiry)
}

// there reports whether a connection finds something in the session. epoch is that
// of one that goes on, 0 = it is another one: for that one a session that is not kept
// has ended. The session is locked.
func (e *sessionEntry) there(epoch uint64) bool {
	if e.fresh || e.void || e.orphan || !e.durable && epoch == 0 {
		return false
	}
	return e.expiresAt.IsZero() || e.t.b.now().Before(e.expiresAt)
}
