package amqp

import (
	"strings"
	"testing"
	"testing/synctest"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// named returns what the reply_to of a request of ch reads at a queue.
func named(t testing.TB, ch *amqp.Channel, requests <-chan amqp.Delivery, key string) string {
	t.Helper()
	publish(t, ch, key, amqp.Publishing{ReplyTo: replyToQueue})
	return receive(t, requests).ReplyTo
}

// TestReplyTo: a request has a name to answer to that is its channel's until the consumer
// is cancelled; then it has another one.
func TestReplyTo(t *testing.T) {
	n, addr := startServer(t, Config{})
	ch, server := openChannel(t, dial(t, addr)), openChannel(t, dial(t, addr))
	q, err := server.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	requests, err := server.Consume(q.Name, "", true, false, false, false, nil)
	must(t, err)
	answers, err := ch.Consume(replyToQueue, "tag", true, true, false, false, amqp.Table{"x-priority": int32(1)})
	must(t, err)
	name := named(t, ch, requests, "q")
	if !kernel.IsReply(name) || name != named(t, ch, requests, "q") {
		t.Errorf("the name is %q", name)
	}
	n.mu.Lock()
	if s := n.queues[name].spec; !s.Exclusive || !s.AutoDelete || s.Durable {
		t.Errorf("%+v", s)
	}
	n.mu.Unlock()
	publish(t, server, name, amqp.Publishing{CorrelationId: "c", Body: []byte("answer")})
	if d := receive(t, answers); d.CorrelationId != "c" || d.ConsumerTag != "tag" || d.Exchange != "" || d.RoutingKey != name || d.Redelivered {
		t.Errorf("%+v", d)
	}
	must(t, ch.Cancel("tag", false))
	if _, err := openChannel(t, dial(t, addr)).QueueDeclarePassive(name, false, false, false, false, nil); err.(*amqp.Error).Code != amqp.NotFound {
		t.Error(err)
	}
	_, err = ch.Consume(replyToQueue, "", true, false, false, false, nil)
	must(t, err)
	if named(t, ch, requests, "q") == name {
		t.Error("the name of a consumer that was cancelled is used again")
	}
}

// TestReplyConsumerEndedByTheNode: the client is told, and what it publishes then is
// refused rather than answered to nobody.
func TestReplyConsumerEndedByTheNode(t *testing.T) {
	n, addr := startServer(t, Config{})
	ch := openChannel(t, dial(t, addr))
	cancelled := ch.NotifyCancel(make(chan string, 1))
	_, err := ch.Consume(replyToQueue, "tag", true, false, false, false, nil)
	must(t, err)
	n.mu.Lock()
	var name string
	for name = range n.queues {
	}
	n.mu.Unlock()
	_, err = (&fakeLink{n: n}).DeleteQueue(t.Context(), name, false, false)
	must(t, err)
	if tag := receive(t, cancelled); tag != "tag" {
		t.Errorf("%q was cancelled", tag)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	publish(t, ch, "q", amqp.Publishing{ReplyTo: replyToQueue})
	if e := receive(t, closed); e.Code != amqp.PreconditionFailed || !strings.HasSuffix(e.Reason, " - fast reply consumer does not exist") {
		t.Error(e)
	}
}

// TestReplyNameOfWhatIsHeld: a request that waits for the end of an alarm has the name
// that was right when it came, although the consumer has gone meanwhile.
func TestReplyNameOfWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode()
		q := &fakeQueue{name: "q", node: n, failed: map[int64]int32{}}
		n.queues["q"] = q
		r := piped(t, newServer(Config{}, n))
		defer r.nc.Close()
		r.open(0)
		r.send(1, &wire.BasicConsume{Queue: replyToQueue, ConsumerTag: "tag", NoAck: true})
		want[wire.BasicConsumeOk](r)
		n.mu.Lock()
		var name string
		for each := range n.queues {
			if each != "q" {
				name = each
			}
		}
		n.mu.Unlock()
		n.alarm(true)
		p := wire.Properties{Flags: wire.HasReplyTo, ReplyTo: []byte(replyToQueue)}
		r.bytes(wire.AppendPublish(nil, 1, &wire.BasicPublish{RoutingKey: "q"}, &p, []byte("m"), DefaultFrameMax))
		r.send(1, &wire.BasicCancel{ConsumerTag: "tag"})
		want[wire.BasicCancelOk](r)
		n.alarm(false)
		synctest.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		if len(q.batches) != 1 || !strings.Contains(string(q.batches[0]), name) {
			t.Errorf("%q, want a message with %s", q.batches, name)
		}
	})
}

// TestReplyToAllocatesNothing: neither for a message that asks for it nor for others.
func TestReplyToAllocatesNothing(t *testing.T) {
	c := newConn(newServer(Config{}, newFakeNode()), nil)
	ch := &channel{c: c, reply: &consumer{topic: kernel.ReplyName()}}
	asks := wire.Properties{Flags: wire.HasReplyTo, ReplyTo: []byte(replyToQueue)}
	other := wire.Properties{Flags: wire.HasReplyTo, ReplyTo: []byte(replyToQueue + "-not")}
	if got := string(ch.replyTo(&asks)); got != ch.reply.topic || ch.replyTo(&other) != nil {
		t.Fatalf("%q", got)
	}
	if n := testing.AllocsPerRun(100, func() { ch.replyTo(&asks); ch.replyTo(&other); ch.replyTo(&benchProps) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
