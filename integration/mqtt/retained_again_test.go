package mqtt

import (
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// TestRetainedComesAgain: 3.8.4, 4.4.0-1. What is retained comes to a session that is
// kept at the lower of both QoS, up to 2, and unacknowledged again with its identifier
// and DUP; a flow of QoS 2 goes on where it was.
func TestRetainedComesAgain(t *testing.T) {
	both(t, func(t *testing.T, at harness.Addresses) {
		base := name("again")
		p := open(t, at, clean(wire.V5))
		for i, topic := range []string{"/0", "/1", "/2", "/acked", "/received", "/done"} {
			p.retain(min(byte(i), 2), base+topic, topic)
		}
		id := name("client")
		q := open(t, at, v5(id))
		q.subscribeID(7, wire.Filter{Name: base + "/+", QoS: 2})
		ids := map[string]uint16{}
		for range 6 {
			m := q.message()
			topic, qos := string(m.Payload), byte(2)
			switch topic {
			case "/0":
				qos = 0
			case "/1":
				qos = 1
			}
			if !m.Retain || m.Dup || m.QoS != qos {
				t.Errorf("%+v, want QoS %d", m, qos)
			}
			ids[topic] = m.ID
		}
		q.ack(wire.Pubrec, ids["/acked"], wire.Success)
		q.want(wire.Pubrel)
		q.ack(wire.Pubrec, ids["/done"], wire.Success)
		q.want(wire.Pubrel)
		q.ack(wire.Pubcomp, ids["/done"], wire.Success)
		q.quiet()
		for range 2 {
			_ = q.c.Close()
			q = open(t, at, v5(id))
			left := map[string]bool{"/1": true, "/2": true, "/received": true, "pubrel": true}
			for len(left) > 0 {
				switch first, body := q.next(); first >> 4 {
				case wire.Publish:
					m := q.parse(first, body)
					if topic := string(m.Payload); !left[topic] || m.ID != ids[topic] || !m.Dup || !m.Retain || string(m.Topic) != base+topic {
						t.Errorf("%+v, the identifier was %d", m, ids[topic])
					}
					delete(left, string(m.Payload))
				case wire.Pubrel:
					if i, _, _ := wire.ParseAck(wire.Pubrel, wire.V5, body); i != ids["/acked"] {
						t.Errorf("PUBREL %d", i)
					}
					delete(left, "pubrel")
				default:
					t.Fatalf("packet %d", first>>4)
				}
			}
			q.quiet()
		}
		q.ack(wire.Pubcomp, ids["/acked"], wire.Success)
		q.ack(wire.Puback, ids["/1"], wire.Success)
		for _, topic := range []string{"/2", "/received"} {
			q.ack(wire.Pubrec, ids[topic], wire.Success)
			q.want(wire.Pubrel)
			q.ack(wire.Pubcomp, ids[topic], wire.Success)
		}
		q.quiet()
		_ = q.c.Close()
		q = open(t, at, v5(id))
		q.quiet()
	})
}

// TestRetainedChangedMeanwhile: what is retained no more is not sent again; the flow
// ends, and the new message comes as any other.
func TestRetainedChangedMeanwhile(t *testing.T) {
	base := name("changed")
	p := open(t, shared, clean(wire.V5))
	for i, topic := range []string{"/1", "/2", "/gone"} {
		p.retain(min(byte(i+1), 2), base+topic, "old")
	}
	id := name("client")
	q := open(t, shared, v5(id))
	q.subscribe(wire.Filter{Name: base + "/+", QoS: 2})
	ids := map[string]uint16{}
	for range 3 {
		m := q.message()
		ids[string(m.Topic)] = m.ID
	}
	_ = q.c.Close()
	p.retain(1, base+"/1", "new")
	p.retain(1, base+"/2", "new")
	p.retain(1, base+"/gone", "")
	q = open(t, shared, v5(id))
	released, news := map[uint16]bool{}, 0
	for len(released) < 2 || news < 3 {
		switch first, body := q.next(); first >> 4 {
		case wire.Publish:
			if m := q.parse(first, body); m.Retain || string(m.Payload) == "old" {
				t.Errorf("%+v", m)
			} else {
				q.puback(m, wire.Success)
			}
			news++
		case wire.Pubrel:
			n, _, _ := wire.ParseAck(wire.Pubrel, wire.V5, body)
			released[n] = true
			q.ack(wire.Pubcomp, n, wire.PacketIDNotFound)
		default:
			t.Fatalf("packet %d", first>>4)
		}
	}
	if !released[ids[base+"/2"]] || !released[ids[base+"/gone"]] {
		t.Errorf("PUBREL for %v of %v", released, ids)
	}
	q.quiet()
}

// TestRetainedFlowSurvivesKill: an identifier of QoS 2 is not free before PUBCOMP,
// although the node was killed, and the flow goes on with PUBREL.
func TestRetainedFlowSurvivesKill(t *testing.T) {
	n := harness.Start(t)
	open(t, n.Addresses, clean(wire.V5)).retain(2, "kept", "x")
	id := name("client")
	q := open(t, n.Addresses, v5(id))
	q.subscribe(wire.Filter{Name: "kept", QoS: 2})
	m := q.message()
	if m.QoS != 2 || !m.Retain {
		t.Fatalf("%+v", m)
	}
	n.Kill()
	n.Run()
	for range 2 {
		q = open(t, n.Addresses, v5(id))
		if got, _, _ := wire.ParseAck(wire.Pubrel, wire.V5, q.want(wire.Pubrel)); got != m.ID {
			t.Errorf("PUBREL %d, want %d", got, m.ID)
		}
		_ = q.c.Close()
	}
	q = open(t, n.Addresses, v5(id))
	q.want(wire.Pubrel)
	q.ack(wire.Pubcomp, m.ID, wire.Success)
	q.quiet()
	_ = q.c.Close()
	q = open(t, n.Addresses, v5(id))
	q.quiet()
}

func (p *peer) ack(pt byte, id uint16, code wire.Code) {
	p.t.Helper()
	p.send(wire.AppendAck(nil, pt, p.version, id, code))
}

func (p *peer) parse(first byte, body []byte) (m wire.Message) {
	p.t.Helper()
	must(p.t, m.Parse(p.version, first, body))
	return m
}
