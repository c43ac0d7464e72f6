package amqp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// frame makes a frame of anything.
func frame(kind byte, channel uint16, payload []byte) []byte {
	b := []byte{kind, byte(channel >> 8), byte(channel), 0, 0, 0, 0}
	binary.BigEndian.PutUint32(b[3:], uint32(len(payload)))
	return append(append(b, payload...), 0xCE)
}

func methodFrame(m wire.Method) []byte { return wire.AppendMethod(nil, 1, m) }

func headerFrame(class uint16, size uint64, flags uint16) []byte {
	b := binary.BigEndian.AppendUint16(nil, class)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint64(b, size)
	return frame(wire.FrameHeader, 1, binary.BigEndian.AppendUint16(b, flags))
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func deepTable(depth int) wire.Table {
	var t wire.Table
	for range depth {
		t = wire.Table{{Name: "k", Value: t}}
	}
	return t
}

// notNow is the text for what belongs to another state of the connection.
const notNow = "unexpected method in connection state running"

var pub = methodFrame(&wire.BasicPublish{RoutingKey: "q"})

// hostile lists what a client may send after it has opened channel 1, and what
// it is told. Rows name those of the fault list (14-23).
var hostile = []struct {
	name string
	send []byte
	code wire.Code
	text string // part of the reply text
	soft bool   // channel.close, and the connection lives on
}{
	{name: "14 bad end octet", send: append(frame(1, 1, []byte{0, 20, 0, 20, 1})[:12], 0), code: 501, text: "invalid_frame_end_marker,0"},
	{name: "15 frame too large", send: []byte{3, 0, 1, 0x7f, 0, 0, 0}, code: 501, text: "{frame_too_large,2130706432,131064}"},
	{name: "16 unknown type", send: frame(9, 1, nil), code: 501, text: "unknown_frame"},
	{name: "16 method cut short", send: frame(1, 1, []byte{0, 60, 0, 40, 0, 0, 5, 'a'}), code: 501, text: "basic.publish: malformed"},
	{name: "16 method of three bytes", send: frame(1, 1, []byte{0, 60, 0}), code: 501},
	{name: "16 name not UTF-8", send: methodFrame(&wire.QueueDeclare{Queue: "\xff"}), code: 501, text: "not UTF-8"},
	{name: "16 header cut short", send: join(pub, frame(2, 1, []byte{0, 60})), code: 501},
	{name: "17 heartbeat on a channel", send: frame(8, 1, nil), code: 505},
	{name: "17 heartbeat with payload", send: frame(8, 0, []byte{1}), code: 501, text: "type 8, all octets = <<1>>: unknown_frame"},
	{name: "17 header without method", send: headerFrame(60, 0, 0), code: 505, text: "expected method frame, got non method frame instead"},
	{name: "17 body without method", send: frame(3, 1, []byte("x")), code: 505, text: "expected method frame, got non method frame instead"},
	{name: "17 header of another class", send: join(pub, headerFrame(50, 0, 0)), code: 505, text: "expected content header for class 60, got one for class 50 instead"},
	{name: "17 body before header", send: join(pub, frame(3, 1, []byte("x"))), code: 505, text: "expected content header for class 60, got non content header frame instead"},
	{name: "17 method before header", send: join(pub, pub), code: 505, text: "expected content header for class 60, got non content header frame instead"},
	{name: "17 method in a body", send: join(pub, headerFrame(60, 5, 0), pub), code: 505, text: "expected content body, got non content body frame instead"},
	{name: "17 content on channel 0", send: frame(2, 0, []byte{0, 60}), code: 505},
	{name: "18 body of 2^63", send: join(pub, headerFrame(60, 1<<63, 0)), code: 501, text: "the limit is 536870912"},
	{name: "18 body above the limit", send: join(pub, headerFrame(60, 20<<20, 0), frame(3, 1, make([]byte, 1000))), code: 406, soft: true,
		text: "PRECONDITION_FAILED - message size 20971520 is larger than configured max size 16777216"},
	{name: "19 body longer than announced", send: join(pub, headerFrame(60, 3, 0), frame(3, 1, []byte("four"))), code: 501, text: "longer than the 3 bytes"},
	{name: "19 second frame too long", send: join(pub, headerFrame(60, 3, 0), frame(3, 1, []byte("fo")), frame(3, 1, []byte("ur"))), code: 501},
	{name: "19 empty body frames", send: join(pub, headerFrame(60, 3, 0), bytes.Repeat(frame(3, 1, nil), 100)), code: 501, text: "empty body frames"},
	{name: "20 unknown method", send: frame(1, 1, []byte{0, 60, 0, 99}), code: 540, text: "unknown method 60.99"},
	{name: "20 unknown class", send: frame(1, 1, []byte{1, 0, 0, 1}), code: 540, text: "unknown method 256.1"},
	{name: "20 unknown method on channel 0", send: frame(1, 0, []byte{0, 10, 0, 99}), code: 540},
	{name: "21 channel never opened", send: wire.AppendMethod(nil, 2, &wire.BasicQos{}), code: 504, text: "expected 'channel.open'"},
	{name: "21 content on a channel never opened", send: frame(3, 7, []byte("x")), code: 504},
	{name: "21 second open", send: methodFrame(&wire.ChannelOpen{}), code: 504, text: "second 'channel.open' seen"},
	{name: "22 channel number", send: wire.AppendMethod(nil, 2048, &wire.ChannelOpen{}), code: 530, text: "channel_max (2047)"},
	{name: "23 deep table", send: methodFrame(&wire.QueueDeclare{Queue: "q", Arguments: deepTable(10_000)}), code: 501, text: "too deep"},
	{name: "23 deep headers", send: join(pub, frame(2, 1, append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 0), 1<<13),
		wire.AppendTable(nil, deepTable(5_000))...))), code: 501, text: "too deep"},
	{name: "server's method", send: methodFrame(&wire.BasicDeliver{}), code: 503},
	{name: "connection method on a channel", send: methodFrame(&wire.ConnectionClose{}), code: 503},
	{name: "channel method on channel 0", send: wire.AppendMethod(nil, 0, &wire.ChannelOpen{}), code: 504, text: notNow},
	{name: "reserved flags", send: join(pub, headerFrame(60, 0, 1)), code: 501},
	{name: "two hosts", send: wire.AppendMethod(nil, 0, &wire.ConnectionOpen{VirtualHost: "/"}), code: 504, text: notNow},
	{name: "two logins", send: wire.AppendMethod(nil, 0, rawStartOk("guest")), code: 504, text: notNow},
	{name: "limits agreed twice", send: wire.AppendMethod(nil, 0, &wire.ConnectionTuneOk{ChannelMax: 1, FrameMax: 4096}), code: 504, text: notNow},
	{name: "answer to no close", send: wire.AppendMethod(nil, 0, &wire.ConnectionCloseOk{}), code: 504, text: notNow},
	{name: "queue method on channel 0", send: wire.AppendMethod(nil, 0, &wire.QueueDeclare{Queue: "q"}), code: 504, text: notNow},
	{name: "secret", send: wire.AppendMethod(nil, 0, &wire.ConnectionUpdateSecret{}), code: 530},
}

func TestHostile(t *testing.T) {
	_, addr := startServer(t, Config{})
	beside := openChannel(t, dial(t, addr))
	_, err := beside.QueueDeclare("beside", true, false, false, false, nil)
	must(t, err)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, tc := range hostile {
		t.Run(tc.name, func(t *testing.T) {
			r := rawOpen(t, addr, 60)
			r.bytes(tc.send)
			m, _, err := r.next()
			must(t, err)
			var code uint16
			var text string
			switch m := m.(type) {
			case *wire.ConnectionClose:
				code, text = m.ReplyCode, m.ReplyText
				if tc.soft {
					t.Error("the connection was closed")
				}
				r.send(0, &wire.ConnectionCloseOk{})
				r.gone()
			case *wire.ChannelClose:
				code, text = m.ReplyCode, m.ReplyText
				if !tc.soft {
					t.Error("only the channel was closed")
				}
				r.send(1, &wire.ChannelCloseOk{})
				r.send(1, &wire.ChannelOpen{})
				want[wire.ChannelOpenOk](r)
			default:
				t.Fatalf("%v", m.ID())
			}
			if wire.Code(code) != tc.code || !strings.HasPrefix(text, tc.code.String()+" - ") || !strings.Contains(text, tc.text) {
				t.Errorf("%d %q", code, text)
			}
			must(t, beside.PublishWithContext(t.Context(), "", "beside", false, false, amqp.Publishing{}))
		})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
		t.Errorf("%d bytes more are held", grown)
	}
	if q, err := beside.QueueDeclarePassive("beside", true, false, false, false, nil); err != nil || q.Messages != len(hostile) {
		t.Errorf("the connection beside: %v, %v", q, err)
	}
}

// Bodies that are never finished, on many channels, are bounded together.
func TestUnfinishedBodies(t *testing.T) {
	_, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	piece := make([]byte, 100_000)
	go func() {
		for id := range uint16(20) {
			b := wire.AppendMethod(nil, id+1, &wire.BasicPublish{RoutingKey: "q"})
			if id > 0 {
				b = join(wire.AppendMethod(nil, id+1, &wire.ChannelOpen{}), b)
			}
			header := headerFrame(60, DefaultMaxMessage, 0)
			header[2] = byte(id + 1)
			b = append(b, header...)
			for range 160 {
				b = append(b, frame(3, id+1, piece)...)
			}
			if _, err := r.nc.Write(b); err != nil {
				return
			}
		}
	}()
	for {
		m, _, err := r.next()
		must(t, err)
		if m, ok := m.(*wire.ConnectionClose); ok {
			if m.ReplyCode != 506 {
				t.Errorf("%+v", m)
			}
			return
		}
	}
}

// Row 24: who speaks something else is told what is spoken here.
func TestOtherProtocols(t *testing.T) {
	_, addr := startServer(t, Config{})
	for name, hello := range map[string]string{
		"http": "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "tls": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "amqp 1.0": "AMQP\x00\x01\x00\x00", "0-8": "AMQP\x01\x01\x08\x00",
	} {
		t.Run(name, func(t *testing.T) {
			r := rawDial(t, addr)
			r.bytes([]byte(hello))
			got, err := io.ReadAll(r.nc)
			if string(got) != wire.ProtocolHeader {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	r := rawDial(t, addr)
	r.nc.Close() // a health check
}

// TestHandshakeTimeLimit: a client has HandshakeTimeout in all to open a connection.
func TestHandshakeTimeLimit(t *testing.T) {
	for said := range 4 {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := piped(t, newServer(Config{}, newFakeNode()))
			if said > 0 {
				r.bytes([]byte(wire.ProtocolHeader))
				want[wire.ConnectionStart](r)
			}
			if said > 1 {
				r.send(0, rawStartOk("guest"))
				want[wire.ConnectionTune](r)
			}
			if said > 2 {
				r.send(0, &wire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 4096, Heartbeat: 60})
			}
			r.gone()
			if took := time.Since(began); took != DefaultHandshakeTimeout {
				t.Errorf("after %d steps closed after %v", said, took)
			}
		})
	}
}

// Rows 15, 25, 26: before the login.
func TestHandshakeRefusals(t *testing.T) {
	n, addr := startServer(t, Config{FailureDelay: 50 * time.Millisecond})
	start := func(t *testing.T) *raw {
		r := rawDial(t, addr)
		r.bytes([]byte(wire.ProtocolHeader))
		want[wire.ConnectionStart](r)
		return r
	}
	closed := func(t *testing.T, r *raw, code uint16, text string) {
		t.Helper()
		if m := want[wire.ConnectionClose](r); m.ReplyCode != code || !strings.Contains(m.ReplyText, text) {
			t.Errorf("%d %q", m.ReplyCode, m.ReplyText)
		}
	}
	tuned := func(t *testing.T) *raw {
		r := start(t)
		r.send(0, rawStartOk("guest"))
		want[wire.ConnectionTune](r)
		return r
	}
	t.Run("large frame", func(t *testing.T) {
		r := start(t)
		r.bytes([]byte{1, 0, 0, 0, 1, 0, 0})
		closed(t, r, 501, "{frame_too_large,65536,8184}")
	})
	t.Run("wrong password", func(t *testing.T) {
		r := start(t)
		r.send(0, rawStartOk("wrong"))
		closed(t, r, 403, "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.")
		if n := n.counters.Refused.Load(); n != 1 {
			t.Errorf("%d refused logins counted", n)
		}
	})
	t.Run("wrong password, old client", func(t *testing.T) {
		r := start(t)
		r.send(0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00wrong"})
		if m, _, err := r.next(); m != nil {
			t.Errorf("%v, %v", m.ID(), err)
		}
	})
	t.Run("mechanism", func(t *testing.T) {
		r := start(t)
		r.send(0, &wire.ConnectionStartOk{Mechanism: "EXTERNAL"})
		closed(t, r, 503, "unknown authentication mechanism 'EXTERNAL'")
	})
	t.Run("response", func(t *testing.T) {
		r := start(t)
		r.send(0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: "guest"})
		closed(t, r, 502, "malformed")
	})
	t.Run("AMQPLAIN", func(t *testing.T) {
		r := start(t)
		login := wire.AppendTable(nil, wire.Table{{Name: "LOGIN", Value: "guest"}, {Name: "PASSWORD", Value: "guest"}})
		r.send(0, &wire.ConnectionStartOk{Mechanism: "AMQPLAIN", Response: string(login[4:])})
		want[wire.ConnectionTune](r)
	})
	t.Run("out of order", func(t *testing.T) {
		r := start(t)
		r.send(0, &wire.ConnectionOpen{VirtualHost: "/"})
		closed(t, r, 504, "expected 'connection.start-ok'")
	})
	for text, m := range map[string]*wire.ConnectionTuneOk{
		"negotiated channel_max = 0 (no limit) is higher than the maximum allowed value (2047)": {FrameMax: 131072},
		"negotiated channel_max = 2048 is higher than the maximum allowed value (2047)":         {ChannelMax: 2048, FrameMax: 131072},
		"negotiated frame_max = 131073 is higher than the maximum allowed value (131072)":       {ChannelMax: 1, FrameMax: 131073},
		"negotiated frame_max = 4095 is lower than the minimum allowed value (4096)":            {ChannelMax: 1, FrameMax: 4095},
	} {
		t.Run(text, func(t *testing.T) {
			r := tuned(t)
			r.send(0, m)
			closed(t, r, 530, "NOT_ALLOWED - "+text)
		})
	}
	t.Run("virtual host", func(t *testing.T) {
		r := tuned(t)
		r.send(0, &wire.ConnectionTuneOk{ChannelMax: 10, FrameMax: 4096})
		r.send(0, &wire.ConnectionOpen{VirtualHost: "nope"})
		closed(t, r, 530, "NOT_ALLOWED - vhost nope not found")
	})
}

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := piped(t, newServer(Config{}, newFakeNode())).open(1)
		began := time.Now()
		fr, err := r.frames.Next()
		if err != nil || fr.Type != wire.FrameHeartbeat {
			t.Fatalf("%+v, %v", fr, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the first heartbeat came after %v", took)
		}
		r.gone() // we are silent: closed after two intervals
		if took := time.Since(began); took < time.Second || took > 4*time.Second {
			t.Errorf("closed after %v", took)
		}
	})
}

// The frames of a content are not mixed with others, even when two queues
// deliver to two channels of one connection at once.
func TestContentsAreWhole(t *testing.T) {
	_, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(2, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
	for ch := range uint16(2) {
		r.send(ch+1, &wire.QueueDeclare{Queue: string(rune('a' + ch))})
		want[wire.QueueDeclareOk](r)
		r.send(ch+1, &wire.BasicConsume{Queue: string(rune('a' + ch)), NoAck: true})
		want[wire.BasicConsumeOk](r)
	}
	const each = 200
	for ch := range uint16(2) {
		p := openChannel(t, dial(t, addr))
		go func() {
			for i := range each {
				body := bytes.Repeat([]byte{byte(ch)}, i*1000)
				if p.PublishWithContext(t.Context(), "", string(rune('a'+ch)), false, false, amqp.Publishing{Body: body}) != nil {
					return
				}
			}
		}()
	}
	for range 2 * each {
		if m, _, err := r.next(); err != nil || m.ID() != wire.IDBasicDeliver { // next checks the frames
			t.Fatalf("%v, %v", m, err)
		}
	}
}

// A client that does not read gets no more than its share of memory.
func TestSlowConsumer(t *testing.T) {
	n, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	if tc, ok := r.nc.(*net.TCPConn); ok {
		must(t, tc.SetReadBuffer(256<<10))
	}
	r.send(1, &wire.QueueDeclare{Queue: "q"})
	want[wire.QueueDeclareOk](r)
	r.send(1, &wire.BasicConsume{Queue: "q", NoAck: true})
	want[wire.BasicConsumeOk](r)
	p := openChannel(t, dial(t, addr))
	const total, size = 1500, 32 << 10
	for range total {
		publish(t, p, "q", amqp.Publishing{Body: make([]byte, size)})
	}
	wait(t, n, func() bool { return len(n.queues["q"].batches) == total })
	n.mu.Lock()
	ready := len(n.queues["q"].ready)
	n.mu.Unlock()
	if handed := total - ready; handed*size > 16<<20 {
		t.Errorf("%d messages were handed out to a client that reads nothing", handed)
	}
	for range total { // and all of it arrives when it does read
		if m, _, err := r.next(); err != nil || m.ID() != wire.IDBasicDeliver {
			t.Fatalf("%v, %v", m, err)
		}
	}
}
