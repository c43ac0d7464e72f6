package faults

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// versions are the protocol levels that each row is tried in.
var versions = []byte{wire.V311, wire.V5}

// device is an MQTT client that can send anything.
type device struct {
	t       testing.TB
	c       net.Conn
	rd      *wire.Reader
	version byte
}

func (s *stand) device(version byte) *device {
	s.t.Helper()
	c, err := net.DialTimeout("tcp", s.MQTT, harness.Patience)
	must(s.t, err)
	s.t.Cleanup(func() { _ = c.Close() })
	must(s.t, c.SetDeadline(time.Now().Add(6*harness.Patience)))
	return &device{t: s.t, c: c, rd: wire.NewReader(c, 32<<20), version: version}
}

// connected is a device with a session of its own.
func (s *stand) connected(req wire.ConnectRequest) *device {
	s.t.Helper()
	d := s.device(req.Version)
	d.send(req.Append(nil))
	a, err := wire.ParseConnack(req.Version, d.want(wire.Connack))
	must(s.t, err)
	if a.Code != wire.Success {
		s.t.Fatalf("CONNACK 0x%02x %s", a.Code, a.Reason)
	}
	return d
}

func fresh(version byte) wire.ConnectRequest {
	return wire.ConnectRequest{Version: version, ClientID: harness.Name("device"), Clean: true}
}

func (d *device) send(b []byte) {
	d.t.Helper()
	if _, err := d.c.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

// next returns the next packet; first is 0 at the end of the connection.
func (d *device) next() (first byte, body []byte) {
	d.t.Helper()
	for {
		first, body, ok, err := d.rd.Take()
		must(d.t, err)
		if ok {
			return first, slices.Clone(body)
		}
		if _, err := d.rd.Fill(); err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				d.t.Fatal("nothing came")
			}
			return 0, nil
		}
	}
}

func (d *device) want(packet byte) []byte {
	d.t.Helper()
	first, body := d.next()
	if first>>4 != packet {
		d.t.Fatalf("got packet %d (% x), want %d", first>>4, body, packet)
	}
	return body
}

// ended wants the end of the connection, in version 5 after a DISCONNECT.
func (d *device) ended(code wire.Code) {
	d.t.Helper()
	if d.version == wire.V5 {
		got, err := wire.ParseDisconnect(wire.V5, d.want(wire.Disconnect))
		if err != nil || got.Code != code {
			d.t.Errorf("DISCONNECT 0x%02x (%s) %v, want 0x%02x", got.Code, got.Reason, err, code)
		}
	}
	if first, body := d.next(); first != 0 {
		d.t.Errorf("got packet %d (% x), want the end", first>>4, body)
	}
}

func (d *device) subscribe(filters ...wire.Filter) {
	d.t.Helper()
	d.send((&wire.SubscribeRequest{ID: 1, Filters: filters}).Append(nil, d.version))
	d.want(wire.Suback)
}

// malformed is what a device sends, for one version or for both, and the reason
// it is disconnected with.
type malformed struct {
	name string
	only byte
	send func(version byte) []byte
	code wire.Code
}

// ends sends each on a connection of its own, followed by a good publish that must
// not be read any more.
func (s *stand) ends(cases ...malformed) {
	s.t.Helper()
	watch := s.connected(fresh(wire.V5))
	watch.subscribe(wire.Filter{Name: "#", QoS: 0})
	for _, c := range cases {
		for _, version := range versions {
			if c.only != 0 && c.only != version {
				continue
			}
			s.t.Run(fmt.Sprintf("%s/%d", c.name, version), func(t *testing.T) {
				d := s.connected(fresh(version))
				d.t = t
				go func() { _, _ = d.c.Write(append(c.send(version), packet(version, 0, 0, "after", "x")...)) }() // may be cut off half way
				d.ended(c.code)
			})
		}
	}
	watch.send(wire.AppendPingreq(nil))
	watch.want(wire.Pingresp) // and no message
}

// packet makes a PUBLISH; properties are encoded ones.
func packet(version, qos byte, id uint16, topic, payload string, properties ...byte) []byte {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(len(topic))), topic...)
	if qos > 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	if version == wire.V5 {
		b = append(wire.AppendVarint(b, len(properties)), properties...)
	}
	b = append(b, payload...)
	return append(wire.AppendVarint([]byte{0x30 | qos<<1}, len(b)), b...)
}

func fixed(b ...byte) func(byte) []byte { return func(byte) []byte { return b } }

func topic(name string) func(byte) []byte {
	return func(v byte) []byte { return packet(v, 0, 0, name, "x") }
}

// TestRow30Lengths: lengths that cannot be, that are not minimal, and that are
// larger than may be, before and after CONNECT.
func TestRow30Lengths(t *testing.T) {
	s := newStand(t, 64<<20)
	s.ends(
		malformed{"five bytes", 0, fixed(0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1), wire.MalformedPacket},
		malformed{"five bytes with the highest bit", 0, fixed(0x30, 0x80, 0x80, 0x80, 0x80, 0x80), wire.MalformedPacket},
		malformed{"not minimal", 0, fixed(0x30, 0x80, 0), wire.MalformedPacket},
		malformed{"not minimal in three bytes", 0, fixed(0x30, 0x87, 0x80, 0), wire.MalformedPacket},
		malformed{"256 MiB", 0, fixed(0x30, 0xFF, 0xFF, 0xFF, 0x7F), wire.PacketTooLarge},
		malformed{"one byte more than 16 MiB", 0, func(byte) []byte { return wire.AppendVarint([]byte{0x30}, 16<<20) }, wire.PacketTooLarge},
	)
	for _, length := range []int{64 << 10, 1 << 20, 256<<20 - 1} { // of CONNECT: with its header more than 64 KiB
		d := s.device(0)
		d.send(wire.AppendVarint([]byte{0x10}, length))
		if first, body := d.next(); first != 0 {
			t.Errorf("CONNECT of %d bytes: packet %d % x", length, first>>4, body)
		}
	}
	for range 200 { // announced, and silent
		s.device(0).send(wire.AppendVarint([]byte{0x10}, 60_000))
		s.connected(fresh(wire.V5)).send(wire.AppendVarint([]byte{0x32}, 16<<20-10))
	}
}

// TestRow31Publish: PUBLISH packets that mean nothing.
func TestRow31Publish(t *testing.T) {
	s := newStand(t, 32<<20)
	flags := func(set byte, qos byte, id uint16) func(byte) []byte {
		return func(v byte) []byte { b := packet(v, qos, id, "t", "x"); b[0] |= set; return b }
	}
	s.ends(
		malformed{"QoS 3", 0, flags(6, 1, 1), wire.MalformedPacket},
		malformed{"DUP with QoS 0", 0, flags(8, 0, 0), wire.MalformedPacket},
		malformed{"packet id 0", 0, flags(0, 1, 0), wire.ProtocolError},
		malformed{"packet id 0 with QoS 2", 0, flags(0, 2, 0), wire.ProtocolError},
		malformed{"no packet id", 0, fixed(0x32, 3, 0, 1, 't'), wire.MalformedPacket},
		malformed{"half a packet id", 0, fixed(0x34, 4, 0, 1, 't', 0), wire.MalformedPacket},
		malformed{"topic past the end", 0, fixed(0x30, 3, 0xff, 0xff, 't'), wire.MalformedPacket},
		malformed{"no topic", 0, fixed(0x30, 1, 0), wire.MalformedPacket},
		malformed{"nothing", 0, fixed(0x30, 0), wire.MalformedPacket},
		malformed{"empty topic without alias", wire.V5, topic(""), wire.ProtocolError},
		malformed{"empty topic", wire.V311, topic(""), wire.MalformedPacket},
		malformed{"wildcard +", 0, topic("a/+/b"), wire.TopicNameInvalid},
		malformed{"wildcard #", 0, topic("#"), wire.TopicNameInvalid},
		malformed{"NUL in the topic", 0, topic("a\x00b"), wire.MalformedPacket},
		malformed{"surrogate in the topic", 0, topic("a\xed\xa0\x80"), wire.MalformedPacket},
		malformed{"topic not UTF-8", 0, topic("a\xff"), wire.MalformedPacket},
		malformed{"overlong UTF-8", 0, topic("a\xc0\xaf"), wire.MalformedPacket},
	)
}

// TestRow32Subscribe: SUBSCRIBE and UNSUBSCRIBE packets that mean nothing, or too
// much.
func TestRow32Subscribe(t *testing.T) {
	s := newStand(t, 64<<20)
	to := func(filters ...wire.Filter) func(byte) []byte {
		return func(v byte) []byte { return (&wire.SubscribeRequest{ID: 1, Filters: filters}).Append(nil, v) }
	}
	var bad []malformed
	for _, f := range []string{"", "a#", "a/#/b", "#a", "a+", "+a/b", "a/b+/c", "$share//x", "$share/g", "$share/g/", "$share/+/x", "$share/g#/x", "$share/g/a#"} {
		bad = append(bad, malformed{"filter " + strings.ReplaceAll(f, "/", "."), 0, to(wire.Filter{Name: f, QoS: 1}), wire.TopicFilterInvalid})
	}
	s.ends(append(bad,
		malformed{"no filter", wire.V311, fixed(0x82, 2, 0, 1), wire.ProtocolError},
		malformed{"no filter", wire.V5, fixed(0x82, 3, 0, 1, 0), wire.ProtocolError},
		malformed{"nothing to unsubscribe", wire.V5, fixed(0xA2, 3, 0, 1, 0), wire.ProtocolError},
		malformed{"reserved bits", 0, fixed(0x80, 2, 0, 1), wire.MalformedPacket},
		malformed{"reserved bits of UNSUBSCRIBE", 0, fixed(0xA0, 2, 0, 1), wire.MalformedPacket},
		malformed{"reserved bits of PUBREL", 0, fixed(0x60, 2, 0, 1), wire.MalformedPacket},
		malformed{"packet id 0", wire.V5, fixed(0x82, 7, 0, 0, 0, 0, 1, 'a', 1), wire.ProtocolError},
		malformed{"reserved options", wire.V5, fixed(0x82, 7, 0, 1, 0, 0, 1, 'a', 0x41), wire.MalformedPacket},
		malformed{"retain handling 3", wire.V5, fixed(0x82, 7, 0, 1, 0, 0, 1, 'a', 0x31), wire.ProtocolError},
		malformed{"NUL in a filter", 0, to(wire.Filter{Name: "a\x00", QoS: 1}), wire.MalformedPacket},
		malformed{"No Local on a share", wire.V5, to(wire.Filter{Name: "$share/g/x", Options: wire.OptionNoLocal}), wire.ProtocolError},
		malformed{"100,000 filters", 0, to(slices.Repeat([]wire.Filter{{Name: "a"}}, 100_000)...), wire.QuotaExceeded},
		malformed{"2,000,000 filters", wire.V311, to(slices.Repeat([]wire.Filter{{Name: "a"}}, 2_000_000)...), wire.QuotaExceeded},
	)...)
}

// TestRow33Properties: properties that do not belong there, twice, and by the million.
func TestRow33Properties(t *testing.T) {
	s := newStand(t, 96<<20)
	with := func(properties ...byte) func(byte) []byte {
		return func(v byte) []byte { return packet(v, 0, 0, "t", "x", properties...) }
	}
	million := bytes.Repeat([]byte{0x26, 0, 1, 'k', 0, 1, 'v'}, 1_000_000)
	s.ends(
		malformed{"twice", wire.V5, with(1, 1, 1, 1), wire.ProtocolError},
		malformed{"of another packet", wire.V5, with(0x21, 0, 1), wire.ProtocolError},
		malformed{"unknown", wire.V5, with(0x7F, 0, 1), wire.MalformedPacket},
		malformed{"past the end", wire.V5, with(0x26, 0, 1, 'k', 0, 9, 'v'), wire.MalformedPacket},
		malformed{"length past the end", wire.V5, fixed(0x30, 4, 0, 1, 't', 9), wire.MalformedPacket},
		malformed{"alias 0", wire.V5, with(0x23, 0, 0), wire.TopicAliasInvalid},
		malformed{"alias above the maximum", wire.V5, with(0x23, 0xff, 0xff), wire.TopicAliasInvalid},
		malformed{"subscription identifier", wire.V5, with(0x0B, 1), wire.ProtocolError},
		malformed{"payload format 2", wire.V5, with(1, 2), wire.ProtocolError},
		malformed{"a million user properties", wire.V5, with(million...), wire.PacketTooLarge},
		malformed{"a million in SUBSCRIBE", wire.V5, func(v byte) []byte {
			b := wire.AppendVarint([]byte{0, 1}, len(million))
			b = append(append(b, million...), 0, 1, 'a', 0)
			return append(wire.AppendVarint([]byte{0x82}, len(b)), b...)
		}, wire.PacketTooLarge},
	)
	connect := func(properties ...byte) []byte {
		b := append([]byte{0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 60}, wire.AppendVarint(nil, len(properties))...)
		b = append(append(b, properties...), 0, 1, 'a')
		return append(wire.AppendVarint([]byte{0x10}, len(b)), b...)
	}
	for name, c := range map[string]struct {
		send []byte
		code byte
	}{
		"receive maximum 0":      {connect(0x21, 0, 0), 0x82},
		"receive maximum twice":  {connect(0x21, 0, 1, 0x21, 0, 1), 0x82},
		"of PUBLISH":             {connect(0x23, 0, 1), 0x82},
		"many user properties":   {connect(bytes.Repeat([]byte{0x26, 0, 0, 0, 0}, 5000)...), 0x95},
		"maximum packet size 0":  {connect(0x27, 0, 0, 0, 0), 0x82},
		"problem information 2":  {connect(0x17, 2), 0x82},
		"authentication, no way": {connect(0x15, 0, 1, 'x'), 0x8C},
	} {
		d := s.device(wire.V5)
		d.send(c.send)
		if body := d.want(wire.Connack); body[1] != c.code {
			t.Errorf("%s: CONNACK 0x%02x, want 0x%02x", name, body[1], c.code)
		}
		if first, _ := d.next(); first != 0 {
			t.Errorf("%s: not closed", name)
		}
	}
}

// TestRow34ReceiveMaximum: more QoS 2 flows than agreed end the connection; what
// was acknowledged before is there.
func TestRow34ReceiveMaximum(t *testing.T) {
	s := newStand(t, 64<<20)
	d := s.device(wire.V5)
	req := fresh(wire.V5)
	d.send(req.Append(nil))
	a, err := wire.ParseConnack(wire.V5, d.want(wire.Connack))
	must(t, err)
	watch := s.connected(wire.ConnectRequest{Version: wire.V5, ClientID: "watch", SessionExpiry: 60})
	watch.subscribe(wire.Filter{Name: "flows", QoS: 1})
	flows := int(a.ReceiveMaximum)
	const step = 128
	for first := 0; first < flows; first += step { // a flow that was not released counts
		var all []byte
		for id := first; id < min(first+step, flows); id++ {
			all = append(all, packet(wire.V5, 2, uint16(id+1), "flows", fmt.Sprint(id))...)
		}
		d.send(all)
		for id := first; id < min(first+step, flows); id++ {
			if n, code, err := wire.ParseAck(wire.Pubrec, wire.V5, d.want(wire.Pubrec)); err != nil || int(n) != id+1 || code >= wire.UnspecifiedError {
				t.Fatalf("PUBREC %d 0x%02x %v", n, code, err)
			}
			watch.message(fmt.Sprint(id))
		}
	}
	d.send(packet(wire.V5, 2, uint16(flows+1), "flows", "one more"))
	d.ended(wire.ReceiveMaximumExceeded)
	// The last one was not taken, and nothing was lost.
	watch.send(wire.AppendPingreq(nil))
	watch.want(wire.Pingresp)
}

// message wants a message of QoS 1 and acknowledges it.
func (d *device) message(payload string) {
	d.t.Helper()
	first, body := d.next()
	var m wire.Message
	if err := m.Parse(d.version, first, body); err != nil || string(m.Payload) != payload {
		d.t.Fatalf("packet 0x%02x %q, %v; want %q", first, m.Payload, err, payload)
	}
	d.send(wire.AppendAck(nil, wire.Puback, d.version, m.ID, wire.Success))
}

// TestTextIsKept: a byte order mark is a character like others (1.5.4-3), names are
// not normalised (4.7.3-4), and lengths inside a packet are minimal, too (1.5.5-1).
func TestTextIsKept(t *testing.T) {
	s := newStand(t, 32<<20)
	names := []string{"\ufeffbom", "a\ufeff/b", "/a", "a", "a//b", "\u00c5", "A\u030a"}
	d := s.connected(fresh(wire.V5))
	d.subscribe(wire.Filter{Name: "#", QoS: 0})
	pub := s.connected(fresh(wire.V5))
	for _, name := range names {
		pub.send(packet(wire.V5, 0, 0, name, "x"))
		first, body := d.next()
		var m wire.Message
		if err := m.Parse(wire.V5, first, body); err != nil || string(m.Topic) != name {
			t.Errorf("%q came as %q, %v", name, m.Topic, err)
		}
	}
	pub.send([]byte{0x30, 6, 0, 1, 't', 0x80, 0, 'x'}) // a length of properties in two bytes
	pub.ended(wire.MalformedPacket)
}
