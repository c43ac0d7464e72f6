package amqp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/storage/record"
)

// stored writes a record and reads it back as a consumer would see it.
func stored(t testing.TB, r *kernel.Record) *kernel.View {
	t.Helper()
	var b record.Builder
	b.Reset()
	b.SetAttributes(record.AttrOwn)
	b.Append(r)
	it := new(record.Iter)
	if err := it.Reset(b.Finish(nil), nil); err != nil || !it.Next() {
		t.Fatal(err, it.Err())
	}
	return it.View()
}

// shown says what a client sees of a record in one line.
func shown(t testing.TB, r *kernel.Record) string {
	t.Helper()
	var e encoder
	e.read(stored(t, r), "the-topic")
	var s strings.Builder
	fmt.Fprintf(&s, "exchange=%q key=%q", e.exchange, e.key)
	p := &e.props
	if p.Has(wire.HasDeliveryMode) {
		fmt.Fprintf(&s, " mode=%d", p.DeliveryMode)
	}
	if p.Has(wire.HasPriority) {
		fmt.Fprintf(&s, " priority=%d", p.Priority)
	}
	if p.Has(wire.HasTimestamp) {
		fmt.Fprintf(&s, " timestamp=%d", p.Timestamp)
	}
	for i := range textProperties {
		if x := &textProperties[i]; p.Has(x.flag) {
			fmt.Fprintf(&s, " %s=%q", x.name, *x.of(p))
		}
	}
	if p.Has(wire.HasHeaders) {
		table, err := wire.ReadTable(p.Headers)
		must(t, err)
		for _, f := range table {
			fmt.Fprintf(&s, " [%s=%#v]", f.Name, f.Value)
		}
	}
	return s.String()
}

func headers(pairs ...string) []kernel.Header {
	var hs []kernel.Header
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, kernel.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

// The AMQP column of docs/properties.md, for records of all origins.
func TestShownRecords(t *testing.T) {
	value := []byte("v")
	for _, tc := range []struct {
		name string
		rec  kernel.Record
		want string
	}{
		{"log producer", kernel.Record{Key: []byte("k"), Value: value, Headers: headers("a", "b")},
			`exchange="" key="the-topic" mode=2 [a="b"] [x-kafka-key="k"]`},
		{"log producer, no key", kernel.Record{Value: value}, `exchange="" key="the-topic" mode=2`},
		{"log producer, binary", kernel.Record{Key: []byte{0xff}, Value: value, Headers: []kernel.Header{{Key: "b", Value: []byte{0xfe}}, {Key: "null"}}},
			`exchange="" key="the-topic" mode=2 [b=[]byte{0xfe}] [null=<nil>] [x-kafka-key=[]byte{0xff}]`},
		{"tombstone", kernel.Record{Key: []byte("k")}, `exchange="" key="the-topic" mode=2 [x-kafka-key="k"] [x-tombstone=true]`},
		{"topic publisher", kernel.Record{Key: []byte("a/b/c"), Value: value, Headers: headers(kernel.HeaderQoS, "1")},
			`exchange="amq.topic" key="a.b.c" mode=2`},
		{"topic publisher, QoS 0, everything", kernel.Record{Key: []byte("mine"), Value: value, Headers: headers(
			kernel.HeaderRoute, "a/b", kernel.HeaderQoS, "0", kernel.HeaderRetain, "1", kernel.HeaderUTF8, "1",
			kernel.HeaderReplyToTopic, "r/t", kernel.HeaderCorrelationID, "\xff", kernel.HeaderContentType, "t", "user", "x", "user", "y")},
			`exchange="amq.topic" key="a.b" mode=1 content-type="t" [x-mqtt-retain=true] [x-reply-to-topic="r/t"] [user="x"] [user="y"]` +
				` [x-kafka-key="mine"] [x-correlation-id=[]byte{0xff}]`},
		{"own, mode not set", kernel.Record{Key: []byte("k"), Value: value, Headers: headers(kernel.HeaderExchange, "e", kernel.HeaderQoS, "")},
			`exchange="e" key="k"`},
		{"own, binary correlation id", kernel.Record{Key: []byte("k"), Value: value, Headers: headers(kernel.HeaderExchange, "e", kernel.HeaderCorrelationID, "\xff")},
			`exchange="e" key="k" mode=2 correlation-id="\xff"`},
		{"texts that are no numbers", kernel.Record{Value: value, Headers: headers(kernel.HeaderPriority, "high", kernel.HeaderTimestamp, "now")},
			`exchange="" key="the-topic" mode=2 [priority="high"] [timestamp="now"]`},
		{"numbers", kernel.Record{Value: value, Headers: headers(kernel.HeaderPriority, "255", kernel.HeaderTimestamp, "17")},
			`exchange="" key="the-topic" mode=2 priority=255 timestamp=17`},
		{"a name that is taken", kernel.Record{Value: value, Headers: headers("mq.user.type", "x", "mq.unheard-of", "y", "mq.user.mq.mine", "z")},
			`exchange="" key="the-topic" mode=2 [type="x"] [mq.mine="z"]`},
		{"a text too long for a property", kernel.Record{Value: value, Headers: headers(kernel.HeaderReplyTo, strings.Repeat("r", 256))},
			`exchange="" key="the-topic" mode=2 [reply-to="` + strings.Repeat("r", 256) + `"]`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := shown(t, &tc.rec); got != tc.want {
				t.Errorf("%s\nwant %s", got, tc.want)
			}
		})
	}
}

// What is stored of a publish, as other protocols see it.
func TestStoredRecords(t *testing.T) {
	table := func(fields ...wire.Field) wire.Properties {
		return wire.Properties{Flags: wire.HasHeaders | wire.HasDeliveryMode, DeliveryMode: 2, Headers: wire.AppendTable(nil, fields)[4:]}
	}
	kafkaKey := table(wire.Field{Name: "x-kafka-key", Value: "own"})
	for _, tc := range []struct {
		name  string
		props wire.Properties
		want  string
	}{
		{"nothing set", wire.Properties{}, `key=rk mq.exchange="x" mq.qos=""`},
		{"persistent", wire.Properties{Flags: wire.HasDeliveryMode, DeliveryMode: 2}, `key=rk mq.exchange="x"`},
		{"transient", wire.Properties{Flags: wire.HasDeliveryMode, DeliveryMode: 1}, `key=rk mq.exchange="x" mq.qos="0"`},
		{"texts", table(wire.Field{Name: "a", Value: "1"}, wire.Field{Name: "a", Value: "2"}, wire.Field{Name: "type", Value: "t"}, wire.Field{Name: "v"}),
			`key=rk mq.exchange="x" a="1" a="2" mq.user.type="t" v=null`},
		{"reserved", table(wire.Field{Name: "mq.qos", Value: "9"}), `key=rk mq.exchange="x" mq.user.mq.qos="9"`},
		{"empty table", table(), `key=rk mq.exchange="x" mq.amqp=""`},
		{"numbers", table(wire.Field{Name: "n", Value: int8(-1)}, wire.Field{Name: "u", Value: uint16(65535)}, wire.Field{Name: "d", Value: wire.Decimal{Scale: 2, Value: 314}},
			wire.Field{Name: "f", Value: 0.5}, wire.Field{Name: "t", Value: true}, wire.Field{Name: "at", Value: wire.Timestamp(5)}, wire.Field{Name: "mq.no", Value: "x"}),
			`key=rk mq.exchange="x" n="-1" u="65535" d="314e-2" f="0.5" t="true" at="5" mq.user.mq.no="x" mq.amqp=table(7)`},
		{"no text", table(wire.Field{Name: "b", Value: []byte{1}}, wire.Field{Name: "l", Value: wire.Array{}}, wire.Field{Name: "s", Value: "\xff"}),
			`key=rk mq.exchange="x" mq.amqp=table(3)`},
		{"record key", kafkaKey, `key=own mq.exchange="x" mq.rk="rk" mq.amqp=table(1)`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b builder
			must(t, b.build(&wire.BasicPublish{Exchange: "x", RoutingKey: "rk"}, &tc.props, nil, "guest"))
			var s strings.Builder
			fmt.Fprintf(&s, "key=%s", b.record.Key)
			for _, h := range b.record.Headers {
				switch {
				case h.Value == nil:
					fmt.Fprintf(&s, " %s=null", h.Key)
				case h.Key == kernel.HeaderTable && len(h.Value) > 0:
					table, err := wire.ReadTable(h.Value)
					must(t, err)
					fmt.Fprintf(&s, " %s=table(%d)", h.Key, len(table))
				default:
					fmt.Fprintf(&s, " %s=%q", h.Key, h.Value)
				}
			}
			if s.String() != tc.want {
				t.Errorf("%s\nwant %s", s.String(), tc.want)
			}
			if b.record.Value == nil {
				t.Error("an empty body became a tombstone")
			}
		})
	}
}

// TestTimeOfAPublish: a message without a time of its own has that of the read it
// came with, or the present one if it did not come from a socket.
func TestTimeOfAPublish(t *testing.T) {
	var b builder
	begin := time.Now().UnixMilli()
	must(t, b.build(&wire.BasicPublish{}, &wire.Properties{}, nil, "guest"))
	if at := b.record.Timestamp; at < begin || at > time.Now().UnixMilli() {
		t.Errorf("%d, it was sent at %d", at, begin)
	}
	b.now = 12345
	must(t, b.build(&wire.BasicPublish{}, &wire.Properties{}, nil, "guest"))
	if b.record.Timestamp != 12345 {
		t.Errorf("%d", b.record.Timestamp)
	}
	must(t, b.build(&wire.BasicPublish{}, &wire.Properties{Flags: wire.HasTimestamp, Timestamp: 99}, nil, "guest"))
	if b.record.Timestamp != 99_000 {
		t.Errorf("%d, the publisher has said 99 s", b.record.Timestamp)
	}
}

// TestManyHeadersAreLetGo is row 23 of the faults: what one message with very many
// headers took is not kept for as long as its connection lasts.
func TestManyHeadersAreLetGo(t *testing.T) {
	var b builder
	p := wire.Properties{Flags: wire.HasHeaders, Headers: bytes.Repeat([]byte{4, 't', 'y', 'p', 'e', 'I', 0, 0, 0, 1}, 10_000)}
	must(t, b.build(&wire.BasicPublish{}, &p, nil, "guest"))
	if n := len(b.record.Headers); n < 10_000 {
		t.Fatalf("%d headers", n)
	}
	b.trim()
	if cap(b.record.Headers) > keptHeaders || cap(b.text) > keptText || cap(b.public) > keptText || cap(b.keys) > keptHeaders {
		t.Errorf("room for %d headers and %d bytes is kept", cap(b.record.Headers), cap(b.text))
	}
	must(t, b.build(&wire.BasicPublish{RoutingKey: "k"}, &wire.Properties{}, nil, "guest"))
	if string(b.record.Key) != "k" || len(b.record.Headers) != 2 {
		t.Errorf("the next message: %+v", b.record)
	}
}

// Every table of every type comes back byte for byte.
func TestTablesComeBack(t *testing.T) {
	for _, table := range []wire.Table{
		{{Name: "a", Value: "text"}, {Name: "a", Value: "again"}, {Name: "", Value: ""}, {Name: "v"}},
		{{Name: "user-id", Value: "x"}, {Name: "timestamp", Value: "y"}},
		{{Name: "z", Value: int64(1)}, {Name: "s", Value: "x"}, {Name: "x-kafka-key", Value: "k"}},
		{{Name: "x-kafka-key", Value: "k"}},
		{{Name: "d", Value: wire.Table{{Name: "x", Value: wire.Array{nil, true, "é"}}}}},
		{},
	} {
		content := wire.AppendTable(nil, table)[4:]
		props := wire.Properties{Flags: wire.HasHeaders, Headers: content}
		var b builder
		must(t, b.build(&wire.BasicPublish{RoutingKey: "rk"}, &props, []byte("x"), "guest"))
		var e encoder
		e.read(stored(t, &b.record), "q")
		if !e.props.Has(wire.HasHeaders) || !bytes.Equal(e.props.Headers, content) || e.key != "rk" || e.props.Has(wire.HasDeliveryMode) {
			t.Errorf("%v came back as %x, key %q", table, e.props.Headers, e.key)
		}
	}
}

func TestTimes(t *testing.T) {
	props := wire.Properties{Flags: wire.HasTimestamp | wire.HasExpiration, Timestamp: 1_700_000_000, Expiration: []byte("60000")}
	var b builder
	before := time.Now().UnixMilli()
	must(t, b.build(&wire.BasicPublish{}, &props, nil, ""))
	if b.record.Timestamp != 1_700_000_000_000 {
		t.Errorf("record timestamp %d", b.record.Timestamp)
	}
	var e encoder
	e.read(stored(t, &b.record), "q")
	if e.props.Timestamp != 1_700_000_000 || len(e.props.Expiration) != 5 || string(e.props.Expiration) > "60000" || string(e.props.Expiration) < "50000" {
		t.Errorf("%d, %s", e.props.Timestamp, e.props.Expiration)
	}
	props = wire.Properties{Flags: wire.HasTimestamp, Timestamp: 1 << 63} // kept, but no time to order by
	must(t, b.build(&wire.BasicPublish{}, &props, nil, ""))
	e.read(stored(t, &b.record), "q")
	if b.record.Timestamp < before || e.props.Timestamp != 1<<63 {
		t.Errorf("%d, %d", b.record.Timestamp, e.props.Timestamp)
	}
}

// TestExpirationLimits: times to live are RabbitMQ's, up to ten years.
func TestExpirationLimits(t *testing.T) {
	for text, want := range map[string]string{
		"0": "", "315360000000": "", "01": "", "+5": "",
		"315360000001": "{value_too_large,315360000001}", "-1": "{value_negative,-1}", "": "no_integer", "5x": "{leftover_string,\"x\"}", "+": "no_integer",
	} {
		var b builder
		err := b.build(&wire.BasicPublish{}, &wire.Properties{Flags: wire.HasExpiration, Expiration: []byte(text)}, nil, "guest")
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestDeliveryCount: what comes from a quorum queue says how often it came back, if
// it did, whatever its publisher says.
func TestDeliveryCount(t *testing.T) {
	c := benchConn(&loop{})
	h := wire.AppendLongField(nil, headerDeliveries, 77)
	_, names := delivered(t, c, &kernel.Record{Headers: []kernel.Header{
		{Key: kernel.HeaderExchange, Value: []byte{}}, {Key: kernel.HeaderTable, Value: h},
		{Key: kernel.HeaderContentType, Value: []byte("text/plain")},
	}}, 3)
	w := wire.WalkTable(c.enc.props.Headers)
	if names != headerDeliveries || !w.Next() || len(w.Value) != 8 || w.Value[7] != 3 {
		t.Errorf("headers %q, %v", names, w.Value)
	}
}
