package mqtt

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// peer is a client that speaks packets, so that tests decide about each one.
type peer struct {
	t       testing.TB
	c       net.Conn
	rd      *wire.Reader
	version byte
}

func dial(t testing.TB, at harness.Addresses) *peer {
	t.Helper()
	c, err := net.Dial("tcp", at.MQTT)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, c: c, rd: wire.NewReader(c, 32<<20)}
}

// connect connects and returns the CONNACK, which may be a refusal.
func connect(t testing.TB, at harness.Addresses, req wire.ConnectRequest) (*peer, *wire.ConnectAnswer) {
	t.Helper()
	p := dial(t, at)
	p.version = req.Version
	p.send(req.Append(nil))
	a, err := wire.ParseConnack(req.Version, p.want(wire.Connack))
	must(t, err)
	return p, a
}

func v5(id string) wire.ConnectRequest {
	return wire.ConnectRequest{Version: wire.V5, ClientID: id, SessionExpiry: 600}
}

func clean(version byte) wire.ConnectRequest {
	return wire.ConnectRequest{Version: version, ClientID: name("client"), Clean: true}
}

// open is connect that must succeed.
func open(t testing.TB, at harness.Addresses, req wire.ConnectRequest) *peer {
	t.Helper()
	p, a := connect(t, at, req)
	if a.Code != wire.Success {
		t.Fatalf("CONNACK 0x%02x %s", a.Code, a.Reason)
	}
	return p
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	_ = p.c.SetWriteDeadline(time.Now().Add(harness.Patience))
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// next returns the next packet; first is 0 at the end of the connection.
func (p *peer) next() (first byte, body []byte) {
	p.t.Helper()
	_ = p.c.SetReadDeadline(time.Now().Add(harness.Patience))
	for {
		first, body, ok, err := p.rd.Take()
		must(p.t, err)
		if ok {
			return first, slices.Clone(body)
		}
		if _, err := p.rd.Fill(); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				p.t.Fatal("nothing came")
			}
			return 0, nil
		}
	}
}

func (p *peer) want(pt byte) []byte {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != pt {
		p.t.Fatalf("got packet %d (% x), want %d", first>>4, body, pt)
	}
	return body
}

// wantEnd wants the end of the connection, in version 5 with a DISCONNECT.
func (p *peer) wantEnd(code wire.Code) {
	p.t.Helper()
	if p.version == wire.V5 && code != 0 {
		d, err := wire.ParseDisconnect(wire.V5, p.want(wire.Disconnect))
		if err != nil || d.Code != code {
			p.t.Fatalf("DISCONNECT 0x%02x (%s) %v, want 0x%02x", d.Code, d.Reason, err, code)
		}
	}
	if first, body := p.next(); first != 0 {
		p.t.Fatalf("got packet %d (% x), want the end", first>>4, body)
	}
}

// quiet wants nothing but the answer to a ping to come.
func (p *peer) quiet() {
	p.t.Helper()
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
}

func (p *peer) subscribe(filters ...wire.Filter) []byte {
	p.t.Helper()
	return p.subscribeID(0, filters...)
}

func (p *peer) subscribeID(id uint32, filters ...wire.Filter) []byte {
	p.t.Helper()
	p.send((&wire.SubscribeRequest{ID: 7, Identifier: id, Filters: filters}).Append(nil, p.version))
	_, codes, err := wire.ParseSuback(wire.Suback, p.version, p.want(wire.Suback))
	must(p.t, err)
	return codes
}

func (p *peer) unsubscribe(filters ...string) []byte {
	p.t.Helper()
	p.send((&wire.UnsubscribeRequest{ID: 8, Filters: filters}).Append(nil, p.version))
	_, codes, err := wire.ParseSuback(wire.Unsuback, p.version, p.want(wire.Unsuback))
	must(p.t, err)
	return codes
}

// publish publishes with QoS 1 and returns the code of the PUBACK.
func (p *peer) publish(topic, payload string, props ...byte) wire.Code {
	p.t.Helper()
	p.send(packet(p.version, 1, 99, topic, payload, props...))
	id, code, err := wire.ParseAck(wire.Puback, p.version, p.want(wire.Puback))
	must(p.t, err)
	if id != 99 {
		p.t.Fatalf("PUBACK of %d", id)
	}
	return code
}

func packet(version, qos byte, id uint16, topic, payload string, props ...byte) []byte {
	f := wire.Frame{Version: version, QoS: qos, ID: id, Topic: []byte(topic), Payload: []byte(payload), Properties: props}
	b, _, _ := f.Append(nil)
	return b
}

// message returns the next packet, which must be PUBLISH.
func (p *peer) message() wire.Message {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != wire.Publish {
		p.t.Fatalf("got packet %d (% x), want PUBLISH", first>>4, body)
	}
	var m wire.Message
	must(p.t, m.Parse(p.version, first, body))
	return m
}

// wantMessages wants messages with these payloads in this order and returns
// them, acknowledged if ack is set.
func (p *peer) wantMessages(ack bool, payloads ...string) (out []wire.Message) {
	p.t.Helper()
	for _, want := range payloads {
		m := p.message()
		if string(m.Payload) != want {
			p.t.Fatalf("got %q, want %q", m.Payload, want)
		}
		if ack && m.QoS > 0 {
			p.puback(m, wire.Success)
		}
		out = append(out, m)
	}
	return out
}

func (p *peer) puback(m wire.Message, code wire.Code) {
	p.t.Helper()
	p.send(wire.AppendAck(nil, wire.Puback, p.version, m.ID, code))
}

// bye disconnects normally.
func (p *peer) bye() {
	p.t.Helper()
	p.send(wire.AppendDisconnect(nil, p.version, wire.Success, ""))
	p.wantEnd(0)
}

// props renders the properties of a message.
func props(t testing.TB, m wire.Message) string {
	t.Helper()
	var out []string
	for p := &m.Properties; p.Next(); {
		switch p.ID {
		case wire.PropUser:
			out = append(out, fmt.Sprintf("%s=%s", p.Data, p.Val))
		case wire.PropContentType, wire.PropResponseTopic, wire.PropCorrelationData:
			out = append(out, fmt.Sprintf("%d:%s", p.ID, p.Data))
		default:
			out = append(out, fmt.Sprintf("%d:%d", p.ID, p.Num))
		}
	}
	must(t, m.Properties.Err())
	return strings.Join(out, " ")
}

func series(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}
