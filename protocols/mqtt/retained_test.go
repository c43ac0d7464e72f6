package mqtt

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// kept is a retained message as the kernel has it.
func kept(name, value, qos string, headers ...kernel.Header) kernel.Retained {
	hs := append([]kernel.Header{{Key: kernel.HeaderQoS, Value: []byte(qos)}, {Key: kernel.HeaderRetain, Value: value1}}, headers...)
	return kernel.Retained{Name: name, Record: kernel.Record{Key: []byte(name), Value: []byte(value), Headers: hs}}
}

func ackPacket(version byte, id uint16) []byte {
	return wire.AppendAck(nil, wire.Puback, version, id, wire.Success)
}

// 3.3.1-5 to -8: a publish with RETAIN is retained, one without is not, and its
// PUBACK comes with the commit even if nobody else matches.
func TestRetainedPublish(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.onPublish = func(p published) (int, error) { return 0, nil }
	for _, v := range []byte{wire.V311, wire.V5} {
		p, _ := r.connect(wire.ConnectRequest{Version: v, ClientID: fmt.Sprint("c", v), Clean: true})
		b := publishPacket(v, 1, 5, "a/b", "x")
		b[0] |= 1
		p.send(b)
		p.send(wire.AppendPingreq(nil))
		p.want(wire.Pingresp)
		m := r.node.messages()[0]
		if !m.kept || m.header(kernel.HeaderRetain) != "1" {
			t.Errorf("%+v", m)
		}
		m.done.Completed(m.token, kernel.Result{})
		m.done.Flush()
		if _, code, err := wire.ParseAck(wire.Puback, v, p.want(wire.Puback)); code != wire.Success || err != nil {
			t.Errorf("PUBACK 0x%02x %v", code, err)
		}
		p.send(publishPacket(v, 0, 0, "a/b", "x"))
		p.send(wire.AppendPingreq(nil))
		p.want(wire.Pingresp)
		if m := r.node.messages()[1]; m.kept || m.header(kernel.HeaderRetain) != "-" {
			t.Errorf("%+v", m)
		}
		r.node.mu.Lock()
		r.node.published = nil
		r.node.mu.Unlock()
	}
}

// 3.8.3.1, 3.3.1-9 to -13, 3.8.4-4: Retain Handling; RETAIN is set on what was
// retained whatever Retain As Published says; at the lower QoS.
func TestRetainHandling(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.retained = map[string][]kernel.Retained{"a/#": {kept("a", "0", "0"), kept("a/1", "1", "1"), kept("a/2", "2", "2")}}
	for _, c := range []struct {
		name     string
		version  byte
		handling byte
		again    bool // the subscription exists
		qos      byte
		want     bool
	}{
		{"3.1.1 new", wire.V311, 0, false, 1, true},
		{"3.1.1 again", wire.V311, 0, true, 1, true}, // 3.1.1, 3.8.4-3
		{"0 new", wire.V5, 0, false, 1, true},
		{"0 again", wire.V5, 0, true, 0, true},
		{"1 new", wire.V5, 1, false, 1, true},
		{"1 again", wire.V5, 1, true, 1, false},
		{"2 new", wire.V5, 2, false, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := r.connect(wire.ConnectRequest{Version: c.version, ClientID: c.name, Clean: true})
			p.t = t
			if c.again {
				o := byte(0)
				if c.version == wire.V5 {
					o = 2 << 4
				}
				p.subscribe(wire.Filter{Name: "a/#", QoS: c.qos, Options: o})
				if o == 0 {
					for range 3 {
						p.wantMessage()
					}
				}
			}
			p.subscribe(wire.Filter{Name: "a/#", QoS: c.qos, Options: c.handling << 4})
			if c.want {
				for i, topic := range []string{"a", "a/1", "a/2"} {
					m := p.wantMessage()
					if string(m.Topic) != topic || !m.Retain || m.Dup || m.QoS != min(byte(i), c.qos, 1) || m.QoS > 0 && m.ID == 0 {
						t.Errorf("%+v", m)
					}
				}
			}
			p.send(wire.AppendPingreq(nil))
			p.want(wire.Pingresp)
		})
	}
	// 4.8.2: shared subscriptions get nothing that was retained.
	r.node.retained["$share/g/a/#"] = r.node.retained["a/#"]
	p, _ := r.connect(v5("shared"))
	p.subscribe(wire.Filter{Name: "$share/g/a/#", QoS: 1})
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
}

// What is retained keeps its properties in their order; the expiry is what remains,
// rounded up; what has expired is not sent.
func TestRetainedProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		in := func(d time.Duration) kernel.Header {
			return kernel.Header{Key: kernel.HeaderExpiresAt, Value: fmt.Append(nil, time.Now().Add(d).UnixMilli())}
		}
		r.node.retained = map[string][]kernel.Retained{"#": {
			kept("t", "v", "1", in(2500*time.Millisecond), kernel.Header{Key: "b", Value: []byte("1")}, kernel.Header{Key: "a", Value: []byte("2")}, kernel.Header{Key: "b", Value: []byte("3")},
				kernel.Header{Key: kernel.HeaderUTF8, Value: value1}, kernel.Header{Key: kernel.HeaderContentType, Value: []byte("x/y")},
				kernel.Header{Key: kernel.HeaderReplyToTopic, Value: []byte("re")}, kernel.Header{Key: kernel.HeaderCorrelationID, Value: []byte{0, 1}}),
			kept("old", "v", "1", in(0)),
			kept("last", "", "0"),
		}}
		p, _ := r.connect(v5("c"))
		p.send((&wire.SubscribeRequest{ID: 7, Identifier: 9, Filters: []wire.Filter{{Name: "#", QoS: 1}}}).Append(nil, wire.V5))
		p.want(wire.Suback)
		m := p.wantMessage()
		var got []string
		for m.Properties.Next() {
			switch q := &m.Properties; q.ID {
			case wire.PropUser:
				got = append(got, fmt.Sprintf("%s=%s", q.Data, q.Val))
			case wire.PropContentType, wire.PropResponseTopic, wire.PropCorrelationData:
				got = append(got, fmt.Sprintf("%d:%s", q.ID, q.Data))
			default:
				got = append(got, fmt.Sprintf("%d:%d", q.ID, q.Num))
			}
		}
		const want = "2:3 b=1 a=2 b=3 1:1 3:x/y 8:re 9:\x00\x01 11:9"
		if s := strings.Join(got, " "); s != want {
			t.Errorf("got  %q\nwant %q", s, want)
		}
		if m := p.wantMessage(); string(m.Topic) != "last" {
			t.Errorf("%+v", m)
		}
	})
}

// 3.3.4-9, 4.9: retained messages keep within the Receive Maximum, and a client
// that does not acknowledge is still served otherwise.
func TestRetainedReceiveMaximum(t *testing.T) {
	r := newRig(t, Limits{})
	var list []kernel.Retained
	for i := range 10 {
		list = append(list, kept(fmt.Sprint("t/", i), "v", "1"))
	}
	r.node.retained = map[string][]kernel.Retained{"#": list}
	req := v5("c")
	req.ReceiveMaximum, req.SessionExpiry = 2, 100
	p, _ := r.connect(req)
	p.subscribe(wire.Filter{Name: "#", QoS: 1})
	ids := []uint16{p.wantMessage().ID, p.wantMessage().ID}
	for n := 2; n < 10; n++ {
		p.send(wire.AppendPingreq(nil))
		p.want(wire.Pingresp) // nothing else
		p.send(ackPacket(wire.V5, ids[0]))
		m := p.wantMessage()
		if string(m.Topic) != fmt.Sprint("t/", n) {
			t.Errorf("%d: %s", n, m.Topic)
		}
		ids = append(ids[1:], m.ID)
	}
	p.send(append(ackPacket(wire.V5, ids[0]), ackPacket(wire.V5, ids[1])...))
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	m := r.member("c", "#")
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.settled) > 0 {
		t.Errorf("acknowledging retained messages settled %v", m.settled)
	}
}

// endless is a cursor that never ends.
type endless struct{ n int }

func (e *endless) Next(max, bytes int, _ func(int) bool) ([]kernel.Retained, bool, error) {
	list := make([]kernel.Retained, max)
	for i := range list {
		e.n++
		list[i] = kept("t", strings.Repeat("x", 1000), "0")
	}
	return list, true, nil
}

// A client that does not read holds up nobody, and little waits for it.
func TestRetainedBackPressure(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(v5("c"))
	p.subscribe(wire.Filter{Name: "t", QoS: 0})
	r.srv.mu.Lock()
	var c *conn
	for c = range r.srv.open {
	}
	r.srv.mu.Unlock()
	e := &endless{}
	c.streams.mu.Lock()
	c.streams.list = append(c.streams.list, &stream{parent: c.feeds["t"], feed: &feed{conn: c}, cursor: e, more: true})
	c.streams.some.Store(true)
	c.streams.mu.Unlock()
	c.replenish()
	c.out.mu.Lock()
	waiting := c.out.backlog()
	c.out.mu.Unlock()
	if waiting > lowMark+retainedPage*1100 {
		t.Errorf("%d bytes wait", waiting)
	}
	for range 2000 { // it goes on as the client reads
		p.wantMessage()
	}
}

// A retained message that is published while those of before are on their way is
// not followed by the one it replaces.
func TestRetainedOvertaken(t *testing.T) {
	r := newRig(t, Limits{})
	r.node.retained = map[string][]kernel.Retained{"#": {kept("a", "old", "1"), kept("b", "old", "1"), kept("c", "old", "1"), kept("d", "old", "1")}}
	req := v5("c")
	req.ReceiveMaximum = 1
	p, _ := r.connect(req)
	p.subscribe(wire.Filter{Name: "#", QoS: 1})
	first := p.wantMessage()
	fresh := kept("c", "new", "1").Record
	r.member("c", "#").feed.Live(&kernel.LiveMessage{Name: "c", Record: &fresh}, 0) // waits for the window
	var got []string
	for id := first.ID; len(got) < 3; {
		p.send(ackPacket(wire.V5, id))
		m := p.wantMessage()
		got, id = append(got, string(m.Topic)+"="+string(m.Payload)), m.ID
	}
	if s := strings.Join(got, " "); strings.Contains(s, "c=old") || !strings.Contains(s, "c=new") {
		t.Errorf("got %s", s)
	}
}
