package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// What is retained is no record of a share group: a session that is kept remembers
// under which name it was, and reads it again to send it again. With QoS 2 the
// identifier is noted in the log, so that it is free only once the client has sent
// PUBCOMP, whatever becomes of connections and nodes; a node that has started anew
// knows the identifier, but not the message, and goes on with PUBREL.
//
// If the retained message is another one by then, or none, it is not sent again: the
// flow ends, and what has replaced it comes to the subscription as any message.

// retainedAs is where a delivery in the window comes from.
type retainedAs struct {
	name    string
	version uint64
}

// keep notes it.
func (w *window) keep(id uint16, r *kernel.Retained) {
	if w.kept == nil {
		w.kept = make(map[uint16]retainedAs)
	}
	w.kept[id] = retainedAs{r.Name, r.Version}
}

// pinNumbers has the identifiers of QoS 2 deliveries noted that wait for it.
func (c *conn) pinNumbers(st *stream) error {
	for _, id := range st.pins {
		if err := c.session.PinNumber(id, numbered{st.feed}); err != nil {
			return err
		}
	}
	st.pins = st.pins[:0]
	return nil
}

// numbered lets deliveries go out whose identifiers are noted.
type numbered struct{ *feed }

// Completed implements kernel.Completion.
func (n numbered) Completed(token uint64, res kernel.Result) {
	n.Pinned([]uint16{uint16(token)}, res.Err)
}

// Flush implements kernel.Completion.
func (n numbered) Flush() {}

// keptRetained is a delivery of what is retained that a connection leaves for the next.
type keptRetained struct {
	keptSlot
	as         retainedAs
	identifier uint32 // of the subscription
}

// slotOf makes it one of this connection, due unless the client has said that it has
// it.
func (k *keptRetained) slotOf(c *conn) slot {
	d := k.slot
	d.feed = &feed{conn: c, filter: k.filter, topic: k.filter, qos: d.qos, identifier: k.identifier}
	if d.stage != taken {
		d.stage = due
	}
	return d
}

// hold gets back the deliveries of what is retained that the connection before has
// left. Those of QoS 2 are among the pins, or were never noted.
func (k *remains) hold(c *conn, pins []sessionPin) (slots []slot) {
	counts := make(map[uint16]uint64)
	for _, p := range pins {
		counts[p.Number] = p.Count
	}
	for i := range k.retained {
		r := &k.retained[i]
		if r.qos == 2 && counts[r.id] != r.count {
			continue
		}
		c.out.win.keep(r.id, &kernel.Retained{Name: r.as.name, Version: r.as.version})
		slots = append(slots, r.slotOf(c))
	}
	return slots
}

// resendRetained sends a retained message again. It returns false if it has to wait.
func (c *conn) resendRetained(d *slot) bool {
	s := &c.out
	s.mu.Lock()
	as := s.win.kept[d.id]
	s.mu.Unlock()
	r, ok, err := c.session.RetainedAgain(as.name, as.version)
	if kernel.CodeOf(err) == kernel.CodeUnavailable {
		s.later(d)
		return false
	}
	if err != nil {
		c.server.log.Warn().Err(err).Str("client", c.clientID).Str("topic", as.name).Msg("a retained message cannot be sent again")
	}
	s.mu.Lock()
	defer s.unlock()
	e := s.win.get(d.id)
	if s.closed || e == nil {
		return true
	}
	if err != nil || !ok {
		s.skip(d)
		return true
	}
	m := &s.msg
	m.fromRecord(&r, as.name, s.version == wire.V5)
	return s.sendAgain(d, e, true)
}
