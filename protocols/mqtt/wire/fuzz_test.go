package wire

import (
	"bytes"
	"errors"
	"testing"
)

// FuzzPacket feeds hostile bytes to everything that parses: no panic, faults
// are *Error with a code of the error range, and a PUBLISH that is accepted
// reads the same after being written again.
func FuzzPacket(f *testing.F) {
	seed := func(b []byte) { f.Add(b) }
	connect := ConnectRequest{Version: V5, ClientID: "c", HasUser: true, User: "u", Will: &Will{Topic: "w", QoS: 1}}
	seed(connect.Append(nil))
	connect.Version = V311
	seed(connect.Append(nil))
	seed((&SubscribeRequest{ID: 1, Identifier: 5, Filters: []Filter{{Name: "a/#", QoS: 1}}}).Append(nil, V5))
	seed((&UnsubscribeRequest{ID: 1, Filters: []string{"a"}}).Append(nil, V5))
	seed([]byte{0x82, 6, 0, 1, 0, 0, 1, 'a'}) // SUBSCRIBE without options: a panic in the decoder behind
	seed([]byte{0x82, 8, 0, 1, 2, 0x0B, 0x80, 0, 1, 'a'})
	p, _, _ := (&Frame{Version: V5, QoS: 1, ID: 3, Topic: []byte("t"), Properties: AppendUser(nil, "k", "v"), Payload: []byte("x")}).Append(nil)
	seed(p)
	seed(AppendDisconnect(nil, V5, SessionTakenOver, "x"))
	seed((&ConnectAnswer{Version: V5, MaximumQoS: 1, AssignedClientID: "a"}).Append(nil))
	seed([]byte{0xF0, 2, 0, 0})
	seed([]byte{0x40, 5, 0, 1, 0x10, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReader(bytes.NewReader(b), 1<<20)
		for {
			first, body, ok, err := r.Take()
			check(t, err)
			if err != nil {
				return
			}
			if ok {
				for _, v := range []byte{V311, V5} {
					parse(t, v, first, body)
				}
				continue
			}
			if _, err := r.Fill(); err != nil {
				return
			}
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Code < UnspecifiedError || e.Text == "") {
		t.Fatalf("%#v", err)
	}
}

func parse(t *testing.T, v, first byte, body []byte) {
	t.Helper()
	check(t, CheckFlags(first))
	switch pt := first >> 4; pt {
	case Connect:
		_, err := ParseConnect(body)
		check(t, err)
	case Connack:
		_, err := ParseConnack(v, body)
		check(t, err)
	case Publish:
		parsePublish(t, v, first, body)
	case Puback, Pubrec, Pubrel, Pubcomp:
		_, _, err := ParseAck(pt, v, body)
		check(t, err)
	case Subscribe:
		_, err := ParseSubscribe(v, body)
		check(t, err)
	case Unsubscribe:
		_, err := ParseUnsubscribe(v, body)
		check(t, err)
	case Suback, Unsuback:
		_, _, err := ParseSuback(pt, v, body)
		check(t, err)
	case Disconnect:
		_, err := ParseDisconnect(v, body)
		check(t, err)
	case Auth:
		_, err := ParseAuth(body)
		check(t, err)
	}
}

func parsePublish(t *testing.T, v, first byte, body []byte) {
	t.Helper()
	var m Message
	err := m.Parse(v, first, body)
	check(t, err)
	if err != nil {
		return
	}
	section := m.Properties.rest
	for m.Properties.Next() {
	}
	check(t, m.Properties.Err())
	if m.Properties.Err() != nil {
		return
	}
	f := Frame{Version: v, QoS: m.QoS, Dup: m.Dup, Retain: m.Retain, ID: m.ID, Topic: m.Topic, Properties: section, Payload: m.Payload}
	out, _, _ := f.Append(nil)
	if len(out) != f.Size() || out[0] != first || !bytes.Equal(out[len(out)-len(body):], body) {
		t.Fatalf("% x\nbecame % x", body, out)
	}
}
