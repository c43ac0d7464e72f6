package auth

import (
	"testing"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
)

// second makes a tenant in which the user may do everything.
func (n *node) second(t testing.TB, tenant, user string) {
	t.Helper()
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: tenant}))
	n.grant(t, tenant, user, ".*", ".*", ".*")
}

// round sends a message through all protocols of a tenant: Kafka to a topic that
// AMQP has declared and MQTT reads by its queue's address, MQTT to an AMQP queue
// by a binding.
func (n *node) round(t *testing.T, tenant, user string) {
	t.Helper()
	conn, err := n.openAMQP(t, user, user, tenant)
	must(t, err)
	ch, err := conn.Channel()
	must(t, err)
	harness.Declare(t, ch, "work")
	harness.Declare(t, ch, "bound", "a.#")
	k := n.openKafka(t, tenant+":"+user, user)
	must(t, k.ProduceSync(soon(t), &kgo.Record{Topic: "work", Value: []byte("of " + tenant)}).FirstErr())
	m, reason := n.openMQTT(t, "client", tenant+":"+user, user)
	if reason != 0 {
		t.Fatalf("CONNACK 0x%02x", reason)
	}
	subscribe5(t, m, "$queue/work", 1)
	if got := within(t, m.messages, "the record"); string(got.Payload) != "of "+tenant {
		t.Errorf("tenant %s has %s", tenant, got.Payload)
	}
	_, err = m.Publish(soon(t), &paho.Publish{Topic: "a/b", QoS: 2, Retain: true, Payload: []byte("at " + tenant)})
	must(t, err)
	harness.Wait(t, harness.Patience, "the message", func() bool {
		d, ok, err := ch.Get("bound", true)
		must(t, err)
		if ok && string(d.Body) != "at "+tenant {
			t.Errorf("tenant %s has %s", tenant, d.Body)
		}
		return ok
	})
	c := n.openKafka(t, tenant+":"+user, user, kgo.ConsumeTopics("work"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for got := 0; got == 0; {
		f := c.PollFetches(soon(t))
		must(t, f.Err())
		f.EachRecord(func(r *kgo.Record) {
			if got++; string(r.Value) != "of "+tenant {
				t.Errorf("tenant %s has %s", tenant, r.Value)
			}
		})
	}
	must(t, m.Disconnect(&paho.Disconnect{}))
	must(t, conn.Close())
}

// TestTenantsDoNotMeet: the same names in two tenants are different things, over
// all protocols; the same client id is two sessions.
func TestTenantsDoNotMeet(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	n.user(t, "u")
	n.second(t, "one", "u")
	n.second(t, "two", "u")
	n.round(t, "one", "u")
	n.round(t, "two", "u")

	first, _ := n.resume(t, "same", "one:u", "u")
	second, ack := n.resume(t, "same", "two:u", "u")
	if ack.SessionPresent {
		t.Error("a session of another tenant is present")
	}
	subscribe5(t, first, "s/#", 2)
	subscribe5(t, second, "s/#", 2)
	publish5(t, first, "s/1", "one", 2)
	publish5(t, second, "s/1", "two", 2)
	for want, c := range map[string]*mqtt5{"one": first, "two": second} {
		if m := within(t, c.messages, "a message"); string(m.Payload) != want {
			t.Errorf("tenant %s got %s", want, m.Payload)
		}
	}
	subscribe5(t, first, "a/b", 1)
	if m := within(t, first.messages, "the retained message"); string(m.Payload) != "at one" || !m.Retain {
		t.Errorf("%s is retained", m.Payload)
	}
	must(t, first.Disconnect(&paho.Disconnect{}))
	must(t, second.Disconnect(&paho.Disconnect{}))

	n.stop()
	n = start(t, dir)
	for _, tenant := range []string{"one", "two"} {
		writer, _ := n.openMQTT(t, "writer", tenant+":u", "u")
		publish5(t, writer, "s/2", "later in "+tenant, 2)
		c, ack := n.resume(t, "same", tenant+":u", "u")
		if m := within(t, c.messages, "a message"); string(m.Payload) != "later in "+tenant || !ack.SessionPresent {
			t.Errorf("tenant %s got %s, present %v", tenant, m.Payload, ack.SessionPresent)
		}
	}
}

// TestTenantDroppedUnderClients: those connected to it are told and cut off, other
// tenants go on, and one of the same name begins with nothing.
func TestTenantDroppedUnderClients(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.second(t, "doomed", "u")
	n.second(t, "other", "u")
	n.round(t, "other", "u")
	n.round(t, "doomed", "u")
	conn, err := n.openAMQP(t, "u", "u", "doomed")
	must(t, err)
	ch, err := conn.Channel()
	must(t, err)
	_, err = ch.Consume("bound", "", true, false, false, false, nil)
	must(t, err)
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	session, _ := n.resume(t, "kept", "doomed:u", "u")
	subscribe5(t, session, "s/#", 2)
	k := n.openKafka(t, "doomed:u", "u")
	must(t, k.ProduceSync(soon(t), &kgo.Record{Topic: "work", Value: []byte("1")}).FirstErr())

	must(t, n.DropTenant(soon(t), "doomed"))
	if e := within(t, closed, "connection.close"); e == nil || e.Code != amqp.ConnectionForced {
		t.Errorf("connection.close: %v", e)
	}
	if d := within(t, session.goodbye, "DISCONNECT"); d.ReasonCode < 0x80 {
		t.Errorf("DISCONNECT 0x%02x", d.ReasonCode)
	}
	if err := n.openKafka(t, "doomed:u", "u").Ping(soon(t)); err == nil { // (producing, it would try for ever)
		t.Error("a login to a tenant that is gone")
	}
	if _, reason := n.openMQTT(t, "x", "doomed:u", "u"); reason < 0x80 {
		t.Errorf("CONNACK 0x%02x", reason)
	}
	if _, err := n.openAMQP(t, "u", "u", "doomed"); amqpCode(t, err) != amqp.NotAllowed {
		t.Errorf("connection.open: %v", err)
	}
	n.round(t, "other", "u") // with what it has; the queues were drained

	n.second(t, "doomed", "u")
	again, ack := n.resume(t, "kept", "doomed:u", "u")
	if ack.SessionPresent {
		t.Error("its session outlived the tenant")
	}
	subscribe5(t, again, "a/#", 1)
	publish5(t, again, "a/b", "new", 1)
	if m := within(t, again.messages, "a message"); string(m.Payload) != "new" {
		t.Errorf("%s outlived the tenant", m.Payload)
	}
	if list := n.Tenants(); len(list) != 3 {
		t.Errorf("%+v", list)
	}
}
