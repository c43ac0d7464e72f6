package broker

import (
	"context"
	"errors"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/session"
)

// Attachment is one subscription's feed while the session is attached: either
// a Member of a share group (durable or shared subscription, QoS 1 or a share
// address) or, with Member nil, a live feed from memory.
type Attachment struct {
	Subscription kernel.Subscription
	Member       *Member
	// Handle is what Live calls of this subscription carry.
	Handle uint64
}

// SubscribeSpec asks for a subscription and says who is fed by it. Handle is what
// Live calls carry.
type SubscribeSpec struct {
	Subscription kernel.Subscription
	Handle       uint64
	To           kernel.Consumer
	Live         kernel.LiveSubscriber
}

// Subscribed is what became of a SubscribeSpec: Attachment is nil if Err is not.
type Subscribed struct {
	Attachment *Attachment
	Existed    bool // it has replaced a subscription to the same filter
	Err        error
}

// Subscribe adds or replaces one subscription, as SubscribeAll does.
func (h *Session) Subscribe(ctx context.Context, sub kernel.Subscription, handle uint64, to kernel.Consumer, live kernel.LiveSubscriber) (*Attachment, error) {
	out := h.SubscribeAll(ctx, []SubscribeSpec{{sub, handle, to, live}})
	return out[0].Attachment, out[0].Err
}

// SubscribeAll adds or replaces subscriptions and attaches them, as if one after
// the other, but with few commits for all. The answers have the order of the
// specs; one that fails leaves the others alone. Replacing loses
// nothing: the Member of the old one gets no more deliveries, what it holds it
// may settle as before, until Detach or the next replacement. A durable session's
// are committed before it returns. Share addresses
// ($share, $queue) join that group; a session without expiry reads other
// filters live. Errors: CodeInvalidName (bad filter), CodeNotFound ($queue),
// CodeAccessRefused, CodeLocked, CodeLimit, CodeFenced (after Detach).
func (h *Session) SubscribeAll(ctx context.Context, specs []SubscribeSpec) []Subscribed {
	out := make([]Subscribed, len(specs))
	for first := 0; first < len(specs); {
		n := oneRound(specs[first:])
		if err := h.enter(); err != nil {
			for i := range out[first:] {
				out[first+i].Err = err
			}
			return out
		}
		h.subscribe(specs[first:first+n], out[first:first+n])
		h.leave()
		first += n
	}
	return out
}

// roundWidth is how many subscriptions are made together: their records are one
// command of the log, and each may have 64 KiB.
const roundWidth = 64

// oneRound returns how many of the specs can be made together: one that replaces
// another has to wait for it.
func oneRound(specs []SubscribeSpec) int {
	seen := make(map[string]struct{}, min(len(specs), roundWidth))
	for i := range specs {
		filter := specs[i].Subscription.Filter
		if _, twice := seen[filter]; twice || i == roundWidth {
			return i
		}
		seen[filter] = struct{}{}
	}
	return len(specs)
}

// making is a subscription on its way.
type making struct {
	old, next *subscription
	err       error
}

// subscribe makes one round of subscriptions. The session is locked.
func (h *Session) subscribe(specs []SubscribeSpec, out []Subscribed) {
	round := make([]making, len(specs))
	added := 0
	for i := range specs {
		m, sub := &round[i], specs[i].Subscription
		m.old = h.s.subs[sub.Filter]
		m.next, m.err = h.s.plan(sub)
		if m.err == nil {
			m.err = h.conn.allowSubscription(m.next)
		}
		if m.err != nil || m.old != nil {
			continue
		}
		if added++; len(h.s.subs)+added > h.conn.b.limits.Subscriptions {
			m.err = kernel.Errorf(kernel.CodeLimit, "session", h.s.id, "it may have %d subscriptions", h.conn.b.limits.Subscriptions)
		}
	}
	h.ensureAll(round)
	ctx, cancel := h.conn.b.changeContext()
	defer cancel()
	saved := h.s.saveAll(ctx, round)
	for i := range round {
		m, spec := &round[i], &specs[i]
		if m.err != nil {
			out[i].Err = m.err // nothing of it is there
			continue
		}
		err := saved
		if err == nil {
			out[i].Attachment, err = h.attach(m.next, spec.Handle, spec.To, spec.Live)
		}
		if err != nil {
			out[i].Err = errors.Join(err, h.s.undo(ctx, m.old, m.next))
			continue
		}
		out[i].Existed = m.old != nil
		h.s.subs[m.next.Filter] = m.next
		if m.old != nil && m.old.held != nil {
			h.conn.tenant.unhold(m.old.held) // counted once more as next
		}
	}
}

// ensureAll makes the groups of a round side by side, so that they share
// commits.
func (h *Session) ensureAll(round []making) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, sessionWidth)
	for i := range round {
		m := &round[i]
		if m.err != nil || !m.next.reads() {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			m.err = h.conn.ensure(m.next)
			<-slots
		})
	}
	wg.Wait()
}

// saveAll writes the subscriptions of a round down, where that is needed.
func (e *sessionEntry) saveAll(ctx context.Context, round []making) error {
	var records []placement.KV
	for i := range round {
		if m := &round[i]; m.err == nil && e.durable && (m.old == nil || m.old.Subscription != m.next.Subscription) {
			records = append(records, e.recordOf(m.next))
		}
	}
	if len(records) == 0 {
		return nil
	}
	return e.t.b.durable.Put(ctx, records)
}

// recordOf is the record of a subscription of the session.
func (e *sessionEntry) recordOf(sub *subscription) placement.KV {
	return placement.KV{Key: session.SubscriptionKey(e.t.name, e.id, sub.Filter), Value: sub.Subscription.Append(nil)}
}
