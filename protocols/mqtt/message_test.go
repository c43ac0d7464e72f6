package mqtt

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
	"github.com/trivium-mq/trivium/storage/record"
)

// viewOf stores r and returns it as a consumer sees it.
func viewOf(t testing.TB, r kernel.Record) *kernel.View {
	t.Helper()
	var b record.Builder
	b.SetAttributes(record.AttrOwn)
	b.Append(&r)
	var it record.Iter
	if err := it.Reset(b.Finish(nil), nil); err != nil || !it.Next() {
		t.Fatal(err)
	}
	return it.View()
}

// shown renders what a subscriber gets of a message: topic, QoS and properties.
func shown(t testing.TB, m *message) string {
	t.Helper()
	fr := wire.Frame{Version: wire.V5, QoS: m.qos, ID: 1, Topic: m.topic, Properties: m.props, Payload: m.payload}
	b, _, _ := fr.Append(nil)
	first, body := packetOf(t, b)
	var got wire.Message
	if err := got.Parse(wire.V5, first, body); err != nil {
		t.Fatalf("parse: %v", err)
	}
	out := []string{fmt.Sprintf("%s q%d", got.Topic, got.QoS)}
	p := &got.Properties
	for p.Next() {
		switch p.ID {
		case wire.PropUser:
			out = append(out, fmt.Sprintf("%s=%s", p.Data, p.Val))
		case wire.PropPayloadFormat:
			out = append(out, fmt.Sprintf("pfi:%d", p.Num))
		case wire.PropMessageExpiry:
			out = append(out, "expiry")
		case wire.PropContentType:
			out = append(out, "type:"+string(p.Data))
		case wire.PropResponseTopic:
			out = append(out, "response:"+string(p.Data))
		case wire.PropCorrelationData:
			out = append(out, fmt.Sprintf("corr:%x", p.Data))
		}
	}
	if p.Err() != nil {
		t.Fatalf("properties: %v", p.Err())
	}
	return strings.Join(out, " ")
}

// packetOf cuts one packet out of its bytes.
func packetOf(t testing.TB, b []byte) (first byte, body []byte) {
	t.Helper()
	rd := wire.NewReader(bytes.NewReader(b), 1<<20)
	for {
		first, body, ok, err := rd.Take()
		if err == nil && !ok {
			_, err = rd.Fill()
		}
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return first, body
		}
	}
}

// The table of docs/properties.md, seen from a subscriber.
func TestRecordToMessage(t *testing.T) {
	cases := []struct {
		name    string
		key     string
		headers []string
		topic   string // the topic it is read from
		want    string
	}{
		{"MQTT", "a/b", []string{"mq.qos", "1"}, "a/b", "a/b q1"},
		{"MQTT QoS 0", "a/b", []string{"mq.qos", "0"}, "a/#", "a/b q0"},
		{"AMQP topic exchange", "a.b.c", []string{"mq.exchange", "amq.topic"}, "q", "a/b/c q1"},
		{"AMQP default exchange", "my.queue", []string{"mq.exchange", ""}, "my.queue", "my.queue q1"},
		{"AMQP not persistent", "k", []string{"mq.exchange", "x", "mq.qos", "0"}, "q", "k q0"},
		{"AMQP delivery mode not set", "k", []string{"mq.exchange", "x", "mq.qos", ""}, "q", "k q1"},
		{"AMQP fanout without key", "", []string{"mq.exchange", "fan"}, "orders", "orders q1"},
		{"AMQP key with wildcards", "a.*.#", []string{"mq.exchange", "amq.topic"}, "q", "a/*/* q1"},
		{"Kafka with key", "user-7", nil, "orders", "orders q1 x-kafka-key=user-7"},
		{"Kafka with binary key", "\xff\xfe", nil, "orders", "orders q1"},
		{"key beside the address", "user-7", []string{"mq.qos", "1", "mq.rk", "a/b"}, "a/b", "a/b q1 x-kafka-key=user-7"},
		{"properties", "t", []string{"mq.qos", "1", "mq.utf8", "1", "content-type", "text/plain", "correlation-id", "\x01\x02",
			"x-reply-to-topic", "re/ply", "mq.expires-at", "99999999999999"}, "t",
			"t q1 pfi:1 type:text/plain corr:0102 response:re/ply expiry"},
		{"user properties in order", "t", []string{"mq.qos", "1", "b", "2", "a", "1", "b", "3", "priority", "4"}, "t",
			"t q1 b=2 a=1 b=3 priority=4"},
		{"AMQP properties", "t", []string{"mq.exchange", "", "content-encoding", "gzip", "reply-to", "rpc", "message-id", "7",
			"timestamp", "123", "type", "x", "app-id", "y"}, "t",
			"t q1 content-encoding=gzip reply-to=rpc message-id=7 timestamp=123 type=x app-id=y"},
		{"escaped names", "t", []string{"mq.qos", "1", "mq.user.content-type", "mine"}, "t", "t q1 content-type=mine"},
		{"hidden", "t", []string{"mq.qos", "1", "mq.amqp", "table", "mq.future", "x", "mq.origin", "c"}, "t", "t q1"},
		{"not text", "t", []string{"bin", "\xff", "ok", "1"}, "t", "t q1 ok=1 x-kafka-key=t"},
		{"single property twice", "t", []string{"mq.qos", "1", "content-type", "a", "content-type", "b"}, "t", "t q1 type:a content-type=b"},
		{"response topic with wildcard", "t", []string{"mq.qos", "1", "x-reply-to-topic", "a/#"}, "t", "t q1 x-reply-to-topic=a/#"},
		{"expiry that is no number", "t", []string{"mq.qos", "1", "mq.expires-at", "soon"}, "t", "t q1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := rec(c.key, "p", c.headers...)
			var m message
			m.fromView(viewOf(t, r), c.topic, true)
			if got := shown(t, &m); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			m.fromView(viewOf(t, r), c.topic, false)
			if len(m.props) != 0 || !strings.HasPrefix(c.want, fmt.Sprintf("%s q%d", m.topic, m.qos)) {
				t.Errorf("3.1.1: %s %d %q", m.topic, m.qos, m.props)
			}
		})
	}
	null := viewOf(t, kernel.Record{Key: []byte("t"), Headers: []kernel.Header{{Key: "n"}}})
	var m message
	m.fromView(null, "t", true)
	if got := shown(t, &m); got != "t q1 n= x-kafka-key=t" || len(m.payload) != 0 {
		t.Errorf("null values: %q", got)
	}
}

// What a publisher says is stored as docs/properties.md has it, and comes back
// to a subscriber as it was.
func TestMessageToRecord(t *testing.T) {
	user := func(kv ...string) (p []byte) {
		for i := 0; i < len(kv); i += 2 {
			p = wire.AppendUser(p, kv[i], kv[i+1])
		}
		return p
	}
	cases := []struct {
		name   string
		props  []byte
		stored string
		shown  string
	}{
		{"none", nil, "key=t mq.qos=1", "t q1"},
		{"all", slices.Concat(wire.AppendFlag(nil, 1, 1), wire.AppendText(nil, wire.PropContentType, "json"),
			wire.AppendText(nil, wire.PropResponseTopic, "r/t"), wire.AppendText(nil, wire.PropCorrelationData, "\x00\xff"),
			wire.AppendFour(nil, wire.PropMessageExpiry, 60)),
			"key=t mq.qos=1 mq.utf8=1 content-type=json x-reply-to-topic=r/t correlation-id=\x00\xff mq.expires-at=1700000060000",
			"t q1 pfi:1 type:json response:r/t corr:00ff expiry"},
		{"order and duplicates", user("b", "1", "a", "2", "b", "1"), "key=t mq.qos=1 b=1 a=2 b=1", "t q1 b=1 a=2 b=1"},
		{"reserved names", user("mq.qos", "0", "mq.x", "1", "content-type", "mine", "correlation-id", "c"),
			"key=t mq.qos=1 mq.user.mq.qos=0 mq.user.mq.x=1 mq.user.content-type=mine mq.user.correlation-id=c",
			"t q1 mq.qos=0 mq.x=1 content-type=mine correlation-id=c"},
		{"names within the prefix", user("mq.", "a", "mq.user.b", "c", "mq.user.mq.user.d", "e"),
			"key=t mq.qos=1 mq.user.mq.=a mq.user.mq.user.b=c mq.user.mq.user.mq.user.d=e",
			"t q1 mq.=a mq.user.b=c mq.user.mq.user.d=e"},
		{"AMQP names", user("message-id", "7", "reply-to", "q"), "key=t mq.qos=1 message-id=7 reply-to=q", "t q1 message-id=7 reply-to=q"},
		{"record key", user("x-kafka-key", "k7"), "key=k7 mq.qos=1 mq.rk=t", "t q1 x-kafka-key=k7"},
		{"record keys in order", user("a", "1", "x-kafka-key", "K", "b", "2", "x-kafka-key", "L", "x-kafka-key", "K", "c", "3"),
			"key=K mq.qos=1 a=1 mq.rk=t b=2 mq.user.x-kafka-key=L mq.user.x-kafka-key=K c=3",
			"t q1 a=1 x-kafka-key=K b=2 x-kafka-key=L x-kafka-key=K c=3"},
		{"empty record key", user("x-kafka-key", "", "x-kafka-key", "k"), "key= mq.qos=1 mq.rk=t mq.user.x-kafka-key=k",
			"t q1 x-kafka-key= x-kafka-key=k"},
		{"own user id", user("user-id", "alice"), "key=t mq.qos=1 user-id=alice", "t q1 user-id=alice"},
		{"foreign user id", user("user-id", "bob"), "key=t mq.qos=1 mq.user.user-id=bob", "t q1 user-id=bob"},
		{"empty value", user("k", ""), "key=t mq.qos=1 k=", "t q1 k="},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			pkt := publishPacket(wire.V5, 1, 1, "t", "x", c.props...)
			var m wire.Message
			first, body := packetOf(t, pkt)
			if err := m.Parse(wire.V5, first, body); err != nil {
				t.Fatal(err)
			}
			in := inbound{now: 1_700_000_000_000}
			in.begin(m.Payload, m.QoS)
			if err := in.properties(&m.Properties, "alice"); err != nil {
				t.Fatal(err)
			}
			in.finish(string(m.Topic))
			stored := []string{"key=" + string(in.rec.Key)}
			for _, h := range in.rec.Headers {
				stored = append(stored, h.Key+"="+string(h.Value))
			}
			if got := strings.Join(stored, " "); got != c.stored {
				t.Errorf("stored %q\nwant   %q", got, c.stored)
			}
			var out message
			out.fromView(viewOf(t, in.rec), "t", true)
			if got := shown(t, &out); got != c.shown {
				t.Errorf("shown %q\nwant  %q", got, c.shown)
			}
			out.fromRecord(&in.rec, "t", true)
			if got := shown(t, &out); got != c.shown {
				t.Errorf("live  %q\nwant  %q", got, c.shown)
			}
		})
	}
}
