package mqtt

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// 4.6.0-2: PUBACKs in the order of the PUBLISH packets, whatever their targets.
func TestPubackOrder(t *testing.T) {
	topic := name("t")
	s := open(t, shared, v5(name("keeps")))
	s.subscribe(wire.Filter{Name: topic + "/#", QoS: 1})
	s.bye()
	for _, version := range []byte{wire.V311, wire.V5} {
		p := open(t, shared, clean(version))
		var out []byte
		for i := range uint16(3000) {
			to := topic + "/durable"
			if i%3 == 0 {
				to = topic + "nobody"
			}
			out = append(out, packet(version, 1, i+1, to, "x")...)
		}
		go func() { _, _ = p.c.Write(out) }()
		for i := range uint16(3000) {
			id, code, err := wire.ParseAck(wire.Puback, version, p.want(wire.Puback))
			must(t, err)
			want := wire.Success
			if i%3 == 0 && version == wire.V5 {
				want = wire.NoMatchingSubscribers
			}
			if id != i+1 || code != want {
				t.Fatalf("PUBACK %d 0x%02x, want %d 0x%02x", id, code, i+1, want)
			}
		}
	}
}

// 3.3.2-4, -15 to -20: properties are forwarded unaltered, user properties in
// order, to live, durable and shared subscriptions.
func TestPropertiesForwarded(t *testing.T) {
	topic := name("t")
	live := open(t, shared, clean(wire.V5))
	live.subscribe(wire.Filter{Name: topic, QoS: 1})
	durable := open(t, shared, v5(name("durable")))
	durable.subscribeID(5, wire.Filter{Name: topic, QoS: 1})
	wild := open(t, shared, v5(name("wild")))
	wild.subscribe(wire.Filter{Name: topic + "/#", QoS: 1})
	share := open(t, shared, clean(wire.V5))
	share.subscribe(wire.Filter{Name: "$share/g/" + topic, QoS: 0})
	old := open(t, shared, clean(wire.V311))
	old.subscribe(wire.Filter{Name: topic, QoS: 1})

	section := wire.AppendFlag(nil, wire.PropPayloadFormat, 1)
	section = wire.AppendText(section, wire.PropContentType, "text/x")
	section = wire.AppendText(section, wire.PropResponseTopic, "re/ply")
	section = wire.AppendText(section, wire.PropCorrelationData, "\xff\x00")
	for _, kv := range [][2]string{{"b", "1"}, {"a", "2"}, {"b", "1"}, {"content-type", "mine"}, {"message-id", "7"}, {"", ""}} {
		section = wire.AppendUser(section, kv[0], kv[1])
	}
	open(t, shared, clean(wire.V5)).publish(topic, "p", section...)
	const shown = "1:1 3:text/x 8:re/ply 9:\xff\x00 b=1 a=2 b=1 content-type=mine message-id=7 ="
	for p, want := range map[*peer]string{live: shown, durable: shown + " 11:5", wild: shown, share: shown, old: ""} {
		if m := p.wantMessages(true, "p")[0]; props(t, m) != want || string(m.Topic) != topic || m.Dup || m.Retain {
			t.Errorf("%+v\n%q", m, props(t, m))
		}
	}
}

// 3.3.2-5, -6: expired messages are not delivered; others carry what remains.
func TestMessageExpiry(t *testing.T) {
	topic := name("t")
	req := v5(name("away"))
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	p.bye()
	pub := open(t, shared, clean(wire.V5))
	begin := time.Now()
	pub.publish(topic, "short", wire.AppendFour(nil, wire.PropMessageExpiry, 1)...)
	pub.publish(topic, "long", wire.AppendFour(nil, wire.PropMessageExpiry, 100)...)
	pub.publish(topic, "ever")
	<-time.After(time.Until(begin.Add(1100 * time.Millisecond))) // the time itself is what is tested
	p = open(t, shared, req)
	ms := p.wantMessages(true, "long", "ever")
	wantRemains(t, ms[0], 100, begin)
	if got := props(t, ms[1]); got != "" {
		t.Errorf("%q", got)
	}
}

// wantRemains wants a message with nothing but the seconds that remain of its expiry
// interval, of which at least one has passed since begin.
func wantRemains(t *testing.T, m wire.Message, interval int, begin time.Time) {
	t.Helper()
	passed := int(math.Ceil(time.Since(begin).Seconds()))
	text, ok := strings.CutPrefix(props(t, m), "2:")
	if left, err := strconv.Atoi(text); !ok || err != nil || left >= interval || left < interval-passed {
		t.Errorf("%s has %q, %d s after it was published with %d s", m.Topic, text, passed, interval)
	}
}

// 3.3.2.3.4: aliases live as long as the connection and may be redefined.
func TestTopicAlias(t *testing.T) {
	a, b := name("t"), name("t")
	sub := open(t, shared, clean(wire.V5))
	sub.subscribe(wire.Filter{Name: a, QoS: 1}, wire.Filter{Name: b, QoS: 1})
	alias := wire.AppendTwo(nil, wire.PropTopicAlias, 64)
	pub := open(t, shared, clean(wire.V5))
	pub.publish(a, "1", alias...)
	pub.publish("", "2", alias...)
	pub.publish(b, "3", alias...)
	pub.publish("", "4", alias...)
	for i, m := range sub.wantMessages(true, "1", "2", "3", "4") {
		if want := []string{a, a, b, b}[i]; string(m.Topic) != want || props(t, m) != "" {
			t.Errorf("%d: %s %q", i, m.Topic, props(t, m))
		}
	}
	pub = open(t, shared, clean(wire.V5))
	pub.send(packet(wire.V5, 1, 1, "", "x", alias...))
	pub.wantEnd(wire.ProtocolError)
}

// 3.3.4-7, -10: the client's Receive Maximum.
func TestReceiveMaximum(t *testing.T) {
	topic := name("t")
	req := v5(name("three"))
	req.ReceiveMaximum = 3
	p := open(t, shared, req)
	var filters []wire.Filter
	for i := range 5 {
		filters = append(filters, wire.Filter{Name: fmt.Sprintf("%s/%d", topic, i), QoS: 1})
	}
	p.subscribe(filters...)
	pub := open(t, shared, clean(wire.V5))
	sent := map[string]bool{}
	for i := range 60 {
		s := fmt.Sprint(i)
		pub.publish(fmt.Sprintf("%s/%d", topic, i%4), s)
		sent[s] = true
	}
	for len(sent) > 0 {
		var open []wire.Message
		for range min(3, len(sent)) {
			open = append(open, p.message())
		}
		p.quiet() // not one more
		for _, m := range open {
			if !sent[string(m.Payload)] {
				t.Errorf("%s twice", m.Payload)
			}
			delete(sent, string(m.Payload))
			p.puback(m, wire.Success)
		}
	}
}

// 3.3.4-9: more than the node's Receive Maximum ends the connection. The binary
// allows too much for a test to exceed for certain.
func TestReceiveMaximumExceeded(t *testing.T) {
	n := harness.InProcess(t, mqtt.Limits{ReceiveMaximum: 1})
	keep := open(t, n, v5("keep"))
	keep.subscribe(wire.Filter{Name: "t", QoS: 1})
	over := open(t, n, clean(wire.V5))
	var out []byte
	for i := range uint16(200) {
		out = append(out, packet(wire.V5, 1, i+1, "t", "x")...)
	}
	over.send(out)
	for {
		first, body := over.next()
		if first>>4 == wire.Puback {
			continue
		}
		d, err := wire.ParseDisconnect(wire.V5, body)
		if first>>4 != wire.Disconnect || err != nil || d.Code != wire.ReceiveMaximumExceeded {
			t.Errorf("packet %d, DISCONNECT 0x%02x, %v", first>>4, d.Code, err)
		}
		break
	}
	for range 5 { // with one at a time nothing is wrong
		open(t, n, clean(wire.V5)).publish("t", "x")
	}
}

// What is not supported is refused as docs/mqtt.md says.
func TestNotSupported(t *testing.T) {
	for _, version := range []byte{wire.V311, wire.V5} {
		p := open(t, shared, clean(version))
		if got := p.subscribe(wire.Filter{Name: name("t"), QoS: 2}); !slices.Equal(got, []byte{2}) {
			t.Errorf("granted % x", got)
		}
	}
	p := open(t, shared, clean(wire.V5))
	for _, reserved := range []string{"$share/g/t", "$queue/q", "$SYS/x", "$session/c"} {
		if code := p.publish(reserved, "x"); code != wire.TopicNameInvalid {
			t.Errorf("%s: 0x%02x", reserved, code)
		}
	}
	p.send(wire.AppendAck(nil, wire.Pubrel, wire.V5, 5, wire.Success))
	if id, code, err := wire.ParseAck(wire.Pubcomp, wire.V5, p.want(wire.Pubcomp)); id != 5 || code != wire.PacketIDNotFound || err != nil {
		t.Errorf("PUBCOMP %d 0x%02x %v", id, code, err)
	}
}

// docs/properties.md, from AMQP to MQTT and back.
func TestAcrossAMQP(t *testing.T) {
	queue, topic := name("queue"), name("dev")
	_, ch := shared.DialAMQP(t)
	harness.Declare(t, ch, queue, topic+".*")
	p := open(t, shared, clean(wire.V5))
	if got := p.subscribe(wire.Filter{Name: "$queue/" + queue, QoS: 1}, wire.Filter{Name: topic + "/+", QoS: 1}); !slices.Equal(got, []byte{1, 1}) {
		t.Fatalf("% x", got)
	}
	must(t, ch.Publish("amq.topic", topic+".x", false, false, amqp091.Publishing{
		ContentType: "text/x", CorrelationId: "c", ReplyTo: "rpc", MessageId: "7", DeliveryMode: 2,
		Headers: amqp091.Table{"k": "v"}, Body: []byte("from amqp"),
	}))
	for range 2 { // through the queue, and live
		m := p.wantMessages(true, "from amqp")[0]
		got := props(t, m)
		for _, want := range []string{"3:text/x", "9:c", "reply-to=rpc", "message-id=7", "k=v"} {
			if !slices.Contains(splitWords(got), want) {
				t.Errorf("%q lacks %q", got, want)
			}
		}
		if string(m.Topic) != topic+"/x" || m.QoS != 1 {
			t.Errorf("%+v", m)
		}
	}
	p.unsubscribe("$queue/" + queue)
	section := wire.AppendUser(wire.AppendText(nil, wire.PropContentType, "text/y"), "k", "v")
	open(t, shared, clean(wire.V5)).publish(topic+"/y", "from mqtt", section...)
	deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
	must(t, err)
	d := harness.Receive(t, deliveries)
	if string(d.Body) != "from mqtt" || d.RoutingKey != topic+".y" || d.Exchange != "amq.topic" || d.ContentType != "text/y" || d.Headers["k"] != "v" {
		t.Errorf("%+v", d)
	}
}

// Messages up to the maximum packet size pass, live and through the log, among
// small ones and in order.
func TestLargeMessages(t *testing.T) {
	topic := name("t")
	live, durable := open(t, shared, clean(wire.V5)), open(t, shared, v5(name("c")))
	for _, p := range []*peer{live, durable} {
		p.subscribe(wire.Filter{Name: topic, QoS: 1})
	}
	pub := open(t, shared, clean(wire.V5))
	for i, size := range []int{10, 1 << 20, 10, 8 << 20, 10} {
		payload := strings.Repeat(fmt.Sprint(i), size)
		if code := pub.publish(topic, payload); code != 0 {
			t.Fatalf("PUBACK 0x%02x for %d bytes", code, size)
		}
		for _, p := range []*peer{live, durable} {
			if m := p.message(); string(m.Payload) != payload {
				t.Fatalf("got %d bytes, want %d", len(m.Payload), size)
			} else {
				p.puback(m, wire.Success)
			}
		}
	}
	pub.send(packet(wire.V5, 1, 1, topic, strings.Repeat("x", 16<<20))[:1<<10])
	pub.wantEnd(wire.PacketTooLarge)
}
