package amqp

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

func publishRaw(r *raw, exchange, key string) {
	r.bytes(wire.AppendPublish(nil, 1, &wire.BasicPublish{Exchange: exchange, RoutingKey: key}, &wire.Properties{}, nil, 4096))
}

// TestDeclinedLater: a publish that a node refuses which is across the network ends in
// what it ends in at once otherwise, with confirms and without, whether the client does
// something next or waits.
func TestDeclinedLater(t *testing.T) {
	n, addr := startServer(t, Config{})
	n.later = true
	missing := func(m *wire.ChannelClose) {
		t.Helper()
		if m.ReplyCode != 404 || m.ReplyText != "NOT_FOUND - no exchange 'none' in vhost '/'" || m.ClassID != 60 || m.MethodID != 40 {
			t.Errorf("%+v", m)
		}
	}
	for _, confirms := range []bool{false, true} {
		r := rawOpen(t, addr, 0)
		if confirms {
			r.send(1, &wire.ConfirmSelect{})
			want[wire.ConfirmSelectOk](r)
		}
		publishRaw(r, "none", "k")
		missing(want[wire.ChannelClose](r))
		r.send(1, &wire.ChannelCloseOk{})

		r.send(1, &wire.ChannelOpen{})
		want[wire.ChannelOpenOk](r)
		publishRaw(r, "none", "k")
		r.send(1, &wire.QueueDeclare{Queue: "not"})
		missing(want[wire.ChannelClose](r))
		r.send(1, &wire.ChannelCloseOk{})
		if n.queues["not"] != nil {
			t.Error("what came after the mistake was done")
		}

		r.send(1, &wire.ChannelOpen{})
		want[wire.ChannelOpenOk](r)
		publishRaw(r, "none", "k")
		r.send(1, &wire.ChannelClose{})
		missing(want[wire.ChannelClose](r))
		want[wire.ChannelCloseOk](r)
	}
}

// TestDeclinedForNow: a refusal that passes is a nack, or the end of the connection.
func TestDeclinedForNow(t *testing.T) {
	n, addr := startServer(t, Config{})
	n.later = true
	n.refuse = kernel.Errorf(kernel.CodeLimit, "", "", "the disk is low")
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.ConfirmSelect{})
	want[wire.ConfirmSelectOk](r)
	publishRaw(r, "", "q")
	if m := want[wire.BasicNack](r); m.DeliveryTag != 1 {
		t.Errorf("%+v", m)
	}
	r = rawOpen(t, addr, 0)
	publishRaw(r, "", "q")
	if m := want[wire.ConnectionClose](r); m.ReplyCode != 506 || m.ReplyText != "RESOURCE_ERROR - the message was not stored: the disk is low" {
		t.Errorf("%+v", m)
	}
}
