// Package amqp tests the AMQP front-end from outside: real clients, real
// sockets, the real binary.
//
// With TRIVIUM_AMQP_ADDR=host:port the tests run against that broker instead,
// but for those of what is ours alone; which is how the table of errors was
// compared with RabbitMQ.
package amqp

import (
	"os"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// shared is the node that most tests use together, with names of their own.
var shared = harness.Addresses{AMQP: os.Getenv("TRIVIUM_AMQP_ADDR")}

// external reports whether the tests run against some other broker.
var external = shared.AMQP != ""

func TestMain(m *testing.M) {
	if external {
		os.Exit(m.Run())
	}
	os.Exit(harness.Shared(m, &shared))
}

// ownOnly skips what other brokers do differently on purpose.
func ownOnly(t *testing.T) {
	t.Helper()
	if external {
		t.Skip("not comparable with another broker")
	}
}

var (
	must      = harness.Must
	name      = harness.Name
	confirmed = harness.Confirmed
)

// until polls a condition that another party brings about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	harness.Wait(t, harness.Patience, what, ok)
}

// newChannel is a channel on a connection of its own.
func newChannel(t testing.TB) *amqp091.Channel {
	t.Helper()
	_, ch := shared.DialAMQP(t)
	return ch
}

// channel is one more channel of a connection.
func channel(t testing.TB, c *amqp091.Connection) *amqp091.Channel {
	t.Helper()
	ch, err := c.Channel()
	must(t, err)
	return ch
}

// recoverAll is basic.recover.
func recoverAll(ch *amqp091.Channel, requeue bool) error {
	//lint:ignore SA1019 old clients use it
	return ch.Recover(requeue)
}
