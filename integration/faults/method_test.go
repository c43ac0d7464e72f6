package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// TestRow20UnknownMethods: class and method are named in the answer.
func TestRow20UnknownMethods(t *testing.T) {
	s := newStand(t, 32<<20)
	s.refused(540,
		refusal{"method", frame(1, 1, []byte{0, 60, 0, 99}), "unknown method 60.99"},
		refusal{"class", frame(1, 1, []byte{0xff, 0xff, 0xff, 0xff}), "unknown method 65535.65535"},
		refusal{"on channel 0", frame(1, 0, []byte{0, 10, 0, 99}), "unknown method 10.99"},
	)
	for _, id := range [][4]byte{{0, 60, 0, 99}, {1, 0, 0, 1}} {
		r := s.rawOpen(0)
		r.bytes(frame(1, 1, id[:]))
		m := want[wire.ConnectionClose](r)
		if m.ClassID != binary.BigEndian.Uint16(id[:]) || m.MethodID != binary.BigEndian.Uint16(id[2:]) {
			t.Errorf("% x: class %d, method %d", id, m.ClassID, m.MethodID)
		}
	}
}

// TestRow21ChannelState: channels that are not open, and one that is.
func TestRow21ChannelState(t *testing.T) {
	s := newStand(t, 32<<20)
	s.refused(504,
		refusal{"method on a channel never opened", wire.AppendMethod(nil, 2, &wire.BasicQos{}), "expected 'channel.open'"},
		refusal{"header on a channel never opened", header(60, 2, 0, 0), ""},
		refusal{"body on a channel never opened", frame(3, 65535, []byte("x")), ""},
		refusal{"second open", method(&wire.ChannelOpen{}), "second 'channel.open' seen"},
		refusal{"open of channel 0", wire.AppendMethod(nil, 0, &wire.ChannelOpen{}), ""},
	)
	r := s.rawOpen(0)
	r.send(1, &wire.ChannelClose{})
	want[wire.ChannelCloseOk](r)
	r.send(1, &wire.BasicQos{})
	r.closed(504, "expected 'channel.open'")
}

// TestRow22ChannelNumbers: no channel above the limit, and nothing allocated for
// those that are not open.
func TestRow22ChannelNumbers(t *testing.T) {
	s := newStand(t, 128<<20)
	s.refused(530,
		refusal{"one too high", wire.AppendMethod(nil, 2048, &wire.ChannelOpen{}), "channel_max (2047)"},
		refusal{"highest", wire.AppendMethod(nil, 65535, &wire.ChannelOpen{}), "channel_max (2047)"},
	)
	var all []byte
	for channel := range uint16(2046) {
		all = wire.AppendMethod(all, channel+2, &wire.ChannelOpen{})
	}
	for range 10 { // 20,000 open channels
		r := s.rawOpen(0)
		go func() { _, _ = r.nc.Write(all) }() // the test reads what becomes of it
		for range 2046 {
			want[wire.ChannelOpenOk](r)
		}
	}
	r := s.rawOpen(0)
	all = all[:0]
	for channel := uint16(2); channel != 0; channel++ {
		all = wire.AppendMethod(all, channel, &wire.ChannelOpen{})
	}
	go func() { _, _ = r.nc.Write(all) }() // cut short by the end
	for opened := 1; ; opened++ {
		m, err := r.next()
		must(t, err)
		if m, ok := m.(*wire.ConnectionClose); ok {
			if m.ReplyCode != 530 || opened > 2047 {
				t.Errorf("after %d channels: %d %q", opened, m.ReplyCode, m.ReplyText)
			}
			break
		}
	}
}

// nested makes a table, or arrays, of a depth.
func nested(depth int, arrays bool) wire.Table {
	var v any = int32(1)
	for range depth - 1 {
		if arrays {
			v = wire.Array{v}
		} else {
			v = wire.Table{{Name: "k", Value: v}}
		}
	}
	return wire.Table{{Name: "k", Value: v}}
}

// TestRow23FieldTables: tables that are too deep, or cut, or of unknown types,
// end the connection; many and equal keys are none of our business, and cost
// what they take on the wire and little more.
func TestRow23FieldTables(t *testing.T) {
	s := newStand(t, 128<<20)
	arguments := func(table []byte) []byte { // queue.declare with these
		b := append([]byte{0, 50, 0, 10, 0, 0, 1, 'q', 0}, table...)
		return frame(1, 1, b)
	}
	sized := func(content string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
	}
	encoded := func(table wire.Table) []byte { return wire.AppendTable(nil, table) }
	s.refused(501,
		refusal{"tables of tables", arguments(encoded(nested(10_000, false))), "too deep"},
		refusal{"arrays of arrays", arguments(encoded(nested(10_000, true))), "too deep"},
		refusal{"65 levels", arguments(encoded(nested(66, false))), "too deep"},
		refusal{"deep headers", join(publish, header(60, 1, 0, headersFlag, encoded(nested(5_000, false))...)), "too deep"},
		refusal{"deep arrays in headers", join(publish, header(60, 1, 0, headersFlag, encoded(nested(5_000, true))...)), "too deep"},
		refusal{"length past the end", arguments([]byte{0x7f, 0xff, 0xff, 0xff, 1, 'k', 'V'}), "malformed"},
		refusal{"string past the end", arguments(sized("\x01kS\x7f\xff\xff\xff")), "malformed"},
		refusal{"array past its table", arguments(sized("\x01kA\x00\x00\x00\x05t")), "malformed"},
		refusal{"unknown type", arguments(sized("\x01k?x")), "type tag"},
		refusal{"unknown type in headers", join(publish, header(60, 1, 0, headersFlag, sized("\x01kZ")...)), "type tag"},
		refusal{"key without value", arguments(sized("\x01k")), "malformed"},
	)
	many := bytes.Repeat([]byte{0, 'V'}, 65_000) // as many as fit into a frame
	for range 20 {
		r := s.rawOpen(0)
		for range 2 { // more would measure what the log keeps in memory
			r.bytes(join(method(&wire.BasicPublish{RoutingKey: "many"}), header(60, 1, 0, headersFlag, sized(string(many))...)))
		}
		r.send(1, &wire.BasicQos{})
		want[wire.BasicQosOk](r)
	}
	if n := s.count(kept); n != keptSize {
		t.Errorf("%d messages", n)
	}
}

// TestRow23HeadersComeBack: headers as deep as may be, and equal keys, are
// delivered as they were published.
func TestRow23HeadersComeBack(t *testing.T) {
	s := newStand(t, 32<<20)
	_, ch := s.DialAMQP(t)
	harness.Declare(t, ch, "q")
	for name, table := range map[string]wire.Table{
		"deep": nested(wire.MaxDepth-1, false), "deep arrays": nested(wire.MaxDepth-1, true), "equal keys": {{Name: "k", Value: "a"}, {Name: "k", Value: "b"}},
	} {
		r := s.rawOpen(0)
		encoded := wire.AppendTable(nil, table)
		r.bytes(join(method(&wire.BasicPublish{RoutingKey: "q"}), header(60, 1, 0, headersFlag, encoded...)))
		r.send(1, &wire.BasicGet{Queue: "q", NoAck: true})
		want[wire.BasicGetOk](r)
		fr, err := r.frames.Next()
		if err != nil || !bytes.HasSuffix(fr.Payload, encoded) {
			t.Errorf("%s: %v, % x, want % x", name, err, fr.Payload, encoded)
		}
	}
}

// TestRow43Cycles: exchanges bound in a circle, and exchanges that are each
// other's alternate, take each message once.
func TestRow43Cycles(t *testing.T) {
	s := newStand(t, 64<<20)
	_, ch := s.DialAMQP(t)
	must(t, ch.Confirm(false))
	harness.Declare(t, ch, "q")
	const ring = 5
	name := func(i int) string { return fmt.Sprint("ring-", i%ring) }
	for i := range ring {
		must(t, ch.ExchangeDeclare(name(i), "fanout", true, false, false, false, nil))
	}
	for i := range ring {
		must(t, ch.ExchangeBind(name(i+1), "", name(i), false, nil))
		must(t, ch.QueueBind("q", "", name(i), false, nil))
	}
	must(t, ch.ExchangeBind(name(0), "", name(0), false, nil)) // and to itself
	must(t, ch.ExchangeDeclare("this", "direct", true, false, false, false, amqp.Table{"alternate-exchange": "that"}))
	must(t, ch.ExchangeDeclare("that", "direct", true, false, false, false, amqp.Table{"alternate-exchange": "this"}))
	must(t, ch.ExchangeDeclare("own", "direct", true, false, false, false, amqp.Table{"alternate-exchange": "own"}))
	must(t, ch.QueueBind("q", "k", "that", false, nil))
	for i, to := range []string{name(0), name(3), "this"} {
		harness.Confirmed(t, ch, to, "k", amqp.Publishing{Body: fmt.Append(nil, i)})
	}
	returns := ch.NotifyReturn(make(chan amqp.Return, 2))
	for _, to := range []string{"this", "own"} { // nowhere to go: returned, and confirmed
		c, err := ch.PublishWithDeferredConfirm(to, "nowhere", true, false, amqp.Publishing{})
		must(t, err)
		if !c.Wait() {
			t.Errorf("%s: not confirmed", to)
		}
		if r := harness.Receive(t, returns); r.ReplyCode != 312 {
			t.Errorf("%s: returned with %d", to, r.ReplyCode)
		}
	}
	s.still("q", 3)
}
