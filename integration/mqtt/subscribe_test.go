package mqtt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

func splitWords(s string) []string { return strings.Fields(s) }

// 4.7: which filters match which names, for live and for durable subscriptions.
func TestFiltersMatchNames(t *testing.T) {
	root := name("f")
	cases := map[string]string{ // filter: names it matches
		"R/a":     "R/a",
		"R/+":     "R/a R/",
		"R/#":     "R R/a R/a/b R/ R//a",
		"R/+/b":   "R/a/b",
		"R//+":    "R//a",
		"+/R":     "/R x/R",
		"R/+/#":   "R/a R/a/b R/ R//a",
		"$R/#":    "$R/a",
		"+/R/sys": "x/R/sys",
	}
	published := splitWords("R R/a R/a/b R/ R//a /R x/R $R/a $x/R x/R/sys $x/R/sys")
	for _, durable := range []bool{false, true} {
		for filter, matches := range cases {
			req := clean(wire.V5)
			if durable {
				req = v5(name("c"))
			}
			p := open(t, shared, req)
			r := name(root)
			p.subscribe(wire.Filter{Name: strings.ReplaceAll(filter, "R", r), QoS: 1})
			pub := open(t, shared, clean(wire.V5))
			for _, n := range published {
				pub.publish(strings.ReplaceAll(n, "R", r), n)
			}
			p.wantMessages(true, splitWords(matches)...)
			p.quiet()
		}
	}
}

// 3.8.4: SUBACK codes in order; a subscription again replaces the first, loses
// nothing, and its options count from then on.
func TestResubscribe(t *testing.T) {
	topic := name("t")
	p := open(t, shared, v5(name("c")))
	got := p.subscribeID(1, wire.Filter{Name: topic, QoS: 1}, wire.Filter{Name: topic + "/#", QoS: 0}, wire.Filter{Name: "$queue/" + name("none"), QoS: 1})
	if !slices.Equal(got, []byte{1, 0, 0x80}) {
		t.Errorf("% x", got)
	}
	pub := open(t, shared, clean(wire.V5))
	pub.publish(topic, "1")
	a, b := p.message(), p.message() // overlapping: a copy for each
	if string(a.Payload) != "1" || string(b.Payload) != "1" || a.QoS+b.QoS != 1 {
		t.Errorf("%+v %+v", a, b)
	}
	held := a
	if b.QoS == 1 {
		held = b
	}
	p.unsubscribe(topic + "/#")
	p.subscribeID(2, wire.Filter{Name: topic, QoS: 1})
	pub.publish(topic, "2")
	if m := p.wantMessages(true, "2")[0]; props(t, m) != "11:2" {
		t.Errorf("%q", props(t, m))
	}
	p.puback(held, wire.Success) // of the replaced subscription
	if got := p.unsubscribe(topic, topic); !slices.Equal(got, []byte{0, 0x11}) {
		t.Errorf("% x", got)
	}
	pub.publish(topic, "3")
	p.quiet()
}

// 3.8.3-3: No Local, live and durable.
func TestNoLocal(t *testing.T) {
	topic := name("t")
	for _, req := range []wire.ConnectRequest{clean(wire.V5), v5(name("c"))} {
		p := open(t, shared, req)
		p.subscribe(wire.Filter{Name: topic, QoS: 1, Options: wire.OptionNoLocal})
		p.publish(topic, "mine")
		open(t, shared, clean(wire.V5)).publish(topic, "other")
		p.wantMessages(true, "other")
		p.quiet()
	}
}

// 4.8.2: each message of a shared subscription goes to one member; unacknowledged
// ones go to another member when theirs goes; a refused one to nobody.
func TestSharedSubscription(t *testing.T) {
	topic := name("t")
	var members []*peer
	for i := range 3 {
		req := clean(wire.V5)
		if i == 2 {
			req = clean(wire.V311)
		}
		m := open(t, shared, req)
		if got := m.subscribe(wire.Filter{Name: "$share/workers/" + topic + "/#", QoS: 1}); !slices.Equal(got, []byte{1}) {
			t.Fatalf("% x", got)
		}
		members = append(members, m)
	}
	pub := open(t, shared, clean(wire.V5))
	for _, s := range series(0, 30) {
		if code := pub.publish(topic+"/x", s); code != 0 {
			t.Fatalf("PUBACK 0x%02x", code)
		}
	}
	seen := map[string]int{}
	for i, m := range members {
		for range 10 { // equal credit, equal share
			msg := m.message()
			seen[string(msg.Payload)]++
			switch {
			case i == 0: // holds all
			case i == 1 && len(seen) == 11:
				m.puback(msg, wire.UnspecifiedError)
			default:
				m.puback(msg, wire.Success)
			}
		}
		m.quiet()
	}
	if len(seen) != 30 {
		t.Errorf("%d different messages", len(seen))
	}
	_ = members[0].c.Close()
	again := map[string]int{}
	for i, n := range []int{5, 5} {
		for range n {
			msg := members[i+1].message()
			again[string(msg.Payload)]++
			if !msg.Dup {
				t.Error("DUP not set")
			}
			members[i+1].puback(msg, wire.Success)
		}
	}
	if len(again) != 10 {
		t.Errorf("%v again", again)
	}
	members[1].quiet()
	members[2].quiet()
}

// $queue/q joins the group of a queue that is there, and never makes one.
func TestQueueAddress(t *testing.T) {
	queue := name("queue")
	p := open(t, shared, v5(name("c")))
	p.send((&wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: "$queue/" + queue, QoS: 1}}}).Append(nil, wire.V5))
	body := p.want(wire.Suback)
	if !strings.Contains(string(body), queue) || body[len(body)-1] != 0x80 {
		t.Errorf("SUBACK %q", body)
	}
	_, ch := shared.DialAMQP(t)
	harness.Declare(t, ch, queue)
	for i := range 20 {
		must(t, ch.Publish("", queue, false, false, amqp091.Publishing{Body: fmt.Append(nil, i), DeliveryMode: 2}))
	}
	if got := p.subscribe(wire.Filter{Name: "$queue/" + queue, QoS: 1}); !slices.Equal(got, []byte{1}) {
		t.Fatalf("% x", got)
	}
	for _, m := range p.wantMessages(true, series(0, 20)...) {
		if string(m.Topic) != queue {
			t.Errorf("topic %s", m.Topic)
		}
	}
	_, err := ch.QueueDelete(queue, false, false, false)
	must(t, err)
	p.wantEnd(wire.AdministrativeAction)
}

// 3.10.4: what is under way when a client unsubscribes may still be acknowledged.
func TestUnsubscribeUnderWay(t *testing.T) {
	topic := name("t")
	p := open(t, shared, v5(name("c")))
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	open(t, shared, clean(wire.V5)).publish(topic, "1")
	m := p.wantMessages(false, "1")[0]
	if got := p.unsubscribe(topic); !slices.Equal(got, []byte{0}) {
		t.Errorf("% x", got)
	}
	p.puback(m, wire.Success)
	p.quiet()
}
