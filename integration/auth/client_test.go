package auth

import (
	"errors"
	"net"
	"net/url"
	"testing"

	"github.com/eclipse/paho.golang/paho"
	paho3 "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/trivium-mq/trivium/integration/harness"
)

// clients are the connections of the users, one per protocol, opened on demand.
type clients struct {
	n    *node
	t    testing.TB
	amqp map[string]*amqp.Connection
	kfk  map[string]*kgo.Client
}

func newClients(t testing.TB, n *node) *clients {
	return &clients{n: n, t: t, amqp: make(map[string]*amqp.Connection), kfk: make(map[string]*kgo.Client)}
}

// openAMQP connects a user to a tenant.
func (n *node) openAMQP(t testing.TB, user, password, tenant string) (*amqp.Connection, error) {
	c, err := amqp.Dial("amqp://" + url.UserPassword(user, password).String() + "@" + n.AMQP + "/" + url.PathEscape(tenant))
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func (c *clients) channel(user string) *amqp.Channel {
	c.t.Helper()
	conn := c.amqp[user]
	if conn == nil {
		var err error
		conn, err = c.n.openAMQP(c.t, user, user, "/")
		must(c.t, err)
		c.amqp[user] = conn
	}
	ch, err := conn.Channel() // fails if the last refusal took more than its channel
	must(c.t, err)
	return ch
}

// openKafka makes a client of a user; the connection comes with its first
// request.
func (n *node) openKafka(t testing.TB, user, password string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := n.OpenKafka(append([]kgo.Opt{
		kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()), kgo.RequestRetries(0), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	must(t, err)
	t.Cleanup(c.Close)
	return c
}

func (c *clients) kafka(user string) *kgo.Client {
	if c.kfk[user] == nil {
		c.kfk[user] = c.n.openKafka(c.t, user, user)
	}
	return c.kfk[user]
}

// mqtt5 is a client for MQTT 5 that keeps what it has got and acknowledged.
type mqtt5 struct {
	*paho.Client
	messages chan *paho.Publish
	goodbye  chan *paho.Disconnect
}

// openMQTT connects a user for MQTT 5. reason is that of CONNACK.
func (n *node) openMQTT(t testing.TB, id, user, password string) (c *mqtt5, reason byte) {
	t.Helper()
	conn, err := net.Dial("tcp", n.MQTT)
	must(t, err)
	c = &mqtt5{messages: make(chan *paho.Publish, 100), goodbye: make(chan *paho.Disconnect, 1)}
	c.Client = paho.NewClient(paho.ClientConfig{
		Conn: conn, Session: harness.NewAcknowledged(c.messages),
		OnServerDisconnect: func(d *paho.Disconnect) { c.goodbye <- d },
	})
	ack, err := c.Connect(soon(t), &paho.Connect{
		ClientID: id, KeepAlive: 30, CleanStart: true, UsernameFlag: true, Username: user, PasswordFlag: true, Password: []byte(password),
	})
	if ack == nil {
		t.Fatalf("no CONNACK: %v", err)
	}
	if err == nil {
		t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	}
	return c, ack.ReasonCode
}

// dialMQTT is openMQTT that must succeed.
func (n *node) dialMQTT(t testing.TB, id, user string) *mqtt5 {
	t.Helper()
	c, reason := n.openMQTT(t, id, user, user)
	if reason != 0 {
		t.Fatalf("CONNACK 0x%02x", reason)
	}
	return c
}

// open311 connects a user for MQTT 3.1.1.
func (n *node) open311(t testing.TB, id, user string, lost func(error)) paho3.Client {
	t.Helper()
	return n.DialMQTT(t, id, func(o *paho3.ClientOptions) {
		o.SetUsername(user).SetPassword(user).SetConnectionLostHandler(func(_ paho3.Client, err error) { lost(err) })
	})
}

// amqpCode returns the reply code of an error, 0 for none.
func amqpCode(t testing.TB, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*amqp.Error](err)
	if !ok {
		t.Fatalf("%v is no reply", err)
	}
	return e.Code
}
