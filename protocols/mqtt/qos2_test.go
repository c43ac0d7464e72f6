package mqtt

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// wantAck wants an acknowledgement.
func (p *peer) wantAck(pt byte, id uint16, code wire.Code) {
	p.t.Helper()
	gotID, got, err := wire.ParseAck(pt, p.version, p.want(pt))
	if err != nil || gotID != id || got != code {
		p.t.Fatalf("got %d 0x%02x (%v), want %d 0x%02x", gotID, got, err, id, code)
	}
}

func (p *peer) ack(pt byte, id uint16, code wire.Code) {
	p.t.Helper()
	p.send(wire.AppendAck(nil, pt, p.version, id, code))
}

func dup(packet []byte) []byte { packet[0] |= 8; return packet }

// TestQoS2Receiver: MQTT-4.3.3-8 to -13. A message is handed on once until its
// PUBREL, over connections of the same session, whatever DUP says.
func TestQoS2Receiver(t *testing.T) {
	for _, version := range []byte{wire.V311, wire.V5} {
		r := newRig(t, Limits{})
		unknown := wire.PacketIDNotFound
		if version == wire.V311 {
			unknown = wire.Success // there is no code
		}
		req := v5("a")
		req.Version, req.SessionExpiry = version, 100
		p, _ := r.connect(req)
		for _, again := range []bool{false, true, false} {
			b := publishPacket(version, 2, 7, "t", "x")
			if again {
				b = dup(b)
			}
			p.send(b)
			p.wantAck(wire.Pubrec, 7, wire.Success)
		}
		p2, a := r.connect(req) // takes over
		if !a.SessionPresent {
			t.Error("the session is not there")
		}
		p2.send(dup(publishPacket(version, 2, 7, "t", "x")))
		p2.wantAck(wire.Pubrec, 7, wire.Success)
		if got := r.node.messages(); len(got) != 1 || got[0].header(kernel.HeaderQoS) != "2" {
			t.Fatalf("%+v", got)
		}
		p2.ack(wire.Pubrel, 7, wire.Success)
		p2.wantAck(wire.Pubcomp, 7, wire.Success)
		p2.ack(wire.Pubrel, 7, wire.Success)
		p2.wantAck(wire.Pubcomp, 7, unknown)
		p2.send(publishPacket(version, 2, 7, "t", "y"))
		p2.wantAck(wire.Pubrec, 7, wire.Success)
		if got := r.node.messages(); len(got) != 2 {
			t.Fatalf("%+v", got)
		}
	}
}

// TestQoS2Refused: a PUBREC of 0x80 or more ends the flow (MQTT-4.3.3-9); 3.1.1
// cannot be told, so its connection ends.
func TestQoS2Refused(t *testing.T) {
	for _, c := range []struct {
		kernel kernel.Code
		want   wire.Code
	}{
		{kernel.CodeAccessRefused, wire.NotAuthorized}, {kernel.CodeLimit, wire.QuotaExceeded}, {kernel.CodeTooLarge, wire.ImplementationError},
	} {
		r := newRig(t, Limits{ReceiveMaximum: 1})
		refuse := true
		r.node.onPublish = func(p published) (int, error) {
			if refuse {
				return 0, &kernel.Error{Code: c.kernel}
			}
			return 0, nil
		}
		p, _ := r.connect(v5("a"))
		for range 3 { // it takes no room
			p.send(publishPacket(wire.V5, 2, 7, "t", "x"))
			p.wantAck(wire.Pubrec, 7, c.want)
		}
		refuse = false
		p.send(publishPacket(wire.V5, 2, 7, "t", "x"))
		p.wantAck(wire.Pubrec, 7, wire.NoMatchingSubscribers) // a success
		p.ack(wire.Pubrel, 7, wire.Success)
		p.wantAck(wire.Pubcomp, 7, wire.Success)
		refuse = true
		old, _ := r.connect(v4("b"))
		old.send(publishPacket(wire.V311, 2, 7, "t", "x"))
		old.wantEnd(wire.Success)
	}
}

// TestQoS2ReceiveMaximum: a publish counts until PUBCOMP (MQTT-3.3.4-7 to -9).
func TestQoS2ReceiveMaximum(t *testing.T) {
	r := newRig(t, Limits{ReceiveMaximum: 3})
	p, a := r.connect(v5("a"))
	if a.ReceiveMaximum != 3 {
		t.Fatal(a.ReceiveMaximum)
	}
	for round := range uint16(5) {
		for id := 3*round + 1; id <= 3*round+3; id++ {
			p.send(publishPacket(wire.V5, 2, id, "t", "x"))
			p.wantAck(wire.Pubrec, id, wire.Success)
		}
		for id := 3*round + 1; id <= 3*round+3; id++ {
			p.ack(wire.Pubrel, id, wire.Success)
			p.wantAck(wire.Pubcomp, id, wire.Success)
		}
	}
	for id := range uint16(3) {
		p.send(publishPacket(wire.V5, 2, id+1, "t", "x"))
		p.wantAck(wire.Pubrec, id+1, wire.Success)
	}
	p.send(publishPacket(wire.V5, 2, 2, "t", "x")) // one of them again is no more
	p.wantAck(wire.Pubrec, 2, wire.Success)
	p.send(publishPacket(wire.V5, 2, 4, "t", "x"))
	p.wantEnd(wire.ReceiveMaximumExceeded)

	old, _ := r.connect(v4("b")) // does not know the number
	for id := range uint16(10) {
		old.send(publishPacket(wire.V311, 2, id+1, "t", "x"))
		old.wantAck(wire.Pubrec, id+1, wire.Success)
	}
}

// TestQoS2IdentifierInUse: a QoS 1 publish under an identifier that waits for its
// PUBREL is refused.
func TestQoS2IdentifierInUse(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(v5("a"))
	p.send(publishPacket(wire.V5, 2, 7, "t", "x"))
	p.wantAck(wire.Pubrec, 7, wire.Success)
	p.send(publishPacket(wire.V5, 1, 7, "t", "y"))
	p.wantAck(wire.Puback, 7, wire.PacketIDInUse)
	p.send(publishPacket(wire.V5, 1, 8, "t", "y"))
	p.wantAck(wire.Puback, 8, wire.Success)
}

// TestQoS2Order: PUBRECs go out in the order of the publishes, among the PUBACKs
// (MQTT-4.6.0-2, -3), when their messages are stored.
func TestQoS2Order(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.onPublish = func(published) (int, error) { return 1, nil }
	p, _ := r.connect(v5("a"))
	for id := range uint16(4) {
		p.send(publishPacket(wire.V5, byte(1+id%2), id+1, "t", "x"))
	}
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	got := r.node.messages()
	for i := range got {
		m := got[len(got)-1-i]
		m.done.Completed(m.token, kernel.Result{})
	}
	got[0].done.Flush()
	for id := range uint16(4) {
		pt := byte(wire.Puback)
		if id%2 == 1 {
			pt = wire.Pubrec
		}
		p.wantAck(pt, id+1, wire.Success)
	}
}
