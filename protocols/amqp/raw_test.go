package amqp

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// raw is a client that can send anything.
type raw struct {
	t      testing.TB
	nc     net.Conn
	frames *wire.FrameReader
}

func rawDial(t testing.TB, addr string) *raw {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	must(t, err)
	return newRaw(t, nc)
}

func newRaw(t testing.TB, nc net.Conn) *raw {
	t.Cleanup(func() { nc.Close() })
	must(t, nc.SetDeadline(time.Now().Add(2*patience)))
	return &raw{t: t, nc: nc, frames: wire.NewFrameReader(nc, DefaultFrameMax)}
}

// piped returns a client of s over a pipe, for tests in a bubble of time.
func piped(t testing.TB, s *Server) *raw {
	server, client := net.Pipe()
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait) // when the client has closed
	serving.Go(func() { s.handle(server) })
	return newRaw(t, client)
}

var rawCapabilities = wire.Table{
	{Name: "authentication_failure_close", Value: true}, {Name: "consumer_cancel_notify", Value: true},
}

func rawStartOk(password string) *wire.ConnectionStartOk {
	return &wire.ConnectionStartOk{
		ClientProperties: wire.Table{{Name: "capabilities", Value: rawCapabilities}},
		Mechanism:        "PLAIN", Response: "\x00guest\x00" + password, Locale: "en_US",
	}
}

// rawOpen brings a connection to where methods can be sent; channel 1 is open.
func rawOpen(t testing.TB, addr string, heartbeat uint16) *raw {
	t.Helper()
	return rawDial(t, addr).open(heartbeat)
}

func (r *raw) open(heartbeat uint16) *raw {
	r.t.Helper()
	r.bytes([]byte(wire.ProtocolHeader))
	want[wire.ConnectionStart](r)
	r.send(0, rawStartOk("guest"))
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

// next returns the next method, with the content that follows it.
func (r *raw) next() (wire.Method, []byte, error) {
	for {
		fr, err := r.frames.Next()
		if err != nil {
			return nil, nil, err
		}
		if fr.Type == wire.FrameHeartbeat {
			continue
		}
		m, err := wire.ReadMethod(fr.Payload)
		if err != nil || !m.ID().HasContent() {
			return m, nil, err
		}
		fr, err = r.frames.Next()
		if err != nil || fr.Type != wire.FrameHeader {
			r.t.Fatalf("no header after %v: %v", m.ID(), err)
		}
		var p wire.Properties
		_, size, err := wire.ParseHeader(fr.Payload, &p)
		must(r.t, err)
		body := []byte{}
		for uint64(len(body)) < size {
			fr, err = r.frames.Next()
			if err != nil || fr.Type != wire.FrameBody {
				r.t.Fatalf("no body after %v: %v", m.ID(), err)
			}
			body = append(body, fr.Payload...)
		}
		return m, body, nil
	}
}

// want reads the next method, which must be an M.
func want[M any, P interface {
	*M
	wire.Method
}](r *raw) P {
	r.t.Helper()
	m, _, err := r.next()
	got, ok := m.(P)
	if !ok {
		r.t.Fatalf("got %T %+v, %v; want %v", m, m, err, P(new(M)).ID())
	}
	return got
}

// gone waits for the end of the connection.
func (r *raw) gone() {
	r.t.Helper()
	if _, err := io.Copy(io.Discard, r.nc); err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			r.t.Error("the connection was not closed")
		}
	}
}
