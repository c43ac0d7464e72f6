package broker

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/retain"
	"github.com/trivium-mq/trivium/kernel/session"
)

const (
	// willRetry is how long a will waits that could not be published for now, gatherRetry
	// while the broker waits for clients to be back.
	willRetry   = 5 * time.Second
	gatherRetry = 100 * time.Millisecond
	// maxWillTries is how often one is tried that is in memory only.
	maxWillTries = 50
)

// will is the message that a session leaves behind. That of a durable session is
// written down until it has been published, in the same entry of the log. The
// session's mutex guards it.
type will struct {
	kernel.Will
	identity kernel.Identity
	protocol kernel.Protocol
	kept     bool      // it is written down
	key      []byte    // of its record, if it is kept
	due      time.Time // zero: the connection is there
	stop     func()    // of the timer; nil = none
	tries    int       // that have failed
}

// SetWill gives the session a message to leave behind if it is detached without
// DropWill before. What w holds is copied. It is published at Detach or, if it has
// a delay and the session is kept, when that is over, unless the session is
// attached again before; and at once when the session ends. That of a durable
// session outlives the node. CodeAccessRefused, CodeInvalidName, CodeFenced.
func (h *Session) SetWill(ctx context.Context, w *kernel.Will) error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	if err := h.conn.allowName(w.Topic); err != nil {
		return err
	}
	if w.Retain {
		if err := retain.CheckTopic(w.Topic); err != nil {
			return err
		}
	}
	next := &will{Will: w.Clone(), identity: h.conn.identity, protocol: h.conn.about.Protocol, kept: h.s.durable, key: h.s.willKey()}
	if h.s.will.same(next) {
		return nil // of the connection that goes on
	}
	if next.kept {
		cctx, cancel := h.conn.b.changeContext()
		defer cancel()
		if err := h.s.saveWill(cctx, next, h.s.moved(h.epoch)); err != nil {
			return err
		}
	}
	h.s.will = next
	return nil
}

// DropWill ends the will: the connection takes its leave.
func (h *Session) DropWill() error {
	if err := h.enter(); err != nil {
		return err
	}
	defer h.leave()
	cctx, cancel := h.conn.b.changeContext()
	defer cancel()
	return h.s.dropWill(cctx)
}

// same reports whether a will that waits for nothing is the same as another.
func (w *will) same(o *will) bool {
	return w != nil && w.due.IsZero() && w.stop == nil && w.kept == o.kept && w.identity == o.identity &&
		w.protocol == o.protocol && reflect.DeepEqual(w.Will, o.Will)
}

func (e *sessionEntry) willKey() []byte { return session.WillKey(e.t.name, e.id) }

// record is a will as it is written down.
func (w *will) record(key []byte) placement.KV {
	return placement.KV{Key: key, Value: session.Will{
		User: w.identity.User, Anonymous: w.identity.Anonymous, Protocol: string(w.protocol), Topic: w.Topic,
		Retain: w.Retain, Delay: w.Delay, Expiry: w.Expiry, DueAt: w.due, Message: retain.Append(nil, &w.Record),
	}.Append(nil)}
}

// saveWill writes a will down, in the place of the one whose record is moved (nil = of
// none).
func (e *sessionEntry) saveWill(ctx context.Context, w *will, moved *moving) error {
	list := []placement.KV{w.record(w.key)}
	if moved != nil {
		list = append(list, moved.w.record(moved.key))
	}
	if err := e.t.b.durable.Put(ctx, list); err != nil {
		return err
	}
	if moved != nil {
		moved.w.key = moved.key
	}
	return nil
}

// dropWill forgets the will.
func (e *sessionEntry) dropWill(ctx context.Context) error {
	w := e.will
	if w == nil {
		return nil
	}
	if w.kept {
		if err := e.t.b.durable.Put(ctx, []placement.KV{{Key: w.key}}); err != nil {
			return err
		}
	}
	e.forgetWill()
	return nil
}

// forgetWill is dropWill of what is not written down any more.
func (e *sessionEntry) forgetWill() {
	if e.will != nil {
		e.will.disarm()
		e.will = nil
	}
}

func (w *will) disarm() {
	if w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

// resolveWill is what becomes of a will that waits when its session is attached:
// it is forgotten if the session goes on, kept if the connection does, else published.
func (e *sessionEntry) resolveWill(ctx context.Context, goesOn, linked bool) error {
	switch {
	case !goesOn:
		e.publishWill(nil)
	case !linked:
		return e.dropWill(ctx)
	case e.will != nil:
		e.will.disarm()
		e.will.due = time.Time{}
	}
	return nil
}

// leaveWill publishes the will of a connection that has ended, or lets it wait.
func (e *sessionEntry) leaveWill(c *Conn, expiry time.Duration) {
	w := e.will
	if w == nil {
		return
	}
	delay := min(w.Delay, expiry)
	if !e.durable || delay <= 0 {
		e.publishWill(c)
		return
	}
	w.due = e.t.b.now().Add(delay)
	ctx, cancel := e.t.b.changeContext()
	defer cancel()
	if err := e.saveWill(ctx, w, nil); err != nil && e.t.b.ctx.Err() == nil {
		e.t.b.log.Warn().Err(err).Str("session", e.id).Msg("when a will is due could not be written down")
	}
	e.armWill(delay)
}

// armWill publishes the will in a while, unless the session goes on before.
func (e *sessionEntry) armWill(wait time.Duration) {
	w := e.will
	w.disarm()
	w.stop = e.t.b.after(wait, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.will == w && e.holder == nil {
			w.stop = nil
			e.publishWill(nil)
		}
	})
}

// isPassing reports errors that may not come again.
func isPassing(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodeUnavailable, kernel.CodeLimit, kernel.CodePressure, kernel.CodeUnknown:
		return true
	}
	return false
}

// sendWill publishes a will, and forgets it in the same entry of the log.
func (e *sessionEntry) sendWill(c *Conn, w *will) error {
	b := e.t.b
	if c == nil {
		id := w.identity
		id.Tenant = e.t.name
		own, err := b.Connect(id, kernel.ConnectionInfo{Protocol: w.protocol, Name: "will of " + e.id, ClientID: e.id}, nil)
		if err != nil {
			return err
		}
		defer own.Close()
		c = own
	}
	r := w.Record
	r.Timestamp = b.now().UnixMilli()
	if w.Expiry > 0 {
		at := strconv.FormatInt(r.Timestamp+w.Expiry.Milliseconds(), 10)
		r.Headers = append(slices.Clone(r.Headers), kernel.Header{Key: kernel.HeaderExpiresAt, Value: []byte(at)})
	}
	p := c.Publisher(willOutcome{b, e.id, w.Topic})
	if !w.kept && !w.Retain {
		_, err := p.ToTopic(w.Topic, &r, 0)
		return err
	}
	k := &keeping{retain: w.Retain}
	if w.kept {
		k.puts = []placement.KV{{Key: w.key}}
	}
	_, err := p.keep(k, func() (int, error) { return p.ToTopic(w.Topic, &r, 0) })
	return err
}

// willOutcome hears what has become of a will.
type willOutcome struct {
	b              *Broker
	session, topic string
}

// Completed implements kernel.Completion.
func (o willOutcome) Completed(_ uint64, res kernel.Result) {
	if res.Err != nil && o.b.ctx.Err() == nil {
		o.b.log.Warn().Err(res.Err).Str("session", o.session).Str("topic", o.topic).Msg("it is not known whether a will was published")
	}
}

// Flush implements kernel.Completion.
func (o willOutcome) Flush() {}

// loadWills gives the sessions their wills. Where the connection was there a delay
// begins now; if it may still be, at another node, it has time to say so.
func (l *loader) loadWills() error {
	type found struct {
		e *sessionEntry
		w *will
	}
	var list []found
	now := l.b.now()
	err := l.b.durable.Iterate(session.WillPrefix(), func(key, value []byte) error {
		tenant, client, err := session.ParseWillKey(key)
		if err != nil {
			return err
		}
		kept, err := session.ReadWill(value)
		if err != nil {
			return fmt.Errorf("will of session %q: %w", client, err)
		}
		w, err := wakeWill(tenant, kept, slices.Clone(key))
		if err != nil {
			return fmt.Errorf("will of session %q: %w", client, err)
		}
		t, ok := l.b.tenant(tenant)
		if !ok {
			return nil
		}
		e := t.sessions[client]
		if e == nil { // it could not be published when its session ended
			e = &sessionEntry{t: t, id: client, durable: true}
			w.due = now
		} else if w.overdue(now) {
			e.owed = append(e.owed, w)
			l.timers = append(l.timers, func() {
				e.mu.Lock()
				defer e.mu.Unlock()
				e.payLater(w, 0)
			})
			return nil
		} else if w.due.IsZero() {
			e.adrift = l.b.relinks > 0
			w.due = now.Add(max(min(w.Delay, e.expiry), l.b.relinks))
		}
		list = append(list, found{e, w})
		return nil
	})
	for _, f := range list {
		f.e.will = f.w
		l.timers = append(l.timers, func() {
			f.e.mu.Lock()
			defer f.e.mu.Unlock()
			if f.e.will == f.w {
				f.e.armWill(f.w.due.Sub(l.b.now()))
			}
		})
	}
	return err
}

func wakeWill(tenant string, kept session.Will, key []byte) (*will, error) {
	r, err := retain.Read(kept.Message)
	if err != nil {
		return nil, err
	}
	return &will{
		Will:     kernel.Will{Topic: kept.Topic, Record: r, Expiry: kept.Expiry, Delay: kept.Delay, Retain: kept.Retain},
		identity: kernel.Identity{User: kept.User, Tenant: tenant, Anonymous: kept.Anonymous},
		protocol: kernel.Protocol(kept.Protocol), kept: true, key: key, due: kept.DueAt,
	}, nil
}
