package forward

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// nodeCounters makes counters as a node has them.
func nodeCounters() func(kernel.Protocol) *broker.Counters {
	of := map[kernel.Protocol]*broker.Counters{"queues": {}, "sessions": {}, "logs": {}}
	return func(p kernel.Protocol) *broker.Counters { return of[p] }
}

// moved is what was counted.
func moved(c *broker.Counters) string {
	return fmt.Sprintf("in %d/%d out %d/%d settled %d connections %d-%d", c.In.Load(), c.InBytes.Load(), c.Out.Load(), c.OutBytes.Load(), c.Settled.Load(),
		c.Opened.Load(), c.Closed.Load())
}

// doored is a client at a node's edge.
func doored(t *testing.T, door *edge.Edge, p kernel.Protocol) *client {
	t.Helper()
	c, err := door.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: p, Remote: loopback}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &client{Link: c, t: t}
}

// moveQueues publishes six bytes in three messages, and what nobody takes; two messages of
// three bytes come back, and are settled.
func moveQueues(t *testing.T, c *client) {
	c.declare("q")
	p := publishing(t, c)
	for _, v := range []string{"a", "bb", "ccc"} {
		p.to("", "q", v)
	}
	p.settle()
	declined := c.Publisher(newStored()) // here at once, there later
	_, err := declined.ToExchange("nowhere", "k", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, 1)
	if settled := declined.Settle(soon(t)); err == nil && settled != nil {
		t.Error(settled)
	}
	unrouted, err := c.Publisher(nil).ToExchange("amq.direct", "k", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{Mandatory: true}, 1)
	if unrouted != 0 || err != nil {
		t.Error(unrouted, err)
	}
	in, auto := newInbox(), newInbox()
	m := c.join("q", kernel.MemberOptions{}, nil, in)
	m.Credit(1)
	d := in.wait(t, 1)[0]
	m.Settle(kernel.Accept, d.Partition, d.Offset, d.Offset)
	c.join("q", kernel.MemberOptions{AutoSettle: true}, nil, auto).Credit(1)
	auto.wait(t, 1)
}

// moveSessions has a subscription that lives in memory get one message of four bytes.
func moveSessions(t *testing.T, c *client, count *broker.Counters, from *broker.Conn) {
	s, _, err := c.Link.(*edge.Conn).AttachSession(soon(t), broker.Attaching{ClientID: "c"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := newSubscriber()
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("news", 0, 1, to)})
	if _, err := from.Publisher(nil).ToTopic("news", &kernel.Record{Value: []byte("four")}, 1); err != nil {
		t.Fatal(err)
	}
	to.waitLive(t, "news=four@1")
	eventually(t, "it is counted", func() bool { return count.Out.Load() == 1 })
}

// moveLogs stores a batch of two records.
func moveLogs(t *testing.T, c *client) (bytes int) {
	p, batch := c.Publisher(newStored()), batchOf("x", "y")
	if err := p.ToPartition(c.logTopic("log", 1), 0, batch, 1); err != nil {
		t.Fatal(err)
	}
	if err := p.Settle(soon(t)); err != nil {
		t.Fatal(err)
	}
	_, bytes = broker.BatchPayload(batch)
	return bytes
}

// TestTrafficIsCountedAtTheSocket: what clients put in, take out and settle is counted at the
// node that holds their socket, alike whether that serves or another one does, and there
// only; what the broker does not take is not counted. The node that serves has the sum of the
// others' clients apart.
func TestTrafficIsCountedAtTheSocket(t *testing.T) {
	for _, where := range []string{"here", "there"} {
		t.Run(where, func(t *testing.T) {
			b := open(t)
			count, host := b.Counters, edge.Local(b)
			if where == "there" {
				count, host = nodeCounters(), NewHost(serve(t, b), "1")
			}
			door := edge.New(edge.Config{Counters: count, Logger: zerolog.Nop()})
			t.Cleanup(door.Close)
			door.Set(host)
			queues, sessions, logs := doored(t, door, "queues"), doored(t, door, "sessions"), doored(t, door, "logs")
			moveQueues(t, queues)
			moveSessions(t, sessions, count("sessions"), direct(t, b))
			bytes := moveLogs(t, logs)
			logs.Close()
			for p, want := range map[kernel.Protocol]string{
				"queues": "in 3/6 out 2/3 settled 2 connections 1-0", "sessions": "in 0/0 out 1/4 settled 0 connections 1-0",
				"logs": fmt.Sprintf("in 2/%d out 0/0 settled 0 connections 1-1", bytes),
			} {
				if got := moved(count(p)); got != want {
					t.Errorf("%s: %s, want %s", p, got, want)
				}
				if got := moved(b.Counters(p)); where == "there" && got != moved(&broker.Counters{}) {
					t.Errorf("%s at the node that serves: %s", p, got)
				}
				if where == "there" && moved(b.Overview().Away[p]) != want {
					t.Errorf("%s is served: %s, want %s", p, moved(b.Overview().Away[p]), want)
				}
			}
		})
	}
}
