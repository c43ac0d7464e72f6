package auth

import (
	"fmt"
	"strings"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

func specOf(name string, password *string) broker.UserSpec {
	return broker.UserSpec{Name: name, Password: password}
}

// TestAccess: who may enter which tenant, over all protocols.
func TestAccess(t *testing.T) {
	n := start(t, t.TempDir())
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: "other"}))
	n.user(t, "u")
	n.grant(t, "other", "u", ".*", ".*", ".*")
	for _, tc := range []struct {
		tenant, user, password string
		amqp                   int
		text                   string
		mqtt                   byte
	}{
		{"other", "u", "u", 0, "", 0},
		{"/", "u", "u", 530, "access to vhost '/' refused for user 'u'", 0x87},
		{"none", "u", "u", 530, "vhost none not found", 0x86},
		{"other", "u", "wrong", 403, "", 0x86},
		{"other", "nobody", "x", 403, "", 0x86},
		{"other", "guest", "guest", 530, "access to vhost 'other' refused for user 'guest'", 0x87},
		{"/", "guest", "guest", 0, "", 0},
	} {
		what := fmt.Sprintf("%s at %s", tc.user, tc.tenant)
		_, err := n.openAMQP(t, tc.user, tc.password, tc.tenant)
		if code := amqpCode(t, err); code != tc.amqp || code == 530 && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("AMQP, %s: %v", what, err)
		}
		if _, reason := n.openMQTT(t, "access", tc.tenant+":"+tc.user, tc.password); reason != tc.mqtt {
			t.Errorf("MQTT, %s: 0x%02x", what, reason)
		}
		_, err = n.openKafka(t, tc.tenant+":"+tc.user, tc.password, kgo.RetryTimeout(1)).Request(soon(t), kmsg.NewPtrMetadataRequest())
		if (err == nil) != (tc.amqp == 0) {
			t.Errorf("Kafka, %s: %v", what, err)
		}
	}
}

// TestListing: metadata lists what a user has any right to.
func TestListing(t *testing.T) {
	n := start(t, t.TempDir())
	setUp(t, n)
	for user, want := range map[string]string{"conf": "x-q x-t", "wr": "x-q x-t", "none": "", "topical": "x-q x-t y-q y-t"} {
		resp, err := n.openKafka(t, user, user).Broker(1).Request(soon(t), kmsg.NewPtrMetadataRequest())
		must(t, err)
		var names []string
		for _, topic := range resp.(*kmsg.MetadataResponse).Topics {
			names = append(names, *topic.Topic)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s sees %q, want %q", user, got, want)
		}
	}
}

// TestExactName: a publish over MQTT goes into a queue of that name only with the
// right to write to it, and otherwise where it goes without.
func TestExactName(t *testing.T) {
	n := start(t, t.TempDir())
	_, ch := n.DialAMQP(t)
	harness.Declare(t, ch, "a/b")
	harness.Declare(t, ch, "bound", "a.b")
	for _, tc := range []struct{ user, write string }{{"may", ".*"}, {"maynot", "^amq\\.topic$"}} {
		n.user(t, tc.user)
		n.grant(t, "/", tc.user, "", tc.write, "")
		c := n.dialMQTT(t, tc.user, tc.user)
		if got := actMQTT5(t, c, row{act: "publish", name: "a/b"}); got != 0 {
			t.Errorf("%s: 0x%02x", tc.user, got)
		}
	}
	for queue, want := range map[string]int{"a/b": 1, "bound": 2} {
		got := 0
		for {
			_, ok, err := ch.Get(queue, true)
			must(t, err)
			if !ok {
				break
			}
			got++
		}
		if got != want {
			t.Errorf("%d in %s, want %d", got, queue, want)
		}
	}
}

// TestProvision: a publish to the default exchange makes the queue only with the
// right to configure it.
func TestProvision(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "^mine", "^amq\\.default$", "")
	ch := newClients(t, n).channel("u")
	for _, queue := range []string{"mine", "theirs"} {
		must(t, publishAMQP(ch, "", queue))
		ch = mustChannel(t, n, "u")
	}
	_, admin := n.DialAMQP(t)
	if q, err := admin.QueueDeclarePassive("mine", true, false, false, false, nil); err != nil || q.Messages != 1 {
		t.Errorf("%d messages, %v", q.Messages, err)
	}
	if _, err := admin.QueueDeclarePassive("theirs", true, false, false, false, nil); amqpCode(t, err) != missingAMQP {
		t.Errorf("a queue was made: %v", err)
	}
}

func mustChannel(t *testing.T, n *node, user string) *amqp.Channel {
	t.Helper()
	return newClients(t, n).channel(user)
}

// TestClientID: {client_id} and {username} in topic permissions.
func TestClientID(t *testing.T) {
	n := start(t, t.TempDir())
	n.user(t, "u")
	n.grant(t, "/", "u", "", ".*", ".*")
	must(t, n.PutTopicPermission(soon(t), kernel.TopicPermission{
		Tenant: "/", User: "u", Exchange: "amq.topic", Write: "^{username}\\.{client_id}\\.", Read: "^{client_id}\\.",
	}))
	c := n.dialMQTT(t, "c.1", "u")
	for _, tc := range []struct {
		act, name string
		want      int
	}{
		{"publish", "u/c.1/x", 0}, {"publish", "u/cx1/x", refusedMQTT5}, {"publish", "c.1/x", refusedMQTT5},
		{"subscribe", "c.1/#", 0}, {"subscribe", "u/#", refusedMQTT5},
	} {
		if got := actMQTT5(t, c, row{act: tc.act, name: tc.name}); got != tc.want {
			t.Errorf("%s %s: 0x%02x", tc.act, tc.name, got)
		}
	}
}

// TestRestart: users, tenants and what is in them are there after a restart, and
// what was dropped is not.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir)
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: "keep", Description: "d", Tags: []string{"t"}}))
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: "drop"}))
	n.user(t, "u")
	n.user(t, "gone")
	for _, tenant := range []string{"keep", "drop"} {
		n.grant(t, tenant, "u", ".*", ".*", ".*")
		conn, err := n.openAMQP(t, "u", "u", tenant)
		must(t, err)
		ch, err := conn.Channel()
		must(t, err)
		harness.Declare(t, ch, "q", "a.#")
		must(t, publishAMQP(ch, "amq.topic", "a.b"))
		closed := conn.NotifyClose(make(chan *amqp.Error, 1))
		c, reason := n.openMQTT(t, "c", tenant+":u", "u")
		if reason != 0 {
			t.Fatalf("0x%02x", reason)
		}
		_, err = c.Subscribe(soon(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "a/#", QoS: 1}}})
		must(t, err)
		if tenant == "drop" {
			must(t, n.DropTenant(soon(t), tenant))
			within(t, closed, "the end of the connection")
			within(t, c.goodbye, "DISCONNECT")
		}
	}
	must(t, n.DropUser(soon(t), "gone"))
	for range 2 {
		if _, err := n.openAMQP(t, "u", "u", "drop"); amqpCode(t, err) != 530 {
			t.Errorf("a dropped tenant: %v", err)
		}
		if _, err := n.User("gone"); kernel.CodeOf(err) != kernel.CodeNotFound {
			t.Errorf("a dropped user: %v", err)
		}
		if tenant, err := n.Tenant("keep"); err != nil || tenant.Description != "d" || len(tenant.Tags) != 1 {
			t.Errorf("%+v, %v", tenant, err)
		}
		n.stop()
		n = start(t, dir)
	}
	conn, err := n.openAMQP(t, "u", "u", "keep")
	must(t, err)
	ch, err := conn.Channel()
	must(t, err)
	if d, ok, err := ch.Get("q", true); err != nil || !ok || string(d.Body) != "m" {
		t.Errorf("%v, %v", ok, err)
	}
	// A tenant of the same name is another one.
	must(t, n.PutTenant(soon(t), kernel.Tenant{Name: "drop"}))
	n.grant(t, "drop", "u", ".*", ".*", ".*")
	if conn, err = n.openAMQP(t, "u", "u", "drop"); err != nil {
		t.Fatal(err)
	}
	if ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclarePassive("q", true, false, false, false, nil); amqpCode(t, err) != missingAMQP {
		t.Errorf("its queue came back: %v", err)
	}
}

// TestAdmin: the administrator of the configuration takes guest's place.
func TestAdmin(t *testing.T) {
	dir := t.TempDir()
	admin := broker.Admin{User: "root", Password: "secret"}
	set := func(cfg *broker.Config) { cfg.Admin = admin }
	n := start(t, dir, set)
	if _, err := n.openAMQP(t, "guest", "guest", "/"); amqpCode(t, err) != 403 {
		t.Errorf("guest: %v", err)
	}
	_, err := n.openAMQP(t, "root", "secret", "/")
	must(t, err)
	u, err := n.User("root")
	if must(t, err); !u.HasTag(kernel.TagAdministrator) || len(u.Scram) != 2 {
		t.Errorf("%+v", u)
	}
	n.stop()
	admin = broker.Admin{User: "root", PasswordHash: "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"}
	n = start(t, dir, set)
	if _, err := n.openAMQP(t, "root", "secret", "/"); amqpCode(t, err) != 403 {
		t.Errorf("the old password: %v", err)
	}
	_, err = n.openAMQP(t, "root", "test12", "/") // RabbitMQ's documented hash
	must(t, err)
}

// TestAnonymous: without credentials a client is the user that the settings
// name.
func TestAnonymous(t *testing.T) {
	settings := broker.DefaultSettings()
	settings.AnonymousUser = "nobody"
	n := start(t, t.TempDir(), func(cfg *broker.Config) { cfg.Settings = settings })
	ask := func() error {
		c, err := n.OpenKafka(kgo.RetryTimeout(1))
		must(t, err)
		defer c.Close()
		_, err = c.Request(soon(t), kmsg.NewPtrMetadataRequest())
		return err
	}
	if err := ask(); err == nil {
		t.Error("there is no such user yet")
	}
	must(t, n.PutUser(soon(t), broker.UserSpec{Name: "nobody"}))
	n.grant(t, "/", "nobody", "", "", ".*")
	must(t, ask())
	if _, err := n.openAMQP(t, "nobody", "", "/"); err == nil {
		t.Error("a user without a password logs in")
	}
}
