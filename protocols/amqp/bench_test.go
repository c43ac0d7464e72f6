package amqp

import (
	"context"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/storage/record"
)

// nullPublisher takes everything and confirms in batches, so that what is
// measured is the front-end.
type nullPublisher struct {
	publisher // nil: of what is not here

	done kernel.Completion
	n    int
}

func (p *nullPublisher) Close() {}

func (p *nullPublisher) RetainAt(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (int, error) {
	return p.ToExchange(exchange, key, r, opt, token)
}

func (p *nullPublisher) ToExchange(_, _ string, _ *kernel.Record, _ kernel.PublishOptions, token uint64) (int, error) {
	p.done.Completed(token, kernel.Result{})
	if p.n++; p.n%64 == 0 {
		p.done.Flush()
	}
	return 1, nil
}

func (p *nullPublisher) Settle(context.Context) error { return nil }

// loop is a reader that gives the same bytes for ever.
type loop struct {
	b  []byte
	at int
}

func (l *loop) Read(p []byte) (int, error) {
	n := copy(p, l.b[l.at:])
	l.at = (l.at + n) % len(l.b)
	return n, nil
}

func benchConn(src *loop) *conn {
	c := newConn(newServer(Config{}, newFakeNode()), nil)
	c.user = "guest"
	c.link = &fakeLink{n: newFakeNode()}
	c.watchAlarms()
	c.count = c.srv.backend.Counters(protocol)
	c.frames = wire.NewFrameReader(src, DefaultFrameMax)
	return c
}

var benchProps = wire.Properties{
	Flags: wire.HasDeliveryMode | wire.HasContentType | wire.HasHeaders | wire.HasMessageID, DeliveryMode: 2,
	ContentType: []byte("application/json"), MessageID: []byte("0123456789abcdef"),
	Headers: wire.AppendLongstrField(nil, "trace", "0123456789abcdef"),
}

// BenchmarkPublishConfirm is the front-end's part of a publish of 100 bytes:
// frames in, record, confirm out.
func BenchmarkPublishConfirm(b *testing.B) {
	var stream []byte
	for range 512 {
		stream = wire.AppendPublish(stream, 1, &wire.BasicPublish{Exchange: "amq.topic", RoutingKey: "a.b.c"}, &benchProps, make([]byte, 100), DefaultFrameMax)
	}
	c := benchConn(&loop{b: stream})
	ch := &channel{c: c, id: 1, consumers: map[string]*consumer{}}
	ch.content.ch = ch
	ch.confirms = newConfirms(ch)
	ch.pub = &nullPublisher{done: ch.confirms}
	c.channels[1] = ch
	b.ReportAllocs()
	b.SetBytes(int64(len(stream) / 512))
	for b.Loop() {
		for range 3 {
			if !c.frames.Ready() {
				c.flush()
				c.detach()
				c.out.buf = c.out.buf[:0]
				c.rec.now = time.Now().UnixMilli() // what conn.read does
			}
			fr, err := c.frames.Next()
			if err != nil {
				b.Fatal(err)
			}
			if err := c.frame(fr); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// nullMember takes settles and credit.
type nullMember struct{ settled int64 }

func (m *nullMember) Type() kernel.QueueType { return kernel.Quorum }

func (m *nullMember) Volatile() bool        { return false }
func (m *nullMember) Pool(pool, func() int) {}

func (m *nullMember) Credit(int) {}
func (m *nullMember) Settle(_ kernel.Outcome, _ int32, first, last int64) {
	m.settled += last - first + 1
}
func (m *nullMember) Acquire(int, func([]kernel.Delivery, int64)) error { return nil }
func (m *nullMember) Stop()                                             {}
func (m *nullMember) Leave()                                            {}

// BenchmarkDeliverAck is the front-end's part of a delivery of 100 bytes in
// batches of 64, each acked by itself.
func BenchmarkDeliverAck(b *testing.B) {
	const batch = 64
	c := benchConn(&loop{})
	ch := &channel{c: c, id: 1, consumers: map[string]*consumer{}}
	m := &nullMember{}
	k := &consumer{ch: ch, tag: "amq.ctag-0123456789abcdef", topic: "q", m: m, prefetch: 1000, average: 200, credit: 1 << 40, started: true}
	ch.consumers[k.tag] = k
	deliveries := make([]kernel.Delivery, batch)
	var bld record.Builder
	bld.Reset()
	bld.SetAttributes(record.AttrOwn)
	var rec builder
	if err := rec.build(&wire.BasicPublish{Exchange: "amq.topic", RoutingKey: "a.b.c"}, &benchProps, make([]byte, 100), "guest"); err != nil {
		b.Fatal(err)
	}
	bld.Append(&rec.record)
	var it record.Iter
	if err := it.Reset(bld.Bytes(), nil); err != nil || !it.Next() {
		b.Fatal(err)
	}
	b.ReportAllocs()
	offset, tag := int64(0), uint64(0)
	for i := 0; b.Loop(); i++ {
		if i%batch != 0 {
			continue
		}
		for j := range deliveries {
			deliveries[j] = kernel.Delivery{Record: it.View(), Offset: offset, Acquired: 1}
			offset++
		}
		k.Deliver(deliveries)
		c.out.buf = c.out.buf[:0]
		for range deliveries {
			tag++
			ch.ack = wire.BasicAck{DeliveryTag: tag}
			if err := ch.onAck(&ch.ack); err != nil {
				b.Fatal(err)
			}
		}
		c.flushSettles()
	}
	if m.settled != offset {
		b.Fatalf("%d of %d settled", m.settled, offset)
	}
}
