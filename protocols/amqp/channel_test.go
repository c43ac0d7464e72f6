package amqp

import (
	"bytes"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// No answer comes to what asked for none: the next answer is that of the next
// request.
func TestNoWait(t *testing.T) {
	_, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	for _, m := range []wire.Method{
		&wire.ExchangeDeclare{Exchange: "x", Type: "direct", NoWait: true},
		&wire.QueueDeclare{Queue: "q", NoWait: true},
		&wire.QueueDeclare{Queue: "q", Passive: true, NoWait: true},
		&wire.QueueBind{Queue: "q", Exchange: "x", RoutingKey: "k", NoWait: true},
		&wire.QueuePurge{Queue: "q", NoWait: true},
		&wire.BasicConsume{Queue: "q", ConsumerTag: "c", NoWait: true},
		&wire.BasicCancel{ConsumerTag: "c", NoWait: true},
		&wire.ConfirmSelect{NoWait: true},
		&wire.QueueDelete{Queue: "q", NoWait: true},
		&wire.ExchangeDelete{Exchange: "x", NoWait: true},
		&wire.BasicRecoverAsync{Requeue: true},
	} {
		r.send(1, m)
	}
	r.send(1, &wire.ChannelFlow{Active: true})
	want[wire.ChannelFlowOk](r)
	r.send(1, &wire.AccessRequest{Realm: "/data"})
	if m := want[wire.AccessRequestOk](r); m.Ticket != 1 {
		t.Errorf("ticket %d", m.Ticket)
	}
	r.send(1, &wire.BasicRecover{Requeue: true})
	want[wire.BasicRecoverOk](r)
	r.send(1, &wire.ChannelClose{})
	want[wire.ChannelCloseOk](r)
	r.send(1, &wire.ChannelOpen{}) // the number is free at once
	want[wire.ChannelOpenOk](r)
	r.send(0, &wire.ConnectionClose{ReplyCode: 200})
	want[wire.ConnectionCloseOk](r)
	r.gone()
}

// A burst of publishes is confirmed by one frame; what is returned comes before
// its confirm.
func TestConfirmsCoalesce(t *testing.T) {
	n, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.QueueDeclare{Queue: "q"})
	want[wire.QueueDeclareOk](r)
	r.send(1, &wire.ConfirmSelect{})
	want[wire.ConfirmSelectOk](r)
	n.mu.Lock()
	n.hold = true
	n.mu.Unlock()
	var burst []byte
	for range 50 {
		burst = wire.AppendPublish(burst, 1, &wire.BasicPublish{RoutingKey: "q"}, &wire.Properties{}, []byte("x"), 4096)
	}
	r.bytes(burst)
	wait(t, n, func() bool { return len(n.held) == 50 })
	for _, done := range n.held {
		done(nil)
	}
	r.bytes(wire.AppendPublish(nil, 1, &wire.BasicPublish{RoutingKey: "none", Mandatory: true}, &wire.Properties{}, []byte("back"), 4096))
	m, body, err := r.next()
	if ret, ok := m.(*wire.BasicReturn); err != nil || !ok || ret.ReplyCode != 312 || string(body) != "back" {
		t.Fatalf("%+v %q, %v", m, body, err)
	}
	if ack := want[wire.BasicAck](r); ack.DeliveryTag != 51 || !ack.Multiple {
		t.Errorf("%+v", ack)
	}
}

// After a channel was closed for an error its frames are discarded until the
// client has seen that.
func TestDiscardAfterChannelClose(t *testing.T) {
	n, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.QueueDeclare{Queue: "q"})
	want[wire.QueueDeclareOk](r)
	late := wire.AppendPublish(nil, 1, &wire.BasicPublish{RoutingKey: "q"}, &wire.Properties{}, []byte("late"), 4096)
	r.bytes(join(methodFrame(&wire.BasicAck{DeliveryTag: 9}), late, late, methodFrame(&wire.QueueDelete{Queue: "q"})))
	if m := want[wire.ChannelClose](r); m.ReplyCode != 406 || m.ClassID != 60 || m.MethodID != 80 {
		t.Errorf("%+v", m)
	}
	r.send(1, &wire.ChannelCloseOk{})
	r.send(1, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
	r.send(1, &wire.QueueDeclare{Queue: "q", Passive: true})
	if m := want[wire.QueueDeclareOk](r); m.MessageCount != 0 {
		t.Errorf("%d messages were published on a closed channel", m.MessageCount)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queues) != 1 {
		t.Error("the queue is gone")
	}
}

// Both sides close a channel at once.
func TestCloseCrossing(t *testing.T) {
	_, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.bytes(join(methodFrame(&wire.BasicAck{DeliveryTag: 9}), methodFrame(&wire.ChannelClose{ReplyCode: 200})))
	want[wire.ChannelClose](r)
	want[wire.ChannelCloseOk](r)
	r.send(1, &wire.ChannelCloseOk{})
	r.send(1, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
}

// Frames of a content that arrive in pieces, on two channels in turn.
func TestContentInPieces(t *testing.T) {
	n, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(2, &wire.ChannelOpen{})
	want[wire.ChannelOpenOk](r)
	r.send(1, &wire.QueueDeclare{Queue: "q"})
	want[wire.QueueDeclareOk](r)
	props := &wire.Properties{Flags: wire.HasMessageID, MessageID: []byte("id")}
	bodies := [2][]byte{bytes.Repeat([]byte("a"), 10_000), bytes.Repeat([]byte("b"), 10_000)}
	var streams [2][]byte
	for i := range streams {
		streams[i] = wire.AppendPublish(nil, uint16(i+1), &wire.BasicPublish{RoutingKey: "q"}, props, bodies[i], 4096)
	}
	frames := [2]*wire.FrameReader{wire.NewFrameReader(bytes.NewReader(streams[0]), 4096), wire.NewFrameReader(bytes.NewReader(streams[1]), 4096)}
	for range 5 { // method, header, three bodies
		for i, f := range frames {
			fr, err := f.Next()
			must(t, err)
			b := frame(fr.Type, uint16(i+1), fr.Payload)
			r.bytes(b[:len(b)/2])
			wait(t, n, func() bool { return true })
			r.bytes(b[len(b)/2:])
		}
	}
	r.send(1, &wire.QueueDeclare{Queue: "q", Passive: true})
	if m := want[wire.QueueDeclareOk](r); m.MessageCount < 1 {
		t.Errorf("%d messages", m.MessageCount)
	}
	r.send(2, &wire.QueueDeclare{Queue: "q", Passive: true})
	if m := want[wire.QueueDeclareOk](r); m.MessageCount != 2 {
		t.Errorf("%d messages", m.MessageCount)
	}
	for i := range bodies {
		r.send(1, &wire.BasicGet{Queue: "q", NoAck: true})
		if _, body, err := r.next(); err != nil || !bytes.Equal(body, bodies[i]) {
			t.Errorf("body %d: %d bytes, %v", i, len(body), err)
		}
	}
}

// Without confirms, a message that cannot be stored does not just vanish.
// A method that would not see what was published before is not carried out; a
// close is.
func TestPublishNotStoredInTime(t *testing.T) {
	n, addr := startServer(t, Config{})
	c := dial(t, addr)
	closed := c.NotifyClose(make(chan *amqp.Error, 1))
	ch := openChannel(t, c)
	_, err := ch.QueueDeclare("q", true, false, false, false, nil)
	must(t, err)
	leaving := dial(t, addr)
	openChannel(t, leaving)
	n.mu.Lock()
	n.unsure = kernel.Errorf(kernel.CodeUnavailable, "", "", "messages published before are not stored yet")
	n.mu.Unlock()
	if _, err := ch.QueuePurge("q", false); err == nil {
		t.Error("purged")
	}
	if e := receive(t, closed); e.Code != 541 || e.Reason != "INTERNAL_ERROR - messages published before are not stored yet" {
		t.Error(e)
	}
	must(t, leaving.Close())
}

func TestPublishNotStored(t *testing.T) {
	n, addr := startServer(t, Config{})
	n.refuse = kernel.Errorf(kernel.CodeUnavailable, "", "", "no leader")
	r := rawOpen(t, addr, 0)
	r.bytes(wire.AppendPublish(nil, 1, &wire.BasicPublish{RoutingKey: "q"}, &wire.Properties{}, nil, 4096))
	if m := want[wire.ConnectionClose](r); m.ReplyCode != 506 || m.ReplyText != "RESOURCE_ERROR - the message was not stored: no leader" {
		t.Errorf("%+v", m)
	}
}

// TestLowDisk: a publisher with confirms gets a nack and may go on, one without
// is told why its connection ends.
func TestLowDisk(t *testing.T) {
	n, addr := startServer(t, Config{})
	n.refuse = kernel.Errorf(kernel.CodeLimit, "", "", "the disk is low")
	r := rawOpen(t, addr, 0)
	publish := func() {
		r.bytes(wire.AppendPublish(nil, 1, &wire.BasicPublish{RoutingKey: "q"}, &wire.Properties{}, nil, 4096))
	}
	r.send(1, &wire.ConfirmSelect{})
	want[wire.ConfirmSelectOk](r)
	for seq := uint64(1); seq <= 2; seq++ {
		publish()
		if m := want[wire.BasicNack](r); m.DeliveryTag != seq {
			t.Errorf("%+v", m)
		}
	}
	n.mu.Lock()
	n.refuse = nil
	n.mu.Unlock()
	publish()
	if m := want[wire.BasicAck](r); m.DeliveryTag != 3 {
		t.Errorf("%+v", m)
	}
	n.mu.Lock()
	n.refuse = kernel.Errorf(kernel.CodeLimit, "", "", "the disk is low")
	n.mu.Unlock()
	r = rawOpen(t, addr, 0)
	publish()
	if m := want[wire.ConnectionClose](r); m.ReplyCode != 506 || m.ReplyText != "RESOURCE_ERROR - the message was not stored: the disk is low" {
		t.Errorf("%+v", m)
	}
}

// Acks that arrive together become one settle, and credit comes back for all.
func TestAcksCoalesce(t *testing.T) {
	n, addr := startServer(t, Config{})
	r := rawOpen(t, addr, 0)
	r.send(1, &wire.QueueDeclare{Queue: "q"})
	want[wire.QueueDeclareOk](r)
	r.send(1, &wire.BasicQos{PrefetchCount: 100})
	want[wire.BasicQosOk](r)
	r.send(1, &wire.BasicConsume{Queue: "q"})
	want[wire.BasicConsumeOk](r)
	var burst, acks []byte
	for i := range 200 {
		burst = wire.AppendPublish(burst, 1, &wire.BasicPublish{RoutingKey: "q"}, &wire.Properties{}, nil, 4096)
		if i < 100 {
			acks = wire.AppendMethod(acks, 1, &wire.BasicAck{DeliveryTag: uint64(i + 1)})
		}
	}
	r.bytes(burst)
	for range 100 {
		want[wire.BasicDeliver](r)
	}
	r.bytes(acks)
	for range 100 {
		want[wire.BasicDeliver](r)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.records != 100 || n.settles > 5 {
		t.Errorf("%d records in %d settles", n.records, n.settles)
	}
}
