package mqtt

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// heap is what is in use in this process, with the node in it.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Lengths that are announced and never come cost nothing, before CONNECT and
// after it, and nobody else notices.
func TestAnnouncedLengths(t *testing.T) {
	n := harness.InProcess(t, mqtt.Limits{})
	topic := name("t")
	sub := open(t, n, clean(wire.V5))
	sub.subscribe(wire.Filter{Name: topic, QoS: 1})
	before := heap()
	for range 100 {
		c, err := net.Dial("tcp", n.MQTT)
		must(t, err)
		defer c.Close()
		_, err = c.Write([]byte{0x10, 0x80, 0x80, 0x03}) // 48 KiB of CONNECT to come
		must(t, err)
	}
	for range 100 {
		p := open(t, n, clean(wire.V5))
		p.send([]byte{0x32, 0xF0, 0xFF, 0xFF, 0x07, 0, 1, 't', 0, 1}) // 16 MiB of PUBLISH to come
	}
	open(t, n, clean(wire.V5)).publish(topic, "x")
	sub.wantMessages(true, "x")
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	c := dial(t, n)
	c.send([]byte{0x10, 0x80, 0x80, 0x08}) // 128 KiB of CONNECT
	c.wantEnd(0)
}

// Bytes that are not MQTT end their own connection only.
func TestGarbageEndsItsConnectionOnly(t *testing.T) {
	topic := name("t")
	sub := open(t, shared, clean(wire.V5))
	sub.subscribe(wire.Filter{Name: topic, QoS: 1})
	for _, s := range []string{"GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00", "AMQP\x00\x00\x09\x01", "\x00\x00", "\xff\xff\xff\xff\xff\xff"} {
		c := dial(t, shared)
		c.send([]byte(s))
		c.wantEnd(0)
	}
	section := bytes.Repeat([]byte{0x26, 0, 0, 0, 0}, 200_000)
	c := open(t, shared, clean(wire.V5))
	go func() { _, _ = c.c.Write(packet(wire.V5, 1, 1, "t", "x", section...)) }()
	c.wantEnd(wire.PacketTooLarge)
	c = open(t, shared, clean(wire.V5))
	c.send([]byte{0x82, 6, 0, 1, 0, 0, 1, 'a'}) // options missing
	c.wantEnd(wire.MalformedPacket)
	open(t, shared, clean(wire.V5)).publish(topic, "x")
	sub.wantMessages(true, "x")
}

// A subscriber that does not read costs a bounded amount, whether it reads from
// memory or from the log, and holds nobody up.
func TestSubscriberThatDoesNotRead(t *testing.T) {
	n := harness.InProcess(t, mqtt.Limits{})
	topic := name("t")
	stuck := open(t, n, clean(wire.V5))
	stuck.subscribe(wire.Filter{Name: topic, QoS: 0})
	held := open(t, n, v5(name("held")))
	held.subscribe(wire.Filter{Name: topic, QoS: 1})
	good := open(t, n, clean(wire.V5))
	good.subscribe(wire.Filter{Name: topic, QoS: 1})
	pub := open(t, n, clean(wire.V5))
	payload := string(bytes.Repeat([]byte("x"), 100_000))
	before := heap()
	for range 300 {
		pub.publish(topic, payload)
		good.wantMessages(true, payload)
	}
	// What the log keeps of it in its cache is not ours: 30 MB were published.
	if grown := heap() - before; grown > 100<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	for range 300 { // nothing of the durable one is lost
		held.puback(held.message(), wire.Success)
	}
}

// Two clients that keep taking the same client id from each other do not lose
// the session, nor its messages.
func TestTakeoverStorm(t *testing.T) {
	req, topic := v5(name("storm")), name("t")
	open(t, shared, req).subscribe(wire.Filter{Name: topic, QoS: 1})
	pub := open(t, shared, clean(wire.V5))
	var storm sync.WaitGroup
	for range 4 {
		storm.Go(func() {
			for range 25 {
				c, err := net.Dial("tcp", shared.MQTT)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				if _, err := c.Write(req.Append(nil)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for _, s := range series(0, 50) {
		pub.publish(topic, s)
	}
	storm.Wait()
	p, a := connect(t, shared, req)
	if !a.SessionPresent {
		t.Error("session lost")
	}
	seen := map[string]bool{}
	for len(seen) < 50 {
		m := p.message()
		if want := fmt.Sprint(len(seen)); string(m.Payload) != want {
			t.Fatalf("got %s, want %s", m.Payload, want)
		}
		seen[string(m.Payload)] = true
		p.puback(m, wire.Success)
	}
}
