package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/eclipse/paho.golang/packets"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// one cuts b, which holds one packet.
func one(t testing.TB, b []byte) (first byte, body []byte) {
	t.Helper()
	r := NewReader(bytes.NewReader(b), 16<<20)
	for {
		first, body, ok, err := r.Take()
		if err == nil && !ok {
			_, err = r.Fill()
		}
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return first, body
		}
	}
}

// What the server writes, byte for byte.
func TestAppend(t *testing.T) {
	expiry, keepAlive := uint32(60), uint16(30)
	publish := func(f Frame) []byte { b, _, _ := f.Append(nil); return b }
	cases := []struct {
		name string
		got  []byte
		want string
	}{
		{"PUBACK", AppendAck(nil, Puback, V311, 0x1234, NoMatchingSubscribers), "40 02 1234"},
		{"PUBACK 5", AppendAck(nil, Puback, V5, 0x1234, Success), "40 02 1234"},
		{"PUBACK 5 code below 0x80", AppendAck(nil, Puback, V5, 0x1234, NoMatchingSubscribers), "40 03 1234 10"},
		{"PUBACK 5 error", AppendAck(nil, Puback, V5, 1, QuotaExceeded), "40 03 0001 97"},
		{"PUBREL", AppendAck(nil, Pubrel, V311, 1, Success), "62 02 0001"},
		{"PUBCOMP 5", AppendAck(nil, Pubcomp, V5, 1, PacketIDNotFound), "70 03 0001 92"},
		{"PINGRESP", AppendPingresp(nil), "d0 00"},
		{"DISCONNECT", AppendDisconnect(nil, V311, SessionTakenOver, "x"), "e0 00"},
		{"DISCONNECT 5", AppendDisconnect(nil, V5, SessionTakenOver, ""), "e0 01 8e"},
		{"DISCONNECT 5 with reason", AppendDisconnect(nil, V5, SessionTakenOver, "no"), "e0 07 8e 05 1f 0002 6e6f"},
		{"SUBACK", AppendSuback(nil, V311, 7, []Code{1, NotAuthorized, 0}, "no"), "90 05 0007 01 80 00"},
		{"SUBACK 5", AppendSuback(nil, V5, 7, []Code{1, NotAuthorized, 0}, ""), "90 06 0007 00 01 87 00"},
		{"SUBACK 5 with reason", AppendSuback(nil, V5, 7, []Code{NotAuthorized}, "no"), "90 09 0007 05 1f 0002 6e6f 87"},
		{"UNSUBACK", AppendUnsuback(nil, V311, 7, []Code{0}), "b0 02 0007"},
		{"UNSUBACK 5", AppendUnsuback(nil, V5, 7, []Code{0, NoSubscriptionExisted}), "b0 05 0007 00 00 11"},
		{"CONNACK", (&ConnectAnswer{Version: V311, SessionPresent: true}).Append(nil), "20 02 01 00"},
		{"CONNACK refused", (&ConnectAnswer{Version: V311, Code: 4}).Append(nil), "20 02 00 04"},
		{"CONNACK 5 refused", (&ConnectAnswer{Version: V5, Code: BadCredentials, ReceiveMaximum: 9}).Append(nil), "20 03 00 86 00"},
		{"CONNACK 5", (&ConnectAnswer{Version: V5, SessionPresent: true, MaximumQoS: 1, ReceiveMaximum: 100, MaximumPacketSize: 1 << 20,
			TopicAliasMaximum: 64, SessionExpiry: &expiry, KeepAlive: &keepAlive, AssignedClientID: "id"}).Append(nil),
			"20 25 01 00 22 11 0000003c 12 0002 6964 13 001e 21 0064 22 0040 24 01 25 00 27 00100000 28 01 29 01 2a 01"},
		{"PUBLISH QoS 0", publish(Frame{Version: V311, Topic: []byte("a"), Payload: []byte("x")}), "30 04 0001 61 78"},
		{"PUBLISH QoS 1", publish(Frame{Version: V311, QoS: 1, Dup: true, Retain: true, ID: 10, Topic: []byte("a"), Payload: []byte("x")}), "3b 06 0001 61 000a 78"},
		{"PUBLISH 5", publish(Frame{Version: V5, QoS: 1, ID: 10, Topic: []byte("a"), Payload: []byte("x")}), "32 07 0001 61 000a 00 78"},
		{"PUBLISH 5 with properties", publish(Frame{Version: V5, QoS: 1, ID: 10, Topic: []byte("a"), Properties: AppendUser(nil, "k", "v"), Identifier: 300}),
			"32 10 0001 61 000a 0a 26 0001 6b 0001 76 0b ac02"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if want := unhex(t, c.want); !bytes.Equal(c.got, want) {
				t.Errorf("got  % x\nwant % x", c.got, want)
			}
		})
	}
}

func TestFrameOffsets(t *testing.T) {
	f := Frame{Version: V5, QoS: 1, ID: 0x0102, Topic: bytes.Repeat([]byte("t"), 200), Properties: AppendFour(nil, PropMessageExpiry, 5), Identifier: 9}
	b, id, props := f.Append([]byte("before"))
	b = b[len("before"):]
	if b[id] != 1 || b[id+1] != 2 || b[props] != PropMessageExpiry || len(b) != f.Size() {
		t.Errorf("id at %d, properties at %d of % x", id, props, b)
	}
}

// What clients write is read as they meant it.
func TestRoundTrips(t *testing.T) {
	connect := ConnectRequest{Version: V5, Clean: true, KeepAlive: 60000, ClientID: "c", HasUser: true, User: "u", HasPassword: true,
		Password: []byte{0}, SessionExpiry: 1<<32 - 1, ReceiveMaximum: 5, MaximumPacketSize: 100, TopicAliasMaximum: 3, RequestProblem: true,
		Will: &Will{Topic: "w", Payload: []byte{}, QoS: 1, Retain: true, Delay: 9}}
	first, body := one(t, connect.Append(nil))
	got, err := ParseConnect(body)
	if err != nil || first != 0x10 {
		t.Fatal(err)
	}
	got.Will.properties = nil
	if !reflect.DeepEqual(*got, connect) {
		t.Errorf("got  %+v\nwant %+v", *got, connect)
	}
	for _, v := range []byte{V311, V5} {
		s := SubscribeRequest{ID: 3, Filters: []Filter{{Name: "a/+", QoS: 2}, {Name: "b", QoS: 1}}}
		if v == V5 {
			s.Identifier = 268435455
			s.Filters[0].Options = OptionNoLocal | OptionRetainAsPublished | 2<<4
		}
		_, body = one(t, s.Append(nil, v))
		if got, err := ParseSubscribe(v, body); err != nil || !reflect.DeepEqual(*got, s) {
			t.Errorf("got %+v, %v, want %+v", got, err, s)
		}
		u := UnsubscribeRequest{ID: 3, Filters: []string{"a", "b"}}
		_, body = one(t, u.Append(nil, v))
		if got, err := ParseUnsubscribe(v, body); err != nil || !reflect.DeepEqual(*got, u) {
			t.Errorf("got %+v, %v, want %+v", got, err, u)
		}
	}
	for _, b := range []string{"e0 00", "e0 01 04", "e0 02 04 00", "e0 07 04 05 11 00000009"} {
		_, body := one(t, unhex(t, b))
		d, err := ParseDisconnect(V5, body)
		if err != nil || len(body) > 0 && d.Code != DisconnectWithWill || d.HasExpiry != (len(body) > 2) {
			t.Errorf("%s: %+v %v", b, d, err)
		}
	}
	for _, b := range []string{"f0 00", "f0 01 00", "f0 02 00 00"} {
		_, body := one(t, unhex(t, b))
		if a, err := ParseAuth(body); a.Code != 0 || a.Method != "" || a.Data != nil || err != nil {
			t.Errorf("%s: %+v %v", b, a, err)
		}
	}
	want := AuthExchange{Code: ContinueAuth, Method: "m", Data: []byte{1, 0}, Reason: "r"}
	_, body = one(t, want.Append(nil))
	if a, err := ParseAuth(body); err != nil || !reflect.DeepEqual(a, want) {
		t.Errorf("%+v, %v", a, err)
	}
	for _, b := range []string{"f0 01 04", "f0 02 18 01", "f0 06 18 04 16 0001 61", "f0 04 18 02 11 00"} {
		_, body := one(t, unhex(t, b))
		if a, err := ParseAuth(body); err == nil {
			t.Errorf("%s: %+v", b, a)
		}
	}
}

// An independent codec reads what this one writes.
func TestOracle(t *testing.T) {
	section := AppendText(AppendFlag(nil, PropPayloadFormat, 1), PropContentType, "text/x")
	section = AppendText(AppendText(section, PropResponseTopic, "re"), PropCorrelationData, "\x00\xff")
	section = AppendUser(AppendUser(AppendFour(section, PropMessageExpiry, 70), "b", "1"), "a", "2")
	f := Frame{Version: V5, QoS: 1, Dup: true, ID: 77, Topic: []byte("a/b"), Properties: section, Identifier: 200, Payload: []byte("x")}
	b, _, _ := f.Append(nil)
	cp, err := packets.ReadPacket(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	p := cp.Content.(*packets.Publish)
	q := p.Properties
	if p.Topic != "a/b" || p.PacketID != 77 || p.QoS != 1 || !p.Duplicate || string(p.Payload) != "x" || *q.PayloadFormat != 1 ||
		q.ContentType != "text/x" || q.ResponseTopic != "re" || string(q.CorrelationData) != "\x00\xff" || *q.MessageExpiry != 70 ||
		*q.SubscriptionIdentifier != 200 || len(q.User) != 2 || q.User[0].Key != "b" {
		t.Errorf("%+v %+v", p, q)
	}
	var out bytes.Buffer
	if _, err := p.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	first, body := one(t, out.Bytes())
	var m Message
	if err := m.Parse(V5, first, body); err != nil || string(m.Topic) != "a/b" || m.ID != 77 || string(m.Payload) != "x" || !m.Dup {
		t.Errorf("%+v %v", m, err)
	}
	n := 0
	for m.Properties.Next() {
		n++
	}
	if m.Properties.Err() != nil || n != 8 {
		t.Errorf("%d properties, %v", n, m.Properties.Err())
	}
}

func TestReader(t *testing.T) {
	var stream []byte
	var want [][]byte
	for _, n := range []int{0, 1, 100, 127, 128, 5000, 70_000, 3, 300_000, 2} {
		p := append(AppendVarint([]byte{0x30}, n), bytes.Repeat([]byte{byte(n)}, n)...)
		stream = append(stream, p...)
		want = append(want, p[len(p)-n:])
	}
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(stream), "bytes": iotest.OneByteReader(bytes.NewReader(stream)), "halves": iotest.HalfReader(bytes.NewReader(stream)),
	} {
		r := NewReader(src, 1<<20)
		for i := 0; i < len(want); {
			_, body, ok, err := r.Take()
			if err != nil {
				t.Fatal(name, err)
			}
			if ok {
				if !bytes.Equal(body, want[i]) {
					t.Fatalf("%s: packet %d of %d bytes", name, i, len(body))
				}
				i++
				continue
			}
			if _, err := r.Fill(); err != nil {
				t.Fatal(name, err)
			}
		}
		if _, err := r.Fill(); err != io.EOF {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A length costs nothing until its bytes come, and the buffer gets small again.
func TestReaderBounds(t *testing.T) {
	r := NewReader(bytes.NewReader(append(AppendVarint([]byte{0x30}, 16<<20-10), make([]byte, 100)...)), 16<<20)
	for {
		if _, _, _, err := r.Take(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fill(); err != nil {
			break
		}
	}
	if len(r.buf) > readerLarge {
		t.Errorf("%d bytes of buffer for 100 bytes", len(r.buf))
	}
	var stream []byte
	stream = append(append(stream, AppendVarint([]byte{0x30}, 1<<20)...), make([]byte, 1<<20)...)
	for range calmFills + 3 {
		stream = append(stream, 0xC0, 0)
	}
	r = NewReader(iotest.OneByteReader(bytes.NewReader(stream)), 16<<20)
	for {
		_, _, ok, err := r.Take()
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			continue
		}
		if _, err := r.Fill(); err != nil {
			break
		}
	}
	if len(r.buf) != readerSmall {
		t.Errorf("%d bytes of buffer for pings", len(r.buf))
	}
	for limit, code := range map[int]Code{10: PacketTooLarge} {
		r := NewReader(bytes.NewReader([]byte{0x30, 9}), limit)
		_, _ = r.Fill()
		var e *Error
		if _, _, _, err := r.Take(); !errors.As(err, &e) || e.Code != code {
			t.Errorf("%v", err)
		}
	}
}

func BenchmarkParsePublish(b *testing.B) {
	f := Frame{Version: V5, QoS: 1, ID: 10, Topic: []byte("sensors/room/1/temp"), Properties: AppendUser(nil, "k", "v"), Payload: make([]byte, 128)}
	p, _, _ := f.Append(nil)
	first, body := one(b, p)
	var m Message
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Parse(V5, first, body); err != nil {
			b.Fatal(err)
		}
		for m.Properties.Next() {
		}
	}
}

func BenchmarkAppendPublish(b *testing.B) {
	f := Frame{Version: V5, QoS: 1, ID: 10, Topic: []byte("sensors/room/1/temp"), Properties: AppendUser(nil, "k", "v"), Payload: make([]byte, 128)}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _, _ = f.Append(buf[:0])
	}
}
