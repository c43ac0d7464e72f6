package broker

import (
	"bytes"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/session"
)

// A will that is to be published and cannot be for now, as its facade is about to end or
// waits for clients to be back, is owed: the connection whose it is has ended, and whoever
// attaches the session next changes nothing about that. He may leave a will of his own.

// publishWill publishes the will, if there is one, for c, or if that is nil for
// whom it belongs to. Nobody is left to be told about a failure; but one that cannot be
// published for now is tried again, not for ever if it is in memory only.
func (e *sessionEntry) publishWill(c *Conn) {
	w := e.will
	if w == nil {
		return
	}
	w.disarm()
	e.will = nil
	e.owed = append(e.owed, w)
	e.pay(c, w)
}

// pay tries to publish a will that is owed. The session is locked.
func (e *sessionEntry) pay(c *Conn, w *will) {
	b := e.t.b
	err := e.sendWill(c, w)
	if err != nil && isPassing(err) && (w.kept || w.tries < maxWillTries) {
		e.owe(w, err)
		return // what is written down is published by the next start at the latest
	}
	e.owed = slices.DeleteFunc(e.owed, func(o *will) bool { return o == w })
	if err == nil {
		return
	}
	b.log.Warn().Err(err).Str("session", e.id).Str("topic", w.Topic).Msg("a will was not published")
	if !w.kept {
		return
	}
	ctx, cancel := b.changeContext()
	defer cancel()
	if err := b.durable.Put(ctx, []placement.KV{{Key: w.key}}); err != nil {
		b.log.Warn().Err(err).Str("session", e.id).Msg("a will could not be forgotten")
	}
}

// owe has a will tried again in a while, by the next facade if this one ends before.
func (e *sessionEntry) owe(w *will, why error) {
	b := e.t.b
	wait := willRetry
	if b.alarms.gathers() {
		wait = gatherRetry
	} else {
		b.log.Warn().Err(why).Str("session", e.id).Str("topic", w.Topic).Msg("a will cannot be published for now")
	}
	if w.tries++; w.tries == 1 && w.kept { // else the next facade would take it for one of a client that is there
		w.due = b.now()
		ctx, cancel := b.changeContext()
		defer cancel()
		if err := e.saveWill(ctx, w, nil); err != nil && b.ctx.Err() == nil {
			b.log.Warn().Err(err).Str("session", e.id).Msg("that a will is due could not be written down")
		}
	}
	e.payLater(w, wait)
}

// payLater has pay tried in a while.
func (e *sessionEntry) payLater(w *will, wait time.Duration) {
	if e.t.b.ctx.Err() != nil {
		return
	}
	w.stop = e.t.b.after(wait, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if slices.Contains(e.owed, w) {
			w.stop = nil
			e.pay(nil, w)
		}
	})
}

// overdue reports whether a will that was written down was to be published before.
func (w *will) overdue(now time.Time) bool { return !w.due.IsZero() && !w.due.After(now) }

// moving gives a will another key.
type moving struct {
	w   *will
	key []byte
}

// moved says where the record of a will goes that is owed, and has the key of the session's
// present one; nil if there is none. The key is that of a client id which nobody can have:
// each attachment moves one at most.
func (e *sessionEntry) moved(epoch uint64) *moving {
	key := e.willKey()
	for _, w := range e.owed {
		if w.kept && bytes.Equal(w.key, key) {
			return &moving{w, session.OwedWillKey(e.t.name, e.id, epoch)}
		}
	}
	return nil
}

// forgetOwed ends what is owed, with its tenant.
func (e *sessionEntry) forgetOwed() {
	for _, w := range e.owed {
		w.disarm()
	}
	e.owed = nil
}
