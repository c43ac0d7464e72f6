package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Those that begin with Open return errors, for clients that outlive a broker;
// those that begin with Dial fail the test, and end what they open with it.

// OpenAMQP connects as guest and opens a channel. Closing the socket ends the
// connection without a goodbye.
func (a Addresses) OpenAMQP() (conn *amqp.Connection, ch *amqp.Channel, socket net.Conn, err error) {
	conn, err = amqp.DialConfig("amqp://guest:guest@"+a.AMQP+"/", amqp.Config{
		Dial: func(network, addr string) (c net.Conn, err error) {
			c, err = amqp.DefaultDial(Patience)(network, addr)
			socket = c
			return c, err
		},
	})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect to %s: %w", a.AMQP, err)
	}
	if ch, err = conn.Channel(); err != nil {
		_ = conn.Close()
		return nil, nil, nil, fmt.Errorf("open a channel: %w", err)
	}
	return conn, ch, socket, nil
}

// DialAMQP connects as guest and opens a channel.
func (a Addresses) DialAMQP(t testing.TB) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, ch, _, err := a.OpenAMQP()
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn, ch
}

// Declare declares a durable queue and binds it to amq.topic by each key.
func Declare(t testing.TB, ch *amqp.Channel, queue string, keys ...string) {
	t.Helper()
	_, err := ch.QueueDeclare(queue, true, false, false, false, nil)
	Must(t, err)
	for _, key := range keys {
		Must(t, ch.QueueBind(queue, key, "amq.topic", false, nil))
	}
}

// Confirmed publishes on a channel in confirm mode and waits for the confirm.
func Confirmed(t testing.TB, ch *amqp.Channel, exchange, key string, p amqp.Publishing) {
	t.Helper()
	c, err := ch.PublishWithDeferredConfirm(exchange, key, false, false, p)
	Must(t, err)
	if !c.Wait() {
		t.Fatal("not confirmed")
	}
}

// OpenMQTT connects a client for MQTT 3.1.1 that does not reconnect. Closing the
// socket ends the connection without a goodbye.
func (a Addresses) OpenMQTT(id string, set ...func(*mqtt.ClientOptions)) (c mqtt.Client, socket net.Conn, err error) {
	o := mqtt.NewClientOptions().AddBroker("tcp://" + a.MQTT).SetClientID(id).SetProtocolVersion(4).SetAutoReconnect(false)
	o.SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (c net.Conn, err error) {
		c, err = net.DialTimeout("tcp", a.MQTT, Patience)
		socket = c
		return c, err
	})
	for _, s := range set {
		s(o)
	}
	c = mqtt.NewClient(o)
	if err := done(c.Connect()); err != nil {
		return nil, nil, fmt.Errorf("connect %s to %s: %w", id, a.MQTT, err)
	}
	return c, socket, nil
}

// DialMQTT connects a client for MQTT 3.1.1 that does not reconnect.
func (a Addresses) DialMQTT(t testing.TB, id string, set ...func(*mqtt.ClientOptions)) mqtt.Client {
	t.Helper()
	c, _, err := a.OpenMQTT(id, set...)
	Must(t, err)
	t.Cleanup(func() { c.Disconnect(0) })
	return c
}

// Done waits for what an MQTT client does, which must succeed.
func Done(t testing.TB, tok mqtt.Token) {
	t.Helper()
	Must(t, done(tok))
}

func done(tok mqtt.Token) error {
	if !tok.WaitTimeout(Patience) {
		return fmt.Errorf("no answer within %v", Patience)
	}
	return tok.Error()
}

// OpenKafka makes a client that looks again soon for topics that others make.
func (a Addresses) OpenKafka(opts ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(a.Kafka), kgo.MetadataMinAge(10 * time.Millisecond), kgo.AllowAutoTopicCreation(), kgo.FetchMaxWait(2 * time.Second),
	}, opts...)...)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", a.Kafka, err)
	}
	return c, nil
}

// DialKafka is OpenKafka for one test.
func (a Addresses) DialKafka(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := a.OpenKafka(opts...)
	Must(t, err)
	t.Cleanup(c.Close)
	return c
}

// Records polls until there are as many records as wanted.
func Records(ctx context.Context, c *kgo.Client, want int) ([]*kgo.Record, error) {
	var got []*kgo.Record
	for len(got) < want {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return got, fmt.Errorf("after %d of %d records: %w", len(got), want, err)
		}
		got = append(got, fetches.Records()...)
	}
	return got, nil
}

// Refused has a Kafka client take a node that refuses connections for one that does not
// answer: kgo ends a member's session, and gives up its partitions, if it happens to ask such a node who
// coordinates the group. Other clients try again.
func Refused() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}
		}
		return c, err
	})
}
