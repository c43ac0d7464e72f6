package mqtt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// commit tells the feed that what the member has asked for is committed.
func (m *fakeMember) commit(t testing.TB, n int) {
	t.Helper()
	m.wait(t, fmt.Sprint(n, " acts"), func() bool { return len(m.acts) >= n })
	m.mu.Lock()
	acts := slices.Clone(m.acts)
	m.acts = nil
	m.mu.Unlock()
	var pinned, taken []uint16
	for _, a := range acts {
		var what string
		var id uint16
		var offset int64
		if _, err := fmt.Sscanf(strings.ReplaceAll(a, "@", " "), "%s %d %d", &what, &id, &offset); err != nil {
			t.Fatal(a, err)
		}
		switch what {
		case "pin":
			pinned = append(pinned, id)
		case "take":
			taken = append(taken, id)
		}
	}
	if len(pinned) > 0 {
		m.feed.Pinned(pinned, nil)
	}
	if len(taken) > 0 {
		m.feed.Taken(taken, nil)
	}
}

func (p *peer) quiet() {
	p.t.Helper()
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
}

func (p *peer) wantPublish(payload string, qos byte, id uint16, dup bool) {
	p.t.Helper()
	if m := p.wantMessage(); string(m.Payload) != payload || m.QoS != qos || m.ID != id || m.Dup != dup {
		p.t.Fatalf("%+v, want %s with QoS %d, id %d, dup %v", m, payload, qos, id, dup)
	}
}

// TestQoS2Sender: MQTT-4.3.3-1 to -7. PUBLISH after the pin is committed, PUBREL
// after the take; the window is free after PUBCOMP, or a PUBREC that refuses.
func TestQoS2Sender(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 2)
	if codes := p.subscribe(wire.Filter{Name: "t", QoS: 2}); !slices.Equal(codes, []byte{2}) {
		t.Fatalf("granted % x", codes)
	}
	m := r.member("a", "t")
	m.wait(t, "credit is given", func() bool { return m.credit == 2 })
	m.deliver(t, 10, false, recs(2, "mq.qos", "2")...)
	p.quiet() // nothing goes out before the commit
	m.commit(t, 2)
	p.wantPublish("0", 2, 1, false)
	p.wantPublish("1", 2, 2, false)
	p.ack(wire.Pubrec, 1, wire.Success)
	p.ack(wire.Puback, 2, wire.Success) // of another kind: nothing
	m.wait(t, "it is taken", func() bool { return len(m.acts) == 1 })
	p.quiet()
	if m.acts[0] != "take 1@10" || len(m.settled) > 0 || m.credit > 0 {
		t.Fatal(m.acts, m.settled, m.credit)
	}
	m.commit(t, 1)
	p.wantAck(wire.Pubrel, 1, wire.Success)
	p.ack(wire.Pubrec, 1, wire.Success) // twice
	p.wantAck(wire.Pubrel, 1, wire.Success)
	p.ack(wire.Pubcomp, 1, wire.Success)
	p.ack(wire.Pubcomp, 1, wire.Success)
	p.ack(wire.Pubrec, 2, wire.QuotaExceeded)
	m.wait(t, "both are over", func() bool { return len(m.acts) == 2 && m.credit > 0 })
	if want := []string{"unpin 1@-1", "refuse 2@11"}; !slices.Equal(m.acts, want) {
		t.Errorf("%q, want %q", m.acts, want)
	}
	p.ack(wire.Pubrec, 9, wire.Success) // of a flow from elsewhere
	p.wantAck(wire.Pubrel, 9, wire.PacketIDNotFound)
	m.deliver(t, 12, false, rec("t", "one", "mq.qos", "1")) // min(2, message)
	p.wantPublish("one", 1, 3, false)
	m.wait(t, "credit is given", func() bool { return m.credit > 0 })
	m.deliver(t, 13, false, rec("t", "none", "mq.qos", "0"))
	p.wantPublish("none", 0, 0, false)
}

// TestQoS2InMemory: a session that ends with its connection keeps the flow to
// itself; PUBREC settles.
func TestQoS2InMemory(t *testing.T) {
	for _, version := range []byte{wire.V311, wire.V5} {
		r := newRig(t, Limits{})
		req := v4("a")
		req.Version = version
		p, _ := r.connect(req)
		p.subscribe(wire.Filter{Name: "$share/g/t", QoS: 2}, wire.Filter{Name: "u", QoS: 2})
		m := r.member("a", "$share/g/t")
		m.wait(t, "credit is given", func() bool { return m.credit > 0 })
		m.deliver(t, 5, false, rec("t", "shared", "mq.qos", "2"))
		p.wantPublish("shared", 2, 1, false)
		p.ack(wire.Pubrec, 1, wire.Success)
		p.wantAck(wire.Pubrel, 1, wire.Success)
		m.wait(t, "it is settled", func() bool { return slices.Equal(m.settled, []settlement{{first: 5, last: 5}}) })
		p.ack(wire.Pubcomp, 1, wire.Success)
		live := rec("u", "live", "mq.qos", "2")
		r.member("a", "u").feed.Live(&kernel.LiveMessage{Name: "u", Record: &live}, 0)
		p.wantPublish("live", 2, 2, false)
		p.ack(wire.Pubrec, 2, wire.Success)
		p.wantAck(wire.Pubrel, 2, wire.Success)
		p.ack(wire.Pubcomp, 2, wire.Success)
		p.quiet()
		if len(m.acts) > 0 {
			t.Error(m.acts)
		}
	}
}

// TestQoS2GoesWithItsSession: MQTT-4.8.2-5. What a session that ends with its
// connection has been sent, and has not acknowledged, is refused: nobody else gets
// it. QoS 1 messages are given back.
func TestQoS2GoesWithItsSession(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(v5("a"))
	p.subscribe(wire.Filter{Name: "$share/g/t", QoS: 2})
	m := r.member("a", "$share/g/t")
	m.wait(t, "credit is given", func() bool { return m.credit > 0 })
	for i, qos := range []string{"2", "1", "2", "2"} {
		m.deliver(t, int64(i), false, rec("t", fmt.Sprint(i), "mq.qos", qos))
		p.wantPublish(fmt.Sprint(i), qos[0]-'0', uint16(i+1), false)
	}
	p.ack(wire.Pubrec, 1, wire.Success)
	p.wantAck(wire.Pubrel, 1, wire.Success)
	_ = p.c.Close()
	m.wait(t, "they are refused", func() bool {
		return slices.Equal(m.settled, []settlement{{first: 0, last: 0}, {refuse: true, first: 2, last: 3}})
	})
}

// TestResume: MQTT-4.4.0-1, 4.6.0-1. What was under way comes again after a
// reconnect, with its identifier, with DUP, in its order, then PUBRELs, and nothing
// new before it; a smaller Receive Maximum is kept to.
func TestResume(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 10)
	p.subscribe(wire.Filter{Name: "t", QoS: 2})
	m := r.member("a", "t")
	m.wait(t, "credit is given", func() bool { return m.credit == 10 })
	s := r.session("a")
	s.records = map[int64]kernel.Record{}
	for i := range int64(5) {
		s.records[i] = rec("t", fmt.Sprint(i), "mq.qos", fmt.Sprint(1+i%2))
	}
	for i := range int64(5) { // ids 1 to 5; QoS 1, 2, 1, 2, 1
		m.deliver(t, i, false, s.records[i])
		if i%2 == 1 {
			m.commit(t, 1)
		}
		p.wantPublish(fmt.Sprint(i), byte(1+i%2), uint16(i+1), false)
	}
	p.ack(wire.Puback, 3, wire.Success)
	p.ack(wire.Pubrec, 4, wire.Success)
	m.commit(t, 1)
	p.wantAck(wire.Pubrel, 4, wire.Success)
	delete(s.records, 2) // settled
	s.pins = []sessionPin{
		{Pin: kernel.Pin{PinID: kernel.PinID{Number: 2, Count: 2}, Offset: 1}, Filter: "t"},
		{Pin: kernel.Pin{PinID: kernel.PinID{Number: 4, Count: 4}, Offset: 3, Taken: true}, Filter: "t"},
		{Pin: kernel.Pin{PinID: kernel.PinID{Number: 77, Count: 6}, Offset: 9}}, // its group has gone
	}
	req := v5("a")
	req.SessionExpiry, req.ReceiveMaximum = 1000, 4
	p, a := r.connect(req) // takes over
	if !a.SessionPresent {
		t.Fatal("the session is lost")
	}
	m = r.member("a", "t")
	p.wantPublish("0", 1, 1, true)
	p.wantPublish("1", 2, 2, true) // two more hold PUBRELs: the window is full
	p.wantAck(wire.Pubrel, 4, wire.Success)
	p.wantAck(wire.Pubrel, 77, wire.Success)
	p.quiet()
	if m.credit > 0 {
		t.Fatal("new messages may come before the old ones are out", m.credit)
	}
	p.ack(wire.Pubcomp, 77, wire.PacketIDNotFound)
	p.wantPublish("4", 1, 5, true)
	p.ack(wire.Pubcomp, 4, wire.Success)
	m.wait(t, "credit is given", func() bool { return m.credit == 1 })
	if len(s.pins) != 2 {
		t.Error("the pin without a group is there", s.pins)
	}
	m.deliver(t, 20, false, rec("t", "new", "mq.qos", "1"))
	p.wantPublish("new", 1, 78, false) // after the last one given
	p.ack(wire.Pubrec, 2, wire.Success)
	m.wait(t, "it is taken", func() bool { return slices.Contains(m.acts, "take 2@1") })
}
