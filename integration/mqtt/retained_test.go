package mqtt

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// reference starts mosquitto, to which the same scripts are put.
func reference(t *testing.T) harness.Addresses {
	t.Helper()
	harness.NeedProgram(t, "mosquitto")
	addr, err := harness.FreeAddress()
	must(t, err)
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(t.TempDir(), "mosquitto.conf")
	must(t, os.WriteFile(conf, []byte("listener "+port+" 127.0.0.1\nallow_anonymous true\npersistence false\n"), 0o600))
	cmd := exec.Command("mosquitto", "-c", conf)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	harness.Wait(t, harness.Patience, "mosquitto listens", func() bool {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return false
		}
		return c.Close() == nil
	})
	return harness.Addresses{MQTT: addr}
}

// both puts a script to our broker and to mosquitto: what it wants is what both do.
func both(t *testing.T, script func(t *testing.T, at harness.Addresses)) {
	t.Run("trivium", func(t *testing.T) { script(t, shared) })
	t.Run("mosquitto", func(t *testing.T) { script(t, reference(t)) })
}

// retain publishes a retained message and waits until it is.
func (p *peer) retain(qos byte, topic, payload string, props ...byte) {
	p.t.Helper()
	b := packet(p.version, qos, uint16(qos), topic, payload, props...)
	b[0] |= 1
	p.send(b)
	switch qos {
	case 1:
		p.want(wire.Puback)
	case 2:
		p.want(wire.Pubrec)
		p.send(wire.AppendAck(nil, wire.Pubrel, p.version, 2, wire.Success))
		p.want(wire.Pubcomp)
	default:
		p.quiet()
	}
}

// arrive reads n messages, acknowledges them, and returns them sorted, as
// topic=payload with r for RETAIN and the QoS.
func (p *peer) arrive(n int) (list []string) {
	p.t.Helper()
	for range n {
		m := p.message()
		if m.QoS == 1 {
			p.puback(m, wire.Success)
		}
		flag := ""
		if m.Retain {
			flag = "r"
		}
		list = append(list, fmt.Sprintf("%s=%s %s%d", m.Topic, m.Payload, flag, m.QoS))
	}
	slices.Sort(list)
	return list
}

func (p *peer) wantArrive(want ...string) {
	p.t.Helper()
	if got := p.arrive(len(want)); !slices.Equal(got, want) {
		p.t.Errorf("got %q, want %q", got, want)
	}
	p.quiet()
}

// 3.3.1.3: what is retained, replaced, removed and shown, with both versions.
func TestRetained(t *testing.T) {
	both(t, func(t *testing.T, at harness.Addresses) {
		for _, version := range []byte{wire.V311, wire.V5} {
			base := name("r")
			p := open(t, at, clean(version))
			live := open(t, at, clean(version))
			live.subscribe(wire.Filter{Name: base + "/#", QoS: 1})
			p.retain(0, base+"/a", "0")
			p.retain(1, base+"/b", "old")
			p.retain(1, base+"/b", "1")
			p.retain(2, base+"/c/d", "2")
			p.retain(1, base, "top")
			p.retain(1, base+"/gone", "x")
			p.retain(1, base+"/gone", "")
			p.publish(base+"/b", "passes") // 3.3.1-8
			p.retain(0, "$x/"+base, "hidden")
			// 3.3.1-9: what comes by an established subscription has no RETAIN.
			live.wantArrive(base+"/a=0 0", base+"/b=1 1", base+"/b=old 1", base+"/b=passes 1", base+"/c/d=2 1", base+"/gone= 1", base+"/gone=x 1", base+"=top 1")

			q := open(t, at, clean(version))
			q.subscribe(wire.Filter{Name: base + "/#", QoS: 1})
			q.wantArrive(base+"/a=0 r0", base+"/b=1 r1", base+"/c/d=2 r1", base+"=top r1")
			q.subscribe(wire.Filter{Name: base + "/+", QoS: 0})
			q.wantArrive(base+"/a=0 r0", base+"/b=1 r0")
			q.subscribe(wire.Filter{Name: base + "/+/d", QoS: 1})
			q.wantArrive(base + "/c/d=2 r1")
			q.subscribe(wire.Filter{Name: "+/" + base, QoS: 1}) // 4.7.2-1
			q.quiet()
			q.subscribe(wire.Filter{Name: "$x/" + base, QoS: 1})
			q.wantArrive("$x/" + base + "=hidden r0")
			q.subscribe(wire.Filter{Name: base + "/b", QoS: 1}, wire.Filter{Name: base + "/a", QoS: 1})
			q.wantArrive(base+"/a=0 r0", base+"/b=1 r1")
			q.subscribe(wire.Filter{Name: base + "/b", QoS: 1}) // again: 3.1.1, 3.8.4-3; 5.0, 3.8.4-4
			q.wantArrive(base + "/b=1 r1")
		}
	})
}

// 3.8.3.1: Retain Handling and Retain As Published; 4.8.2: not for shared ones.
func TestRetainHandling(t *testing.T) {
	both(t, func(t *testing.T, at harness.Addresses) {
		topic := name("r")
		p := open(t, at, clean(wire.V5))
		p.retain(1, topic, "x")
		q := open(t, at, clean(wire.V5))
		sub := func(o byte) { q.subscribe(wire.Filter{Name: topic, QoS: 1, Options: o}) }
		sub(2 << 4)
		q.quiet()
		sub(1 << 4)
		q.quiet() // it was there
		q.unsubscribe(topic)
		sub(1<<4 | wire.OptionRetainAsPublished)
		q.wantArrive(topic + "=x r1")
		p.retain(1, topic, "y")
		p.publish(topic, "z")
		q.wantArrive(topic+"=y r1", topic+"=z 1")
		sub(0)
		q.wantArrive(topic + "=y r1")
		if at == shared { // mosquitto 2.0.11 keeps the old options, and forgets 4.8.2
			p.retain(1, topic, "w")
			q.wantArrive(topic + "=w 1")
			s := open(t, at, clean(wire.V5))
			s.subscribe(wire.Filter{Name: "$share/g/" + topic, QoS: 1})
			s.quiet()
		}
	})
}

// 3.3.2-4 to -6, -15 to -20: the properties, in their order, and what remains of the
// expiry.
func TestRetainedProperties(t *testing.T) {
	both(t, func(t *testing.T, at harness.Addresses) {
		topic := name("r")
		section := wire.AppendFlag(nil, wire.PropPayloadFormat, 1)
		section = wire.AppendText(section, wire.PropContentType, "text/x")
		section = wire.AppendText(section, wire.PropResponseTopic, "re")
		section = wire.AppendText(section, wire.PropCorrelationData, "c\x00")
		section = wire.AppendUser(wire.AppendUser(wire.AppendUser(section, "b", "1"), "a", "2"), "b", "3")
		p := open(t, at, clean(wire.V5))
		begin := time.Now()
		p.retain(1, topic, "x", section...)
		p.retain(1, topic+"/short", "x", wire.AppendFour(nil, wire.PropMessageExpiry, 1)...)
		p.retain(1, topic+"/long", "x", wire.AppendFour(nil, wire.PropMessageExpiry, 100)...)
		q := open(t, at, clean(wire.V5))
		q.subscribe(wire.Filter{Name: topic, QoS: 1})
		m := q.message()
		got := strings.Fields(strings.ReplaceAll(props(t, m), "9:c\x00", "9:c"))
		slices.SortStableFunc(got, func(a, b string) int { // only user properties have an order
			return strings.Compare(a[strings.IndexAny(a, ":=")-1:][:1], b[strings.IndexAny(b, ":=")-1:][:1])
		})
		if s := strings.Join(got, " "); s != "1:1 3:text/x 8:re 9:c a=2 b=1 b=3" {
			t.Errorf("%q", s)
		}
		left := time.Now().Add(1500 * time.Millisecond)
		harness.Wait(t, harness.Patience, "it is over", func() bool { return time.Now().After(left) })
		q = open(t, at, clean(wire.V5))
		q.subscribe(wire.Filter{Name: topic + "/+", QoS: 1})
		m = q.message()
		if string(m.Topic) != topic+"/long" {
			t.Errorf("got %s", m.Topic)
		}
		wantRemains(t, m, 100, begin)
		q.puback(m, wire.Success)
		q.quiet()
	})
}

// docs/properties.md: a publish over AMQP with x-mqtt-retain is retained.
func TestRetainedOverAMQP(t *testing.T) {
	base := name("amqp")
	_, ch := shared.DialAMQP(t)
	must(t, ch.Confirm(false))
	harness.Confirmed(t, ch, "amq.topic", base+".a", amqp.Publishing{
		Body: []byte("1"), DeliveryMode: 2, ContentType: "text/x", Headers: amqp.Table{"x-mqtt-retain": true, "k": "v"},
	})
	harness.Confirmed(t, ch, "amq.topic", base+".b", amqp.Publishing{Body: []byte("2"), Headers: amqp.Table{"x-mqtt-retain": "true"}})
	harness.Confirmed(t, ch, "amq.topic", base+".c", amqp.Publishing{Body: []byte("3"), Headers: amqp.Table{"x-mqtt-retain": false}})
	harness.Confirmed(t, ch, "amq.topic", base+".b", amqp.Publishing{Headers: amqp.Table{"x-mqtt-retain": true}})
	p := open(t, shared, clean(wire.V5))
	p.subscribe(wire.Filter{Name: base + "/+", QoS: 1})
	m := p.wantMessages(true, "1")[0]
	if s := props(t, m); string(m.Topic) != base+"/a" || !m.Retain || m.QoS != 1 || s != "3:text/x k=v" {
		t.Errorf("%+v %q", m, s)
	}
	p.quiet()
	// And a retained one shows so over AMQP.
	queue := name("queue")
	harness.Declare(t, ch, queue, base+".*")
	open(t, shared, clean(wire.V5)).retain(1, base+"/d", "4")
	for {
		d, ok, err := ch.Get(queue, true)
		must(t, err)
		if !ok {
			continue
		}
		if d.Headers["x-mqtt-retain"] != true || string(d.Body) != "4" {
			t.Errorf("%+v", d)
		}
		break
	}
	_, err := ch.QueueDelete(queue, false, false, false)
	must(t, err)
}

// 3.1.2.5, 3.1.3.2.2, 3.1.4-3, 3.14: when a will is published and when it is not.
func TestWillRules(t *testing.T) {
	both(t, func(t *testing.T, at harness.Addresses) {
		base := name("will")
		watch := open(t, at, clean(wire.V5))
		watch.subscribe(wire.Filter{Name: base + "/#", QoS: 1})
		client := func(id string, first bool, expiry, delay uint32, payload string) *peer {
			req := wire.ConnectRequest{Version: wire.V5, ClientID: base + id, Clean: first, SessionExpiry: expiry}
			if payload != "" {
				req.Will = &wire.Will{Topic: base + "/" + id, Payload: []byte(payload), QoS: 1, Delay: delay}
			}
			return open(t, at, req)
		}
		shown := func(id, payload string) {
			t.Helper()
			watch.wantArrive(base + "/" + id + "=" + payload + " 1")
		}
		_ = client("lost", true, 0, 0, "1").c.Close()
		shown("lost", "1")
		_ = client("lost", true, 100, 0, "2").c.Close()
		shown("lost", "2")
		client("bye", true, 0, 0, "3").bye()
		client("bye", true, 100, 100, "4").bye()
		p := client("code4", true, 100, 0, "5")
		p.send(wire.AppendDisconnect(nil, wire.V5, wire.DisconnectWithWill, ""))
		p.wantEnd(0)
		shown("code4", "5")
		// The delay: cancelled by a session that goes on, ended by one that does not.
		_ = client("delay", true, 100, 100, "6").c.Close()
		client("delay", false, 100, 100, "").bye()
		_ = client("delay", false, 100, 100, "7").c.Close()
		watch.quiet()
		client("delay", true, 100, 100, "").bye()
		if at == shared { // mosquitto 2.0.11 forgets it, against 3.1.2-8
			shown("delay", "7")
		}
		_ = client("ends", true, 1, 100, "8").c.Close()
		shown("ends", "8") // with the session
		if at == shared {  // Takeover. mosquitto 2.0.11 publishes none, against 3.1.4-3
			client("taken", true, 100, 0, "9")
			p = client("taken", false, 100, 100, "10")
			shown("taken", "9")
			q := client("taken", false, 100, 0, "")
			p.wantEnd(wire.SessionTakenOver)
			watch.quiet()
			q.bye()
		}
		// A retained one is.
		req := clean(wire.V5)
		req.Will = &wire.Will{Topic: base + "/kept", Payload: []byte("11"), QoS: 1, Retain: true}
		_ = open(t, at, req).c.Close()
		shown("kept", "11")
		watch.subscribe(wire.Filter{Name: base + "/kept", QoS: 1})
		watch.wantArrive(base + "/kept=11 r1")
	})
}

// wantFresh wants messages with these topics, and no others but redelivered ones:
// an acknowledgement may be lost with the node.
func (p *peer) wantFresh(topics ...string) {
	p.t.Helper()
	for len(topics) > 0 {
		m := p.message()
		p.puback(m, wire.Success)
		if i := slices.Index(topics, string(m.Topic)); i >= 0 {
			topics = slices.Delete(topics, i, i+1)
		} else if !m.Dup {
			p.t.Errorf("got %s", m.Topic)
		}
	}
	p.send(wire.AppendPingreq(nil))
	for first, body := p.next(); first>>4 != wire.Pingresp; first, body = p.next() {
		if first&8 == 0 {
			p.t.Errorf("got % x", body)
		}
	}
}

// TestRetainedSurvivesKill: what has its PUBACK is retained after kill -9, and after
// a checkpoint; and what was removed stays so.
func TestRetainedSurvivesKill(t *testing.T) {
	n := harness.Start(t)
	p := open(t, n.Addresses, clean(wire.V5))
	const count = 200
	for i := range count {
		p.retain(1, fmt.Sprint("k/", i%50), fmt.Sprint(i))
	}
	p.retain(0, "zero", "0")
	p.retain(1, "removed", "x")
	p.retain(1, "removed", "")
	for round := range 2 {
		if round == 0 {
			n.Kill()
		} else {
			n.Stop()
		}
		n.Run()
		q := open(t, n.Addresses, clean(wire.V5))
		q.subscribe(wire.Filter{Name: "#", QoS: 1})
		var want []string
		for i := count - 50; i < count; i++ {
			want = append(want, fmt.Sprintf("k/%d=%d r1", i%50, i))
		}
		want = append(want, "zero=0 r0")
		slices.Sort(want)
		q.wantArrive(want...)
	}
}

// TestWillsSurviveKill: after kill -9 the will of a session that is kept is
// published, with its delay, once.
func TestWillsSurviveKill(t *testing.T) {
	n := harness.Start(t)
	watch := v5(name("watch"))
	w := open(t, n.Addresses, watch)
	w.subscribe(wire.Filter{Name: "will/#", QoS: 1})
	leave := func(id string, delay uint32) wire.ConnectRequest {
		req := v5(id)
		req.Will = &wire.Will{Topic: "will/" + id, Payload: []byte("x"), QoS: 1, Delay: delay, Retain: true}
		return req
	}
	open(t, n.Addresses, leave("now", 0))
	open(t, n.Addresses, leave("later", 1))
	open(t, n.Addresses, leave("back", 100))
	_ = open(t, n.Addresses, leave("pending", 3)).c.Close() // longer than the next steps take
	open(t, n.Addresses, leave("bye", 0)).bye()
	_ = open(t, n.Addresses, leave("done", 0)).c.Close()
	w.wantFresh("will/done")
	n.Kill()
	n.Run()
	open(t, n.Addresses, leave("back", 100))
	w = open(t, n.Addresses, watch)
	w.wantFresh("will/now", "will/pending", "will/later")
	n.Kill()
	n.Run()
	w = open(t, n.Addresses, watch)
	w.wantFresh() // not again
	s := open(t, n.Addresses, clean(wire.V5))
	s.subscribe(wire.Filter{Name: "will/#", QoS: 0})
	s.wantArrive("will/done=x r0", "will/later=x r0", "will/now=x r0", "will/pending=x r0")
}
