package amqp

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/listener"
)

// TestNoNackBeforeClose: a publish that closes its channel has no other answer.
func TestNoNackBeforeClose(t *testing.T) {
	_, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.ConfirmSelect{})
	want[wire.ConfirmSelectOk](r)
	r.bytes(wire.AppendContent(wire.AppendMethod(nil, 1, &wire.BasicPublish{Exchange: "missing", RoutingKey: "k"}),
		1, &wire.Properties{}, []byte("x"), 4096))
	if m := want[wire.ChannelClose](r); m.ReplyCode != 404 {
		t.Errorf("closed with %d", m.ReplyCode)
	}
}

// TestConfirmsDoNotSpan: an answer for several publishes covers none that had
// another one before, in the eyes of a client that takes all numbers up to it.
func TestConfirmsDoNotSpan(t *testing.T) {
	ch := &channel{id: 1, c: &conn{out: newOutbox(listener.NewMemory(1 << 20))}}
	w := newConfirms(ch)
	for range 8 {
		w.begin()
	}
	w.finish(3, nacked)
	w.finish(6, acked)
	w.Flush()
	for _, seq := range []uint64{1, 2, 4, 5, 7} {
		w.finish(seq, acked)
	}
	w.Flush()
	w.finish(8, nacked)
	w.Flush()
	var got []string
	frames := wire.NewFrameReader(bytes.NewReader(ch.c.out.buf), 4096)
	for {
		fr, err := frames.Next()
		if err != nil {
			break
		}
		m, err := wire.ReadMethod(fr.Payload)
		must(t, err)
		name, tag, multiple := "ack", uint64(0), false
		switch m := m.(type) {
		case *wire.BasicAck:
			tag, multiple = m.DeliveryTag, m.Multiple
		case *wire.BasicNack:
			name, tag, multiple = "nack", m.DeliveryTag, m.Multiple
		}
		s := fmt.Sprint(name, " ", tag)
		if multiple {
			s += "+"
		}
		got = append(got, s)
	}
	if want := []string{"nack 3", "ack 6", "ack 2+", "ack 5+", "ack 7", "nack 8"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
}
