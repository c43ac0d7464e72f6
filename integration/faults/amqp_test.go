package faults

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

const frameMax = 128 << 10

// raw is an AMQP client that can send anything.
type raw struct {
	t      testing.TB
	nc     net.Conn
	frames *wire.FrameReader
}

func (s *stand) rawDial() *raw {
	s.t.Helper()
	nc, err := net.DialTimeout("tcp", s.AMQP, harness.Patience)
	must(s.t, err)
	s.t.Cleanup(func() { _ = nc.Close() })
	must(s.t, nc.SetDeadline(time.Now().Add(6*harness.Patience)))
	r := &raw{t: s.t, nc: nc, frames: wire.NewFrameReader(nc, frameMax)}
	r.bytes([]byte(wire.ProtocolHeader))
	want[wire.ConnectionStart](r)
	return r
}

// rawOpen brings a connection to where methods can be sent; channel 1 is open.
func (s *stand) rawOpen(heartbeat uint16) *raw {
	s.t.Helper()
	r := s.rawDial()
	r.send(0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"})
	tune := want[wire.ConnectionTune](r)
	r.send(0, &wire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax, Heartbeat: heartbeat})
	r.send(0, &wire.ConnectionOpen{VirtualHost: "/"})
	want[wire.ConnectionOpenOk](r)
	r.send(1, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
	return r
}

func (r *raw) bytes(b []byte) {
	r.t.Helper()
	if _, err := r.nc.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) send(channel uint16, m wire.Method) {
	r.t.Helper()
	r.bytes(wire.AppendMethod(nil, channel, m))
}

// next returns the next method, skipping contents and heartbeats.
func (r *raw) next() (wire.Method, error) {
	for {
		fr, err := r.frames.Next()
		if err != nil {
			return nil, err
		}
		if fr.Type == wire.FrameMethod {
			return wire.ReadMethod(fr.Payload)
		}
	}
}

// want reads the next method, which must be an M.
func want[M any, P interface {
	*M
	wire.Method
}](r *raw) P {
	r.t.Helper()
	m, err := r.next()
	got, ok := m.(P)
	if !ok {
		r.t.Fatalf("got %T %+v, %v; want %v", m, m, err, P(new(M)).ID())
	}
	return got
}

// gone waits for the end of the connection.
func (r *raw) gone() {
	r.t.Helper()
	_, err := io.Copy(io.Discard, r.nc)
	if ne, ok := err.(net.Error); ok && ne.Timeout() {
		r.t.Error("the connection was not closed")
	}
}

// closed wants connection.close, answers it and waits for the end.
func (r *raw) closed(code uint16, text string) {
	r.t.Helper()
	m := want[wire.ConnectionClose](r)
	name := wire.Code(code).String()
	if m.ReplyCode != code || !strings.HasPrefix(m.ReplyText, name+" - ") || !strings.Contains(m.ReplyText, text) {
		r.t.Errorf("closed with %d %q, want %d %q", m.ReplyCode, m.ReplyText, code, text)
	}
	r.send(0, &wire.ConnectionCloseOk{})
	r.gone()
}

// channelClosed wants channel.close and opens the channel again.
func (r *raw) channelClosed(code uint16, text string) {
	r.t.Helper()
	m := want[wire.ChannelClose](r)
	if m.ReplyCode != code || !strings.Contains(m.ReplyText, text) {
		r.t.Errorf("closed with %d %q, want %d %q", m.ReplyCode, m.ReplyText, code, text)
	}
	r.send(1, &wire.ChannelCloseOk{})
	r.send(1, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
}

// refusal is what a client sends on its open connection, and what it is told.
type refusal struct {
	name string
	send []byte
	text string
}

// refused sends each on a connection of its own, followed by a good publish that
// must not be read any more.
func (s *stand) refused(code uint16, cases ...refusal) {
	s.t.Helper()
	after := publishTo(kept, 1, "after the fault")
	for _, c := range cases {
		s.t.Run(c.name, func(t *testing.T) {
			r := s.rawOpen(0)
			r.t = t
			r.bytes(join(c.send, after))
			r.closed(code, c.text)
		})
	}
}

// frame makes a frame of anything.
func frame(kind byte, channel uint16, payload []byte) []byte {
	b := []byte{kind, byte(channel >> 8), byte(channel), 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[3:], uint32(len(payload)))
	return append(append(b, payload...), 0xCE)
}

func method(m wire.Method) []byte { return wire.AppendMethod(nil, 1, m) }

// header makes a content header; flags go with the properties that follow.
func header(class, channel uint16, size uint64, flags uint16, properties ...byte) []byte {
	b := binary.BigEndian.AppendUint16(nil, class)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, size)
	b = binary.BigEndian.AppendUint16(b, flags)
	return frame(wire.FrameHeader, channel, append(b, properties...))
}

const headersFlag = 1 << 13

// publishTo is a publish with its content.
func publishTo(queue string, channel uint16, body string) []byte {
	return join(wire.AppendMethod(nil, channel, &wire.BasicPublish{RoutingKey: queue}),
		header(60, channel, uint64(len(body)), 0), frame(wire.FrameBody, channel, []byte(body)))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

var publish = method(&wire.BasicPublish{RoutingKey: kept})
