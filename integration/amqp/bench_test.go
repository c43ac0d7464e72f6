package amqp

import (
	"net"
	"testing"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// lean is a client that costs little, so that a benchmark shows the server.
type lean struct {
	b      testing.TB
	nc     net.Conn
	frames *wire.FrameReader
	out    []byte
}

func leanDial(b testing.TB, addr string) *lean {
	nc, err := net.Dial("tcp", addr)
	must(b, err)
	b.Cleanup(func() { nc.Close() })
	l := &lean{b: b, nc: nc, frames: wire.NewFrameReader(nc, 131072), out: []byte(wire.ProtocolHeader)}
	l.call(0, nil)
	l.call(0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	l.out = wire.AppendMethod(l.out, 0, &wire.ConnectionTuneOk{ChannelMax: 2047, FrameMax: 131072})
	l.call(0, &wire.ConnectionOpen{VirtualHost: "/"})
	l.call(1, &wire.ChannelOpen{})
	return l
}

// call sends a method and returns the answer.
func (l *lean) call(channel uint16, m wire.Method) wire.Method {
	if m != nil {
		l.out = wire.AppendMethod(l.out, channel, m)
	}
	l.flush()
	fr, err := l.frames.Next()
	must(l.b, err)
	answer, err := wire.ReadMethod(fr.Payload)
	must(l.b, err)
	if c, ok := answer.(*wire.ConnectionClose); ok {
		l.b.Fatal(c.ReplyText)
	}
	return answer
}

func (l *lean) flush() {
	_, err := l.nc.Write(l.out)
	must(l.b, err)
	l.out = l.out[:0]
}

// consumeAll consumes without prefetch.
func consumeAll(queue string) wire.Method { return &wire.BasicConsume{Queue: queue} }

const window = 1000

// BenchmarkConfirmed publishes 100 bytes with at most 1,000 confirms
// outstanding, to a durable queue.
func BenchmarkConfirmed(b *testing.B) {
	l := leanDial(b, shared.AMQP)
	q := name("bench")
	l.call(1, &wire.QueueDeclare{Queue: q, Durable: true})
	l.call(1, &wire.ConfirmSelect{})
	body := make([]byte, 100)
	props := &wire.Properties{Flags: wire.HasDeliveryMode, DeliveryMode: 2}
	publish := &wire.BasicPublish{RoutingKey: q}
	sent, known := uint64(0), uint64(0)
	var d wire.Decoder
	var ack wire.BasicAck
	b.ReportAllocs()
	b.ResetTimer()
	for known < uint64(b.N) {
		for sent < uint64(b.N) && sent-known < window {
			l.out = wire.AppendPublish(l.out, 1, publish, props, body, 131072)
			sent++
		}
		l.flush()
		for first := true; first || l.frames.Ready(); first = false {
			fr, err := l.frames.Next()
			if err == nil {
				err = d.Decode(&ack, fr.Payload)
			}
			if err != nil {
				b.Fatal(err)
			}
			known = ack.DeliveryTag // one queue: in order
		}
	}
}

// BenchmarkConsume takes 100-byte messages from a durable queue that holds
// them, with prefetch 1,000, and acks each by itself.
func BenchmarkConsume(b *testing.B) {
	l := leanDial(b, shared.AMQP)
	q := name("bench")
	l.call(1, &wire.QueueDeclare{Queue: q, Durable: true})
	props := &wire.Properties{Flags: wire.HasDeliveryMode, DeliveryMode: 2}
	body := make([]byte, 100)
	for i := range b.N {
		l.out = wire.AppendPublish(l.out, 1, &wire.BasicPublish{RoutingKey: q}, props, body, 131072)
		if i%100 == 99 {
			l.flush()
		}
	}
	l.call(1, &wire.BasicQos{PrefetchCount: window})
	until(b, "the backlog", func() bool {
		m := l.call(1, &wire.QueueDeclare{Queue: q, Passive: true})
		return m.(*wire.QueueDeclareOk).MessageCount == uint32(b.N)
	})
	var d wire.Decoder
	var deliver wire.BasicDeliver
	var ack wire.BasicAck
	b.ReportAllocs()
	b.ResetTimer()
	l.call(1, &wire.BasicConsume{Queue: q})
	for n := 0; n < b.N; {
		if !l.frames.Ready() {
			l.flush()
		}
		fr, err := l.frames.Next()
		if err == nil && fr.Type != wire.FrameMethod {
			continue
		}
		if err == nil {
			err = d.Decode(&deliver, fr.Payload)
		}
		if err != nil {
			b.Fatal(err)
		}
		ack.DeliveryTag = deliver.DeliveryTag
		l.out = wire.AppendMethod(l.out, 1, &ack)
		n++
	}
	l.flush()
}
