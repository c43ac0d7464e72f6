package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// SessionPin is a pin of a session with the subscription that reads its group.
type SessionPin struct {
	kernel.Pin
	Filter string // empty: there is none any more, or it is of PinNumber
}

// places are the placement groups that may keep something of a session's numbers.
func (b *Broker) places() [2]*placement.Group { return [2]*placement.Group{b.durable, b.volatile} }

// Pins returns what is pinned to the session, in the order in which it was. What an
// earlier connection has begun is waited for.
func (h *Session) Pins(ctx context.Context) ([]SessionPin, error) {
	if err := h.enter(); err != nil {
		return nil, err
	}
	defer h.leave()
	b, name := h.conn.b, kernel.SessionName(h.s.t.name, h.s.id)
	filters := make(map[kernel.GroupAddress]string, len(h.s.subs))
	wait := false
	for filter, sub := range h.s.subs {
		filters[sub.addr] = filter
		wait = wait || sub.QoS > 1
	}
	var list []SessionPin
	for _, g := range b.places() {
		if wait {
			if _, _, err := g.Used(ctx, name); err != nil {
				return nil, err
			}
		}
		for _, p := range g.Pins(name) {
			list = append(list, SessionPin{Pin: p, Filter: filters[p.Group]})
		}
	}
	return list, nil
}

// PinNumber keeps a number in use for a delivery of what is retained, which is no
// record of a group. done is told when that is durable, with the number as token;
// until Unpin it is among the Pins, taken and without a subscription.
func (h *Session) PinNumber(id kernel.PinID, done kernel.Completion) error {
	return h.conn.b.durable.PinNumber(kernel.SessionName(h.s.t.name, h.s.id), id, done, uint64(id.Number))
}

// Unpin ends a pin for which there is no subscription any more. The record, if it
// still has one, is refused: its client may have got it.
func (h *Session) Unpin(id kernel.PinID) {
	name := kernel.SessionName(h.s.t.name, h.s.id)
	for _, g := range h.conn.b.places() {
		if err := g.Unpin(name, id); err != nil {
			h.conn.b.log.Debug().Err(err).Str("session", h.s.id).Msg("a number stays in use until the session comes back")
		}
	}
}

// Keep leaves a text with the session for the connection that takes it next, as long
// as the broker and the session last. It is not copied. To be called before Detach.
func (h *Session) Keep(b []byte) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if !h.over {
		h.s.kept = b
	}
}

// Kept returns what the connection before has left, once.
func (h *Session) Kept() []byte {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	b := h.s.kept
	if !h.over {
		h.s.kept = nil
	}
	return b
}

// forgetNumbers drops what is kept of the numbers of a session.
func (e *sessionEntry) forgetNumbers(ctx context.Context) error {
	e.kept = nil
	for _, g := range e.t.b.places() {
		if err := g.ForgetSession(ctx, kernel.SessionName(e.t.name, e.id)); err != nil {
			return err
		}
	}
	return nil
}

// Pin, Take, Refuse and Unpin are those of placement.Member: the record becomes the
// session's through any crash, is settled as accepted or refused, and its number is
// free again. The consumer must be a kernel.Pinner.
func (m *Member) Pin(id kernel.PinID, partition int32, offset int64) { m.m.Pin(id, partition, offset) }

// Take settles a pinned record: see Pin.
func (m *Member) Take(id kernel.PinID, partition int32, offset int64) {
	m.counters.Settled.Add(1)
	m.m.Take(id, partition, offset)
}

// Refuse refuses a pinned record for good: see Pin.
func (m *Member) Refuse(id kernel.PinID, partition int32, offset int64) {
	m.counters.Settled.Add(1)
	m.m.Refuse(id, partition, offset)
}

// Unpin frees the number of a record that is taken: see Pin.
func (m *Member) Unpin(id kernel.PinID) { m.m.Unpin(id) }

// Hold makes the member hold records that its session held before, where nobody else
// has got them: see placement.Member.
func (m *Member) Hold(places []kernel.Place) []bool { return m.m.Hold(places) }

// Read calls fn with one record of the group's topic, and reports whether it was
// there.
func (m *Member) Read(p kernel.Place, fn func(*kernel.View)) bool { return m.m.Read(p, fn) }

// Pinned implements kernel.Pinner.
func (t *tap) Pinned(numbers []uint16, err error) {
	if to, ok := t.Consumer.(kernel.Pinner); ok {
		to.Pinned(numbers, err)
	}
}

// Taken implements kernel.Pinner.
func (t *tap) Taken(numbers []uint16, err error) {
	if to, ok := t.Consumer.(kernel.Pinner); ok {
		to.Taken(numbers, err)
	}
}
