package pressure

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestRow6NoSpace: where a file finds no room although the volume is said to have
// some, as with a quota, publishers are held or refused over all protocols,
// consumers drain, and when there is room all goes on without a restart. What was
// confirmed is there, also after one.
func TestRow6NoSpace(t *testing.T) {
	for name, c := range map[string]struct {
		rule  vfs.Rule
		seals int64 // bytes between two seals
	}{
		"next file of the log": {vfs.Rule{Op: vfs.OpPreallocate, Name: "*.wal"}, 0},
		"segment":              {vfs.Rule{Op: vfs.OpWrite, Name: "*.seg.tmp"}, 1 << 20},
		"end of a segment":     {vfs.Rule{Op: vfs.OpSync, Name: "*.seg.tmp"}, 1 << 20},
		"checkpoint":           {vfs.Rule{Op: vfs.OpWrite, Name: "*-*.tmp"}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			n, end := openFaulty(t, dir, c.seals)
			c.rule.Err = vfs.ErrNoSpace
			all := outOfSpace(t, n, c.rule)
			end()

			n, end = openFaulty(t, dir, c.seals)
			defer end()
			found := bodies(t, n.at, "flood")
			for i, confirm := range all {
				if confirm.Acked() && found[uint64(i)] == 0 {
					t.Errorf("message %d was confirmed and is lost", i)
				}
			}
		})
	}
}

// outOfSpace floods a node until a rule makes its disk full, looks at its clients,
// gives the room back, and returns all publishes.
func outOfSpace(t *testing.T, n *faulty, rule vfs.Rule) (all []*amqp091.DeferredConfirmation) {
	const backlog = 300
	p := newProducer(t, n.at)
	for _, q := range []string{"drained", "purged", "dropped", "flood"} {
		harness.Declare(t, p.ch, q)
	}
	var last *amqp091.DeferredConfirmation
	for range backlog {
		last = p.publish(t, "drained", make([]byte, 1000))
	}
	confirmed(t, last)
	confirmed(t, p.publish(t, "purged", nil))
	kafka := n.at.DialKafka(t, kgo.DefaultProduceTopic("log"))
	harness.Must(t, kafka.ProduceSync(context.Background(), kgo.StringRecord("before")).FirstErr())
	v5 := dialV5(t, n.at)

	n.fault.Add(rule)
	all = flood(t, n, p)
	if got := harness.Receive(t, p.blocked); !got.Active || got.Reason != "low on disk" {
		t.Errorf("told %+v", got)
	}
	held := p.publish(t, "purged", []byte("held"))
	for qos := byte(1); qos <= 2; qos++ {
		if code := publishV5(t, v5, "log", qos); code != 0x97 {
			t.Errorf("MQTT 5, QoS %d: %#x", qos, code)
		}
	}
	refusedV4(t, n.at, "log")
	refusedKafka(t, n.at, "log")
	patient := patientKafka(t, n.at, "log")
	drainAll(t, n.at, backlog)
	unconfirmed(t, held)

	n.fault.Clear()
	harness.Wait(t, 3*harness.Patience, "the end of the alarm", func() bool { return !n.broker.Alarms().Any() })
	confirmed(t, held)
	if got := harness.Receive(t, p.blocked); got.Active {
		t.Errorf("told %+v", got)
	}
	harness.Must(t, harness.Receive(t, patient))
	if code := publishV5(t, v5, "log", 1); code >= 0x80 {
		t.Errorf("MQTT 5 after the alarm: %#x", code)
	}
	for _, c := range all {
		confirmed(t, c) // those that waited are stored now
	}
	if err := n.broker.Ready(); err != nil {
		t.Error(err)
	}
	return all
}

// flood publishes numbered messages until the node has an alarm.
func flood(t *testing.T, n *faulty, p *producer) (all []*amqp091.DeferredConfirmation) {
	t.Helper()
	const window = 16
	for end := time.Now().Add(3 * harness.Patience); !n.broker.Alarms().Any(); {
		if time.Now().After(end) {
			t.Fatalf("no alarm after %d messages", len(all))
		}
		body := make([]byte, 256<<10)
		binary.BigEndian.PutUint64(body, uint64(len(all)))
		all = append(all, p.publish(t, "flood", body))
		if i := len(all) - window; i >= 0 {
			harness.Wait(t, harness.Patience, "a confirm or an alarm", func() bool {
				select {
				case <-all[i].Done():
					return true
				default:
					return n.broker.Alarms().Any()
				}
			})
		}
	}
	return all
}

// drainAll takes what is in the queues, over AMQP and Kafka, and purges and deletes. It
// returns the channel that did.
func drainAll(t *testing.T, at harness.Addresses, backlog int) *amqp091.Channel {
	t.Helper()
	_, ch := at.DialAMQP(t)
	harness.Must(t, ch.Qos(100, 0, false))
	from, err := ch.Consume("drained", "", false, false, false, false, nil)
	harness.Must(t, err)
	drain(t, from, backlog)
	if n, err := ch.QueuePurge("purged", false); err != nil || n != 1 {
		t.Errorf("purged %d: %v", n, err)
	}
	if _, err := ch.QueueDelete("dropped", false, false, false); err != nil {
		t.Error(err)
	}
	reader := at.DialKafka(t, kgo.ConsumeTopics("log"), kgo.ConsumerGroup("g"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if got, err := harness.Records(context.Background(), reader, 1); err != nil || string(got[0].Value) != "before" {
		t.Errorf("Kafka read %v: %v", got, err)
	}
	return ch
}

// bodies counts the messages of a queue by their numbers.
func bodies(t *testing.T, at harness.Addresses, queue string) map[uint64]int {
	t.Helper()
	_, ch := at.DialAMQP(t)
	found := make(map[uint64]int)
	for {
		d, ok, err := ch.Get(queue, true)
		harness.Must(t, err)
		if !ok {
			return found
		}
		found[binary.BigEndian.Uint64(d.Body)]++
	}
}
