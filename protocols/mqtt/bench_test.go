package mqtt

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// sinkConn is a connection whose other side takes everything.
type sinkConn struct{ net.Conn }

func (sinkConn) Write(p []byte) (int, error)      { return len(p), nil }
func (sinkConn) Read([]byte) (int, error)         { return 0, io.EOF }
func (sinkConn) Close() error                     { return nil }
func (sinkConn) SetReadDeadline(time.Time) error  { return nil }
func (sinkConn) SetWriteDeadline(time.Time) error { return nil }
func (sinkConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (sinkConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }

// doneAtOnce completes publishes in runs of 64, as a commit does.
type doneAtOnce struct {
	c *conn
	n int
	t [64]uint64
}

func (d *doneAtOnce) ToTopic(_ string, _ *kernel.Record, token uint64) (int, error) {
	d.t[d.n] = token
	if d.n++; d.n == len(d.t) {
		for _, t := range d.t {
			d.c.Completed(t, kernel.Result{})
		}
		d.c.Flush()
		d.n = 0
	}
	return 1, nil
}

func (d *doneAtOnce) ToTopicOnce(_ session, _ uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return d.ToTopic(name, r, token)
}

func (d *doneAtOnce) Retain(name string, rec *kernel.Record, token uint64) (int, error) {
	return d.ToTopic(name, rec, token)
}

func (d *doneAtOnce) RetainOnce(_ session, _ uint16, name string, rec *kernel.Record, token uint64) (int, error) {
	return d.ToTopic(name, rec, token)
}

func (d *doneAtOnce) Identified(_ kernel.DedupID, publish func() (int, error)) (int, error) {
	return publish()
}

func (d *doneAtOnce) Close() {}

func benchConn(b *testing.B, version byte) *conn {
	b.Helper()
	srv := newServer(&fakeNode{}, Limits{}, zerolog.Nop())
	c := newConn(srv, sinkConn{})
	c.version = version
	c.out.init(version, 0, 1024, &srv.limits)
	c.client = &fakeClient{node: &fakeNode{}}
	go c.write()
	b.Cleanup(func() {
		c.end(wire.Success, "", nil)
		<-c.written
	})
	return c
}

// BenchmarkPublish is the adapter's part of a QoS 1 publish: parse, record,
// line of PUBACKs, PUBACK.
func BenchmarkPublish(b *testing.B) {
	for name, v := range map[string]byte{"311": wire.V311, "5": wire.V5} {
		b.Run(name, func(b *testing.B) {
			c := benchConn(b, v)
			c.publisher = &doneAtOnce{c: c}
			var props []byte
			if v == wire.V5 {
				props = wire.AppendUser(wire.AppendText(nil, wire.PropContentType, "text/plain"), "k", "v")
			}
			first, body := packetOf(b, publishPacket(v, 1, 7, "sensors/room/1/temp", string(make([]byte, 128)), props...))
			b.ReportAllocs()
			for b.Loop() {
				if err := c.handle(first, body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDeliver is the adapter's part of a QoS 1 delivery: record to packet,
// window, PUBACK, settlement.
func BenchmarkDeliver(b *testing.B) {
	for name, v := range map[string]byte{"311": wire.V311, "5": wire.V5} {
		b.Run(name, func(b *testing.B) {
			c := benchConn(b, v)
			f := newFeed(c, kernel.Subscription{Filter: "t", QoS: 1})
			f.activate(&countingMember{})
			r := rec("sensors/room/1/temp", string(make([]byte, 128)), "mq.qos", "1", "content-type", "text/plain", "k", "v")
			view := viewOf(b, r)
			batch := make([]kernel.Delivery, 64)
			ids := make([]uint16, 0, 64)
			var ack []byte
			next := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				batch[next%64] = kernel.Delivery{Record: view, Offset: next}
				if next++; next%64 != 0 {
					continue
				}
				f.Deliver(batch)
				ids = ids[:0]
				for i := range c.out.win.slots {
					if id := c.out.win.slots[i].id; id != 0 {
						ids = append(ids, id)
					}
				}
				for _, id := range ids {
					ack = wire.AppendAck(ack[:0], wire.Puback, v, id, wire.Success)
					if err := c.handle(ack[0], ack[2:]); err != nil {
						b.Fatal(err)
					}
				}
				c.flush()
			}
		})
	}
}

type countingMember struct {
	member
	settled int64
}

func (m *countingMember) Credit(int) {}

func (m *countingMember) Settle(_ kernel.Outcome, _ int32, first, last int64) {
	m.settled += last - first + 1
}

// BenchmarkFanOut is one live message to a hundred subscribers.
func BenchmarkFanOut(b *testing.B) {
	var feeds []*feed
	for range 100 {
		feeds = append(feeds, newFeed(benchConn(b, wire.V5), kernel.Subscription{Filter: "t"}))
	}
	r := rec("sensors/room/1/temp", string(make([]byte, 128)), "mq.qos", "0", "content-type", "text/plain", "k", "v")
	b.ReportAllocs()
	for b.Loop() {
		lm := kernel.LiveMessage{Name: "sensors/room/1/temp", Record: &r}
		for _, f := range feeds {
			f.Live(&lm, 0)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/subscriber")
}
