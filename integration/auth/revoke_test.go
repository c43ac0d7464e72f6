package auth

import (
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
)

// within returns what comes from a channel, or fails the test.
func within[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(harness.Patience):
		t.Fatalf("%s did not come", what)
	}
	return v
}

// TestRevokeAMQP withdraws rights from an open connection: reading ends with
// basic.cancel, publishing with 403 at the next one, access with the connection.
func TestRevokeAMQP(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", ".*", ".*", ".*")
	c := newClients(t, n)
	ch := c.channel("u")
	harness.Declare(t, ch, "q")
	harness.Declare(t, ch, "r")
	cancels := ch.NotifyCancel(make(chan string, 2))
	_, err := ch.Consume("q", "reads-q", false, false, false, false, nil)
	must(t, err)
	deliveries, err := ch.Consume("r", "reads-r", true, false, false, false, nil)
	must(t, err)
	must(t, ch.Publish("", "r", false, false, amqp.Publishing{Body: []byte("1")}))
	within(t, deliveries, "a delivery")

	// A changed password leaves the connection alone, and so do equal rights.
	other := "other"
	must(t, n.PutUser(soon(t), specOf("u", &other)))
	n.grant(t, "/", "u", ".*", ".*", "^r$")
	if tag := within(t, cancels, "basic.cancel"); tag != "reads-q" {
		t.Errorf("%s was cancelled", tag)
	}
	must(t, ch.Publish("", "r", false, false, amqp.Publishing{Body: []byte("2")}))
	if d := within(t, deliveries, "a delivery"); string(d.Body) != "2" {
		t.Errorf("got %s", d.Body)
	}

	n.grant(t, "/", "u", ".*", "^q$", "^r$")
	pub := c.channel("u")
	if code := amqpCode(t, publishAMQP(pub, "", "r")); code != refusedAMQP {
		t.Errorf("publish: %d", code)
	}

	closed := c.amqp["u"].NotifyClose(make(chan *amqp.Error, 1))
	must(t, n.DropPermission(soon(t), "/", "u"))
	if e := within(t, closed, "connection.close"); e == nil {
		t.Error("it closed without a reason")
	}
	if _, err := n.openAMQP(t, "u", "other", "/"); amqpCode(t, err) != 530 && amqpCode(t, err) != 403 {
		t.Errorf("it opened again: %v", err)
	}
}

// TestRevokeMQTT withdraws rights from open connections: with a subscription
// that he may not have any more the client is disconnected with 0x87, stored or
// live.
func TestRevokeMQTT(t *testing.T) {
	n := start(t, t.TempDir())
	for _, tc := range []struct {
		name, filter string
		expiry       uint32
		withdraw     func(user string)
	}{
		{"live", "a/#", 0, func(user string) { n.grant(t, "/", user, "", ".*", "") }},
		{"stored", "a/#", 100, func(user string) { n.grant(t, "/", user, "", ".*", "") }},
		{"shared", "$share/g/a/#", 0, func(user string) { n.grant(t, "/", user, "", ".*", "^amq\\.topic$") }},
		{"key", "a/#", 100, func(user string) {
			must(t, n.PutTopicPermission(soon(t), kernel.TopicPermission{Tenant: "/", User: user, Exchange: "amq.topic", Read: "^b"}))
		}},
		{"user", "a/#", 0, func(user string) { must(t, n.DropUser(soon(t), user)) }},
		{"access", "a/#", 0, func(user string) { must(t, n.DropPermission(soon(t), "/", user)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := "user-" + tc.name
			n.user(t, user)
			n.grant(t, "/", user, "", ".*", ".*")
			c := n.dialMQTT(t, "revoke-"+tc.name, user)
			bystander := n.dialMQTT(t, "bystander-"+tc.name, "guest")
			for _, client := range []*mqtt5{c, bystander} {
				_, err := client.Subscribe(soon(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: tc.filter, QoS: 1}}})
				must(t, err)
			}
			tc.withdraw(user)
			if d := within(t, c.goodbye, "DISCONNECT"); d.ReasonCode != refusedMQTT5 {
				t.Errorf("reason 0x%02x", d.ReasonCode)
			}
			_, err := bystander.Publish(soon(t), &paho.Publish{Topic: "a/b", QoS: 1, Payload: []byte("m")})
			must(t, err)
			within(t, bystander.messages, "a message for the other one")
		})
	}
}

// TestRevokeMQTTPublish: the next publish is refused, the connection stays.
func TestRevokeMQTTPublish(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", ".*", ".*")
	c := n.dialMQTT(t, "c", "u")
	publish := row{act: "publish", name: "a/b"}
	if got := actMQTT5(t, c, publish); got != 0 {
		t.Errorf("0x%02x", got)
	}
	n.grant(t, "/", "u", "", "", ".*")
	if got := actMQTT5(t, c, publish); got != refusedMQTT5 {
		t.Errorf("0x%02x", got)
	}
	n.grant(t, "/", "u", "", ".*", ".*")
	if got := actMQTT5(t, c, publish); got != 0 {
		t.Errorf("0x%02x", got)
	}
}

// TestRefusedPublish311: version 3.1.1 has no refusal, so the connection ends.
func TestRefusedPublish311(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", "", ".*")
	lost := make(chan error, 1)
	c := n.open311(t, "c", "u", func(err error) { lost <- err })
	harness.Done(t, c.Publish("a", 0, false, "m")) // dropped
	c.Publish("a", 1, false, "m")
	within(t, lost, "the end of the connection")
}

// TestRevokeKafka withdraws rights between the requests of one connection, and
// then the user.
func TestRevokeKafka(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", ".*", ".*", ".*")
	c := n.openKafka(t, "u", "u", kgo.RequestRetries(0))
	must(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("1")}).FirstErr())
	fetch := func() int16 {
		t.Helper()
		resp, err := c.Broker(1).Request(soon(t), fetchRequest(t, n, "t", 0))
		must(t, err)
		return resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode
	}
	if code := fetch(); code != 0 {
		t.Errorf("fetch: %d", code)
	}
	n.grant(t, "/", "u", ".*", "^other$", "^other$")
	if code := fetch(); code != refusedTopic {
		t.Errorf("fetch: %d", code)
	}
	if code := kafkaCode(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("2")}).FirstErr()); code != refusedTopic {
		t.Errorf("produce: %d", code)
	}
	must(t, n.DropUser(soon(t), "u"))
	// His connection is closed; a request that comes before that is refused.
	for ctx := soon(t); ; {
		resp, err := c.Broker(1).Request(ctx, fetchRequest(t, n, "t", 0))
		must(t, ctx.Err())
		if err != nil {
			break
		}
		if code := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].ErrorCode; code != refusedTopic {
			t.Fatalf("a user that is gone fetches: %d", code)
		}
	}
}

// TestRevokeWaitingFetch: what is appended after the right is withdrawn does not
// reach a fetch that has been waiting since before.
func TestRevokeWaitingFetch(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", ".*", ".*", ".*")
	c := n.openKafka(t, "u", "u")
	must(t, c.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("1")}).FirstErr())
	got := make(chan int16, 1)
	req := fetchRequest(t, n, "t", 1)
	req.MaxWaitMillis, req.MinBytes = 60000, 1
	go func() {
		resp, err := c.Broker(1).Request(soon(t), req)
		if err != nil {
			t.Error(err)
			got <- -1
			return
		}
		p := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
		if len(p.RecordBatches) > 0 {
			t.Error("records came")
		}
		got <- p.ErrorCode
	}()
	n.grant(t, "/", "u", ".*", ".*", "")
	guest := n.openKafka(t, "guest", "guest")
	must(t, guest.ProduceSync(soon(t), &kgo.Record{Topic: "t", Value: []byte("2")}).FirstErr())
	if code := within(t, got, "the answer"); code != refusedTopic {
		t.Errorf("code %d", code)
	}
}

// TestLaterQueue: a subscription to a name which later becomes somebody's queue
// ends if its user may not read that.
func TestLaterQueue(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", "", "^amq\\.topic$")
	c := n.dialMQTT(t, "c", "u")
	if got := actMQTT5(t, c, row{act: "subscribe", name: "jobs"}); got != 0 {
		t.Fatalf("0x%02x", got)
	}
	_, ch := n.DialAMQP(t)
	harness.Declare(t, ch, "jobs")
	if d := within(t, c.goodbye, "DISCONNECT"); d.ReasonCode != refusedMQTT5 {
		t.Errorf("reason 0x%02x", d.ReasonCode)
	}
}
