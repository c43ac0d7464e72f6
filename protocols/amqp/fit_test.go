package amqp

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// delivered is what a client with this frame_max gets of a record: the size of
// its header frame and the names in its header table.
func delivered(t *testing.T, c *conn, r *kernel.Record, failed int32) (size int, names string) {
	t.Helper()
	k := &consumer{ch: &channel{c: c, id: 1}, tag: "tag", topic: "q", m: &nullMember{}} // a quorum queue's
	b := c.enc.appendDelivery(nil, k, 1, &kernel.Delivery{Record: stored(t, r), Failed: failed, Redelivered: failed > 0})
	f := wire.NewFrameReader(bytes.NewReader(b), 1<<30)
	if fr, err := f.Next(); err != nil || fr.Type != wire.FrameMethod {
		t.Fatal(fr.Type, err)
	}
	fr, err := f.Next()
	if err != nil || fr.Type != wire.FrameHeader {
		t.Fatal(fr.Type, err)
	}
	var p wire.Properties
	if _, _, err := wire.ParseHeader(fr.Payload, &p); err != nil {
		t.Fatal(err)
	}
	if string(p.ContentType) != "text/plain" {
		t.Errorf("content type %q", p.ContentType)
	}
	if got := p.HeaderFrameSize(); got != len(fr.Payload)+wire.FrameOverhead {
		t.Errorf("a header frame of %d bytes was reckoned to have %d", len(fr.Payload)+wire.FrameOverhead, got)
	}
	var list []string
	for w := wire.WalkTable(p.Headers); w.Next(); {
		list = append(list, string(w.Name))
	}
	return len(fr.Payload) + wire.FrameOverhead, strings.Join(list, " ")
}

// TestHeaderFrameFits: no header frame is larger than the client takes, and
// what is left out is what the documentation says.
func TestHeaderFrameFits(t *testing.T) {
	big := bytes.Repeat([]byte("v"), 5000)
	text := kernel.Header{Key: kernel.HeaderContentType, Value: []byte("text/plain")}
	over := func(names ...string) []kernel.Header { // from Kafka or MQTT
		list := []kernel.Header{text}
		for _, n := range names {
			v := []byte("small")
			if strings.HasPrefix(n, "big") {
				v = big
			}
			list = append(list, kernel.Header{Key: n, Value: v})
		}
		return list
	}
	own := func(names ...string) []kernel.Header {
		return append(over(names...), kernel.Header{Key: kernel.HeaderExchange, Value: []byte{}})
	}
	exact := func(names ...string) []kernel.Header {
		var table []byte
		for _, n := range names {
			table = wire.AppendBytesField(table, n, big[:4000])
		}
		return append(own(), kernel.Header{Key: kernel.HeaderTable, Value: table})
	}
	many := make([]string, 1000)
	for i := range many {
		many[i] = "n"
	}
	for _, tc := range []struct {
		name     string
		headers  []kernel.Header
		value    []byte
		failed   int32
		frameMax int
		want     string
		cut      bool
	}{
		{name: "all fit", headers: over("big", "a"), value: []byte("x"), frameMax: 131072, want: "big a x-kafka-key"},
		{name: "one is too large", headers: over("a", "big", "b"), value: []byte("x"), frameMax: 4096, want: "a b x-kafka-key x-headers-dropped", cut: true},
		{name: "the broker's own stay", headers: over("a", "big", "x-tombstone"), failed: 2, frameMax: 4096, want: "a x-kafka-key x-tombstone x-delivery-count x-headers-dropped", cut: true},
		{name: "too many", headers: over(many...), value: []byte("x"), frameMax: 4096, cut: true},
		{name: "an AMQP table goes as a whole", headers: own("a", "big", "b"), value: []byte("x"), frameMax: 4096, want: "x-headers-dropped", cut: true},
		{name: "an exact table, too", headers: exact("a", "b"), value: []byte("x"), failed: 1, frameMax: 4096, want: "x-delivery-count x-headers-dropped", cut: true},
		{name: "an exact table that fits", headers: exact("a", "x-delivery-count"), value: []byte("x"), failed: 7, frameMax: 131072, want: "a x-delivery-count"},
		{name: "not come back", headers: exact("a", "x-delivery-count"), value: []byte("x"), frameMax: 131072, want: "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			c := benchConn(&loop{})
			c.nc, c.frameMax = server, tc.frameMax
			for range 2 {
				size, names := delivered(t, c, &kernel.Record{Key: []byte("k"), Value: tc.value, Headers: tc.headers}, tc.failed)
				if size > tc.frameMax {
					t.Errorf("a header frame of %d bytes, frame_max is %d", size, tc.frameMax)
				}
				if tc.want != "" && names != tc.want {
					t.Errorf("headers %q, want %q", names, tc.want)
				}
				if tc.cut != strings.HasSuffix(names, headerCut) {
					t.Errorf("marked as cut: %v", !tc.cut)
				}
			}
			if n := c.count.Cut.Load(); (n == 2) != tc.cut {
				t.Errorf("counted %d", n)
			}
		})
	}
}

// TestReturnedHeaderFits: so it is when a message goes back to its publisher,
// whose frames may count a little more than ours.
func TestReturnedHeaderFits(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	c := benchConn(&loop{})
	c.nc, c.frameMax = server, 4096
	ch := &channel{c: c, id: 1}
	for n := 4000; n < 4096; n++ {
		p := wire.Properties{Flags: wire.HasHeaders, Headers: wire.AppendBytesField(nil, "h", make([]byte, n))}
		c.out.buf = c.out.buf[:0]
		ch.returnMessage(&wire.BasicPublish{RoutingKey: "q"}, &p, []byte("body"))
		f := wire.NewFrameReader(bytes.NewReader(c.out.buf), 1<<20)
		for range 3 {
			fr, err := f.Next()
			if err != nil || len(fr.Payload)+wire.FrameOverhead > 4096 {
				t.Fatal(fmt.Sprint(n), fr.Type, len(fr.Payload), err)
			}
		}
	}
}
