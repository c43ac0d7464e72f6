package pressure

import (
	"context"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestRow6DiskFull: on a disk that is low, and then full to the last byte,
// publishers are held or refused over all protocols, consumers drain the backlog,
// purges and deletions work, and when there is room again all goes on without a
// restart.
func TestRow6DiskFull(t *testing.T) {
	dir := smallVolume(t, "300m")
	b := harness.Start(t, "--data", dir, "--disk-low", "48MiB")
	const backlog = 2000
	p := newProducer(t, b.Addresses)
	for _, q := range []string{"drained", "purged", "dropped"} {
		harness.Declare(t, p.ch, q)
	}
	var last *amqp.DeferredConfirmation
	for range backlog {
		last = p.publish(t, "drained", make([]byte, 1000))
	}
	p.publish(t, "purged", nil)
	confirmed(t, last)
	confirmed(t, p.publish(t, "dropped", nil))
	kafka := b.DialKafka(t, kgo.DefaultProduceTopic("log"))
	harness.Must(t, kafka.ProduceSync(context.Background(), kgo.StringRecord("before")).FirstErr())
	v5 := dialV5(t, b.Addresses)
	t.Cleanup(b.Kill) // before the clients take their leave, for which a held publisher waits

	empty := fill(t, dir, 20<<20)
	harness.Wait(t, harness.Patience, "the alarm", func() bool { return alarmed(t, b.Addresses) })
	if got := harness.Receive(t, p.blocked); !got.Active || got.Reason != "low on disk" {
		t.Errorf("told %+v", got)
	}
	held := p.publish(t, "purged", []byte("held"))
	for qos := byte(1); qos <= 2; qos++ {
		if code := publishV5(t, v5, "log", qos); code != 0x97 {
			t.Errorf("MQTT 5, QoS %d: %#x", qos, code)
		}
	}
	refusedV4(t, b.Addresses, "log")
	refusedKafka(t, b.Addresses, "log")
	patient := patientKafka(t, b.Addresses, "log")

	full := fill(t, dir, 0)
	ch := drainAll(t, b.Addresses, backlog)
	unconfirmed(t, held)

	full()
	empty()
	harness.Wait(t, 3*harness.Patience, "the end of the alarm", func() bool { return !alarmed(t, b.Addresses) })
	confirmed(t, held)
	if got := harness.Receive(t, p.blocked); got.Active {
		t.Errorf("told %+v", got)
	}
	harness.Must(t, harness.Receive(t, patient))
	if code := publishV5(t, v5, "log", 1); code >= 0x80 {
		t.Errorf("MQTT 5 after the alarm: %#x", code)
	}
	if q, err := ch.QueueDeclarePassive("purged", true, false, false, false, nil); err != nil || q.Messages != 1 {
		t.Errorf("after the alarm: %+v, %v", q, err)
	}
	if q, err := ch.QueueDeclarePassive("drained", true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("after the alarm: %+v, %v", q, err)
	}
}

// TestBlockedWorker: a connection that consumes as well as it publishes is read
// during an alarm, so that its acknowledgements count; if it publishes on and on it
// is closed, and what it held goes back.
func TestBlockedWorker(t *testing.T) {
	dir := smallVolume(t, "300m")
	b := harness.Start(t, "--data", dir, "--disk-low", "48MiB", "--amqp-blocked-buffer", "64KiB")
	p := newProducer(t, b.Addresses)
	harness.Declare(t, p.ch, "in")
	harness.Declare(t, p.ch, "out")
	for range 20 {
		confirmed(t, p.publish(t, "in", []byte("job")))
	}
	conn, ch := b.DialAMQP(t)
	ended := conn.NotifyClose(make(chan *amqp.Error, 1))
	harness.Must(t, ch.Qos(5, 0, false))
	harness.Must(t, ch.Confirm(false))
	from, err := ch.Consume("in", "", false, false, false, false, nil)
	harness.Must(t, err)
	empty := fill(t, dir, 20<<20)
	harness.Wait(t, harness.Patience, "the alarm", func() bool { return alarmed(t, b.Addresses) })
	w := &producer{ch: ch}
	var results []*amqp.DeferredConfirmation
	for range 10 {
		results = append(results, w.publish(t, "out", []byte("result")))
		drain(t, from, 1)
	}
	_, other := b.DialAMQP(t)
	harness.Wait(t, harness.Patience, "the acknowledgements", func() bool {
		q, err := other.QueueDeclarePassive("in", true, false, false, false, nil)
		harness.Must(t, err)
		return q.Messages <= 5
	})
	for _, r := range results {
		unconfirmed(t, r)
	}
	for range 10 {
		if _, err := ch.PublishWithDeferredConfirm("", "out", false, false, amqp.Publishing{Body: make([]byte, 20<<10)}); err != nil {
			break
		}
	}
	if err := harness.Receive(t, ended); err == nil || err.Code != amqp.ResourceError {
		t.Errorf("closed with %v", err)
	}
	empty()
	harness.Wait(t, 3*harness.Patience, "the end of the alarm", func() bool { return !alarmed(t, b.Addresses) })
	harness.Wait(t, harness.Patience, "what the worker held", func() bool {
		q, err := other.QueueDeclarePassive("in", true, false, false, false, nil)
		harness.Must(t, err)
		return q.Messages == 10
	})
}
