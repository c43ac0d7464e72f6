package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

// methodCases hold whole method frames as they are on the wire, read from the
// specification and checked against what RabbitMQ and its clients send.
var methodCases = []struct {
	name    string
	channel uint16
	method  Method
	wire    string // hexadecimal, blanks are ignored
}{
	{"connection.tune", 0, &ConnectionTune{ChannelMax: 2047, FrameMax: 131072, Heartbeat: 60},
		"01 0000 0000000c 000a001e 07ff 00020000 003c ce"},
	{"connection.open", 0, &ConnectionOpen{VirtualHost: "/"},
		"01 0000 00000008 000a0028 01 2f 00 00 ce"},
	{"connection.close", 0, &ConnectionClose{ReplyCode: 320, ReplyText: "bye", ClassID: 60, MethodID: 40},
		"01 0000 0000000e 000a0032 0140 03 627965 003c 0028 ce"},
	{"connection.start-ok", 0, &ConnectionStartOk{
		ClientProperties: Table{{"product", "x"}}, Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US"},
		"01 0000 00000032 000a000b 0000000e 07 70726f64756374 53 00000001 78" +
			" 05 504c41494e 0000000c 00 6775657374 00 6775657374 05 656e5f5553 ce"},
	{"channel.open", 1, &ChannelOpen{}, "01 0001 00000005 0014000a 00 ce"},
	{"channel.open-ok", 1, &ChannelOpenOk{}, "01 0001 00000008 0014000b 00000000 ce"},
	{"channel.flow", 2, &ChannelFlow{Active: true}, "01 0002 00000005 00140014 01 ce"},
	{"exchange.declare", 1, &ExchangeDeclare{Exchange: "x", Type: "topic", Durable: true, Internal: true},
		"01 0001 00000013 0028000a 0000 01 78 05 746f706963 0a 00000000 ce"},
	{"exchange.unbind-ok", 1, &ExchangeUnbindOk{}, "01 0001 00000004 00280033 ce"},
	{"queue.declare", 1, &QueueDeclare{Queue: "q", Passive: true, AutoDelete: true, NoWait: true, Arguments: Table{{"x", int32(-1)}}},
		"01 0001 00000014 0032000a 0000 01 71 19 00000007 01 78 49 ffffffff ce"},
	{"queue.declare-ok", 1, &QueueDeclareOk{Queue: "q", MessageCount: 3, ConsumerCount: 2},
		"01 0001 0000000e 0032000b 01 71 00000003 00000002 ce"},
	{"queue.unbind", 1, &QueueUnbind{Queue: "q", Exchange: "e", RoutingKey: "k"},
		"01 0001 00000010 00320032 0000 01 71 01 65 01 6b 00000000 ce"},
	{"basic.qos", 1, &BasicQos{PrefetchCount: 10, Global: true}, "01 0001 0000000b 003c000a 00000000 000a 01 ce"},
	{"basic.consume", 1, &BasicConsume{Queue: "q", ConsumerTag: "t", NoAck: true, Exclusive: true},
		"01 0001 0000000f 003c0014 0000 01 71 01 74 06 00000000 ce"},
	{"basic.publish", 1, &BasicPublish{Exchange: "e", RoutingKey: "k", Mandatory: true},
		"01 0001 0000000b 003c0028 0000 01 65 01 6b 01 ce"},
	{"basic.deliver", 1, &BasicDeliver{ConsumerTag: "t", DeliveryTag: 7, Redelivered: true, Exchange: "e", RoutingKey: "k"},
		"01 0001 00000013 003c003c 01 74 0000000000000007 01 01 65 01 6b ce"},
	{"basic.get-ok", 1, &BasicGetOk{DeliveryTag: 1, Exchange: "", RoutingKey: "q", MessageCount: 5},
		"01 0001 00000014 003c0047 0000000000000001 00 00 01 71 00000005 ce"},
	{"basic.get-empty", 1, &BasicGetEmpty{}, "01 0001 00000005 003c0048 00 ce"},
	{"basic.ack", 1, &BasicAck{DeliveryTag: 258, Multiple: true}, "01 0001 0000000d 003c0050 0000000000000102 01 ce"},
	{"basic.nack", 65535, &BasicNack{DeliveryTag: 1, Requeue: true}, "01 ffff 0000000d 003c0078 0000000000000001 02 ce"},
	{"basic.return", 1, &BasicReturn{ReplyCode: 312, ReplyText: "NO_ROUTE", RoutingKey: "k"},
		"01 0001 00000012 003c0032 0138 08 4e4f5f524f555445 00 01 6b ce"},
	{"confirm.select", 1, &ConfirmSelect{NoWait: true}, "01 0001 00000005 0055000a 01 ce"},
	{"tx.rollback-ok", 1, &TxRollbackOk{}, "01 0001 00000004 005a001f ce"},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMethods(t *testing.T) {
	for _, tc := range methodCases {
		t.Run(tc.name, func(t *testing.T) {
			want := unhex(t, tc.wire)
			if got := AppendMethod(nil, tc.channel, tc.method); !bytes.Equal(got, want) {
				t.Errorf("encoded %x\nwant    %x", got, want)
			}
			fr, err := NewFrameReader(bytes.NewReader(want), 4096).Next()
			if err != nil || fr.Type != FrameMethod || fr.Channel != tc.channel {
				t.Fatalf("frame %v, %v", fr, err)
			}
			got, err := ReadMethod(fr.Payload)
			if err != nil || !reflect.DeepEqual(got, tc.method) {
				t.Errorf("decoded %+v, %v", got, err)
			}
			if got.ID().String() != tc.name {
				t.Errorf("named %v", got.ID())
			}
		})
	}
}

// Every method comes back from its own encoding, and is refused when a byte is
// missing or left over.
func TestMethodsAll(t *testing.T) {
	n := 0
	for class := range 100 {
		for method := range 130 {
			m := New(ID(class<<16 | method))
			if m == nil {
				continue
			}
			n++
			fill(reflect.ValueOf(m).Elem())
			payload := m.append(nil)
			got, err := ReadMethod(payload)
			if err != nil || !reflect.DeepEqual(got, m) {
				t.Errorf("%v: %+v, %v", m.ID(), got, err)
			}
			for cut := 4; cut < len(payload); cut++ {
				if _, err := ReadMethod(payload[:cut]); !errors.Is(err, ErrSyntax) {
					t.Errorf("%v cut to %d: %v", m.ID(), cut, err)
				}
			}
			if _, err := ReadMethod(append(payload, 0)); !errors.Is(err, ErrSyntax) {
				t.Errorf("%v with a byte too many: %v", m.ID(), err)
			}
		}
	}
	if n != 66 {
		t.Errorf("%d methods", n)
	}
	if _, err := ReadMethod([]byte{0, 60, 0, 99}); !errors.Is(err, ErrUnknownMethod) || !strings.Contains(err.Error(), "60.99") {
		t.Errorf("unknown method: %v", err)
	}
	if _, err := ReadMethod([]byte{0, 60}); !errors.Is(err, ErrSyntax) {
		t.Errorf("half an id: %v", err)
	}
}

// fill gives every field a value.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("größe")
		case reflect.Bool:
			f.SetBool(i%2 == 0)
		case reflect.Slice:
			f.Set(reflect.ValueOf(Table{{"k", int64(5)}}))
		default:
			f.SetUint(uint64(i + 1))
		}
	}
}

var tableCases = []struct {
	name  string
	table Table
	wire  string
}{
	{"empty", nil, "00000000"},
	{"bool", Table{{"a", true}, {"b", false}}, "00000008 0161 74 01 0162 74 00"},
	{"signed", Table{{"a", int8(-1)}, {"b", int16(-2)}, {"c", int32(-3)}, {"d", int64(-4)}},
		"0000001b 0161 62 ff 0162 73 fffe 0163 49 fffffffd 0164 6c fffffffffffffffc"},
	{"unsigned", Table{{"a", uint8(255)}, {"b", uint16(65535)}, {"c", uint32(1)}},
		"00000010 0161 42 ff 0162 75 ffff 0163 69 00000001"},
	{"float", Table{{"a", float32(1.5)}, {"b", float64(-2)}}, "00000012 0161 66 3fc00000 0162 64 c000000000000000"},
	{"decimal", Table{{"a", Decimal{2, 314}}}, "00000008 0161 44 02 0000013a"},
	{"text", Table{{"a", "é"}, {"b", []byte{0, 255}}}, "00000012 0161 53 00000002 c3a9 0162 78 00000002 00ff"},
	{"time", Table{{"a", Timestamp(1)}}, "0000000b 0161 54 0000000000000001"},
	{"void", Table{{"a", nil}}, "00000003 0161 56"},
	{"nested", Table{{"a", Array{true, Table{{"b", "c"}}}}, {"a", Table{}}},
		"00000021 0161 41 00000012 74 01 46 00000008 0162 53 00000001 63" + " 0161 46 00000000"},
}

func TestTables(t *testing.T) {
	for _, tc := range tableCases {
		t.Run(tc.name, func(t *testing.T) {
			want := unhex(t, tc.wire)
			if tc.name == "nested" { // its lengths are checked by decoding it
				want = AppendTable(nil, tc.table)
			}
			if got := AppendTable(nil, tc.table); !bytes.Equal(got, want) {
				t.Errorf("encoded %x\nwant    %x", got, want)
			}
			got, err := ReadTable(want[4:])
			if err != nil || !equalTables(got, tc.table) {
				t.Errorf("decoded %#v, %v", got, err)
			}
			if err := CheckTable(want[4:]); err != nil {
				t.Errorf("checked: %v", err)
			}
			walked := 0
			w := WalkTable(want[4:])
			for w.Next() {
				if string(w.Name) != tc.table[walked].Name {
					t.Errorf("walked to %q", w.Name)
				}
				walked++
			}
			if walked != len(tc.table) || w.Err() != nil {
				t.Errorf("walked %d, %v", walked, w.Err())
			}
		})
	}
	if got, err := ReadTable(unhex(t, "0161 4c ffffffffffffffff")); err != nil || got[0].Value != int64(-1) {
		t.Errorf("tag L: %v, %v", got, err)
	}
}

func equalTables(a, b Table) bool { return bytes.Equal(AppendTable(nil, a), AppendTable(nil, b)) }

func nested(kind byte, depth int) []byte {
	var b []byte
	for range depth {
		inner := b
		b = nil
		if kind == 'F' {
			b = append(b, 1, 'k')
		}
		b = appendLongstr(append(b, kind), inner)
	}
	if kind == 'A' {
		b = append([]byte{1, 'k'}, b...)
	}
	return b
}

func TestHostileTables(t *testing.T) {
	many := bytes.Repeat([]byte{0, 'V'}, 60_000)
	cases := []struct {
		name    string
		content []byte
		ok      bool
	}{
		{"table 63 deep", nested('F', MaxDepth-1), true},
		{"table 64 deep", nested('F', MaxDepth), false},
		{"table 10,000 deep", nested('F', 10_000), false},
		{"array 63 deep", nested('A', MaxDepth-1), true},
		{"array 10,000 deep", nested('A', 10_000), false},
		{"many keys of one name", many, true},
		{"name past the end", []byte{5, 'a'}, false},
		{"no value", []byte{1, 'a'}, false},
		{"unknown tag", []byte{1, 'a', 'Z'}, false},
		{"length past the end", []byte{1, 'a', 'S', 0xff, 0xff, 0xff, 0xff}, false},
		{"inner table longer than the outer", []byte{1, 'a', 'F', 0, 0, 0, 9, 0, 'V'}, false},
		{"inner value past the inner end", []byte{1, 'a', 'F', 0, 0, 0, 3, 0, 'I', 0, 0, 0, 0}, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadTable(tc.content)
			if (err == nil) != tc.ok || (err != nil && !errors.Is(err, ErrSyntax)) {
				t.Errorf("read: %v", err)
			}
			if err := CheckTable(tc.content); (err == nil) != tc.ok {
				t.Errorf("checked: %v", err)
			}
		})
	}
}

func TestShortstr(t *testing.T) {
	long := strings.Repeat("a", 254) + "é"
	if got := appendShortstr(nil, long); len(got) != 255 || got[0] != 254 {
		t.Errorf("cut to %d", got[0])
	}
	if got := appendShortstr(nil, strings.Repeat("b", 255)); got[0] != 255 {
		t.Errorf("cut to %d", got[0])
	}
	m := &BasicConsumeOk{ConsumerTag: "\xff\xfe"}
	if _, err := ReadMethod(m.append(nil)); !errors.Is(err, ErrSyntax) {
		t.Errorf("bytes that are not UTF-8: %v", err)
	}
}

func TestAliased(t *testing.T) {
	payload := (&BasicPublish{Exchange: "e", RoutingKey: "key"}).append(nil)
	var m BasicPublish
	var d Decoder
	allocs := testing.AllocsPerRun(100, func() {
		if err := d.Decode(&m, payload); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 || m.RoutingKey != "key" {
		t.Errorf("%v allocations, %+v", allocs, m)
	}
	payload[len(payload)-2] = 'x'
	if m.RoutingKey != "kex" {
		t.Errorf("not aliased: %q", m.RoutingKey)
	}
}

func TestCodes(t *testing.T) {
	hard := map[Code]bool{ConnectionForced: true, FrameErrorCode: true, SyntaxErrorCode: true, CommandInvalid: true,
		ChannelErrorCode: true, UnexpectedFrame: true, ResourceError: true, NotAllowed: true, NotImplemented: true, InternalError: true,
		InvalidPath: true}
	for c := range codeNames {
		if c.Hard() != hard[c] {
			t.Errorf("%v: hard = %v", c, c.Hard())
		}
	}
	if Code(299).String() != "299" || NotFound.String() != "NOT_FOUND" {
		t.Error("names")
	}
}

func TestFloatsKeepTheirBits(t *testing.T) {
	b := AppendTable(nil, Table{{"n", math.NaN()}, {"i", math.Inf(-1)}})
	got, err := ReadTable(b[4:])
	if err != nil || !equalTables(got, Table{{"n", math.NaN()}, {"i", math.Inf(-1)}}) {
		t.Errorf("%v, %v", got, err)
	}
}
