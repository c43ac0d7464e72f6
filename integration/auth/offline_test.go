package auth

import (
	"net"
	"testing"

	"github.com/eclipse/paho.golang/paho"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
)

// resume connects a user for MQTT 5 with a session that is kept, and changes the
// CONNECT before.
func (n *node) resume(t testing.TB, id, user, password string, change ...func(*paho.Connect)) (c *mqtt5, ack *paho.Connack) {
	t.Helper()
	conn, err := net.Dial("tcp", n.MQTT)
	must(t, err)
	c = &mqtt5{messages: make(chan *paho.Publish, 100), goodbye: make(chan *paho.Disconnect, 1)}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn: conn, Session: harness.NewAcknowledged(c.messages),
		OnServerDisconnect: func(d *paho.Disconnect) { c.goodbye <- d },
	})
	forever := uint32(3600)
	connect := &paho.Connect{
		ClientID: id, KeepAlive: 30, UsernameFlag: true, Username: user, PasswordFlag: true, Password: []byte(password),
		Properties: &paho.ConnectProperties{SessionExpiryInterval: &forever},
	}
	for _, fn := range change {
		fn(connect)
	}
	if ack, err = c.Connect(soon(t), connect); ack == nil {
		t.Fatalf("no CONNACK: %v", err)
	}
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	return c, ack
}

func subscribe5(t testing.TB, c *mqtt5, filter string, qos byte) {
	t.Helper()
	_, err := c.Subscribe(soon(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: qos}}})
	must(t, err)
}

func publish5(t testing.TB, c *mqtt5, topic, text string, qos byte) {
	t.Helper()
	_, err := c.Publish(soon(t), &paho.Publish{Topic: topic, QoS: qos, Payload: []byte(text)})
	must(t, err)
}

// TestRevokeWhileAway: what the user of a session may read no longer he does not
// get when he comes back, of no level; with the right the backlog comes back.
func TestRevokeWhileAway(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", ".*", ".*")
	c, _ := n.resume(t, "away", "u", "u")
	subscribe5(t, c, "a/#", 2)
	subscribe5(t, c, "$share/g/a/#", 1)
	subscribe5(t, c, "b", 1)
	must(t, c.Disconnect(&paho.Disconnect{}))
	must(t, n.PutTopicPermission(soon(t), kernel.TopicPermission{Tenant: "/", User: "u", Exchange: "amq.topic", Write: ".*", Read: "^b"}))
	other := n.dialMQTT(t, "other", "guest")
	publish5(t, other, "a/1", "kept from him", 2)
	publish5(t, other, "b", "allowed", 1)

	c, ack := n.resume(t, "away", "u", "u")
	if !ack.SessionPresent {
		t.Error("the session has gone")
	}
	if m := within(t, c.messages, "a message"); string(m.Payload) != "allowed" {
		t.Errorf("got %s", m.Payload)
	}
	publish5(t, other, "a/1", "more", 1)
	publish5(t, other, "b", "last", 1)
	if m := within(t, c.messages, "the last message"); string(m.Payload) != "last" {
		t.Errorf("got %s", m.Payload)
	}
	must(t, c.Disconnect(&paho.Disconnect{}))

	must(t, n.DropTopicPermission(soon(t), "/", "u", "amq.topic"))
	c, _ = n.resume(t, "away", "u", "u")
	got := map[string]int{}
	for range 4 { // each by two subscriptions
		got[string(within(t, c.messages, "the backlog").Payload)]++
	}
	if got["kept from him"] != 2 || got["more"] != 2 {
		t.Errorf("got %v", got)
	}
}

// TestRefusedPublishes: without the right a publish of every kind is refused with
// 0x87 and leaves nothing.
func TestRefusedPublishes(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", "", ".*")
	watcher := n.dialMQTT(t, "watcher", "guest")
	subscribe5(t, watcher, "#", 2)
	c := n.dialMQTT(t, "c", "u")
	for qos := byte(1); qos <= 2; qos++ {
		for _, retain := range []bool{false, true} {
			for range 2 { // the number is free again
				ack, err := c.Publish(soon(t), &paho.Publish{Topic: "a", QoS: qos, Retain: retain, Payload: []byte("refused")})
				if ack == nil || ack.ReasonCode != refusedMQTT5 {
					t.Errorf("QoS %d, retain %v: %+v, %v", qos, retain, ack, err)
				}
			}
		}
	}
	_, ack := n.resume(t, "willing", "u", "u", func(p *paho.Connect) {
		p.WillMessage = &paho.WillMessage{Topic: "a", QoS: 1, Retain: true, Payload: []byte("will")}
	})
	if ack.ReasonCode != refusedMQTT5 { // at once, rather than lost at the end
		t.Errorf("a will that he may not publish: CONNACK 0x%02x", ack.ReasonCode)
	}
	publish5(t, watcher, "b", "allowed", 2)
	if m := within(t, watcher.messages, "a message"); string(m.Payload) != "allowed" {
		t.Errorf("got %s", m.Payload)
	}
	late := n.dialMQTT(t, "late", "guest")
	subscribe5(t, late, "a", 1)
	publish5(t, watcher, "a", "new", 1)
	if m := within(t, late.messages, "a message"); string(m.Payload) != "new" {
		t.Errorf("%s was retained", m.Payload)
	}
}
