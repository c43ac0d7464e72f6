// Package pressure tests a node that is short of disk, memory or a fast disk: what
// its clients see, and that it recovers without a restart. The names carry rows of
// the failure table that the project works from.
package pressure

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// smallVolume mounts a file system in memory of so many MiB, or skips the test.
func smallVolume(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a volume of its own cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill leaves so many bytes of the volume free, and returns what gives the rest
// back.
func fill(t *testing.T, dir string, free int64) (empty func()) {
	t.Helper()
	name := filepath.Join(dir, harness.Name("filler"))
	f, err := os.Create(name)
	harness.Must(t, err)
	defer f.Close()
	var st syscall.Statfs_t
	harness.Must(t, syscall.Statfs(dir, &st))
	if n := int64(st.Bavail)*st.Bsize - free; n > 0 {
		harness.Must(t, syscall.Fallocate(int(f.Fd()), 0, 0, n))
	}
	return func() { harness.Must(t, os.Remove(name)) }
}

// alarmed reports whether the health check fails.
func alarmed(t *testing.T, at harness.Addresses) bool {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+at.HTTP+"/api/health/checks/alarms", nil)
	harness.Must(t, err)
	req.SetBasicAuth("guest", "guest")
	resp, err := http.DefaultClient.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusServiceUnavailable
}

// producer publishes over AMQP in confirm mode and hears of alarms.
type producer struct {
	ch      *amqp.Channel
	blocked chan amqp.Blocking
}

func newProducer(t *testing.T, at harness.Addresses) *producer {
	t.Helper()
	conn, ch := at.DialAMQP(t)
	p := &producer{ch: ch, blocked: conn.NotifyBlocked(make(chan amqp.Blocking, 10))}
	harness.Must(t, ch.Confirm(false))
	return p
}

func (p *producer) publish(t *testing.T, queue string, body []byte) *amqp.DeferredConfirmation {
	t.Helper()
	c, err := p.ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: body, DeliveryMode: amqp.Persistent})
	harness.Must(t, err)
	return c
}

func confirmed(t *testing.T, c *amqp.DeferredConfirmation) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*harness.Patience)
	defer cancel()
	if ok, err := c.WaitContext(ctx); err != nil || !ok {
		t.Fatalf("confirmed %v: %v", ok, err)
	}
}

// unconfirmed fails if a publish has had its answer.
func unconfirmed(t *testing.T, c *amqp.DeferredConfirmation) {
	t.Helper()
	select {
	case <-c.Done():
		t.Errorf("confirmed %v during the alarm", c.Acked())
	default:
	}
}

// dialV5 opens an MQTT 5 client.
func dialV5(t *testing.T, at harness.Addresses) *paho.Client {
	t.Helper()
	conn, err := net.Dial("tcp", at.MQTT)
	harness.Must(t, err)
	c := paho.NewClient(paho.ClientConfig{Conn: conn})
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	_, err = c.Connect(ctx, &paho.Connect{ClientID: harness.Name("v5"), CleanStart: true, KeepAlive: 60})
	harness.Must(t, err)
	t.Cleanup(func() { _ = c.Disconnect(&paho.Disconnect{}) })
	return c
}

// publishV5 returns the reason code of the PUBACK or PUBREC.
func publishV5(t *testing.T, c *paho.Client, topic string, qos byte) byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	resp, err := c.Publish(ctx, &paho.Publish{Topic: topic, QoS: qos, Payload: []byte("m"), Retain: qos == 2})
	if resp == nil {
		t.Fatal(err)
	}
	return resp.ReasonCode
}

// refusedV4 checks that a client of MQTT 3.1.1, which cannot be told no, loses its
// connection by a publish with QoS 1.
func refusedV4(t *testing.T, at harness.Addresses, topic string) {
	t.Helper()
	c := at.DialMQTT(t, harness.Name("v4"))
	tok := c.Publish(topic, 1, false, "m")
	harness.Wait(t, harness.Patience, "the end of the MQTT 3.1.1 connection", func() bool { return !c.IsConnectionOpen() })
	select {
	case <-tok.Done():
		if tok.Error() == nil {
			t.Error("PUBACK during the alarm")
		}
	default:
	}
}

// refusedKafka checks the error of a producer that does not try again.
func refusedKafka(t *testing.T, at harness.Addresses, topic string) {
	t.Helper()
	c := at.DialKafka(t, kgo.DefaultProduceTopic(topic), kgo.RecordRetries(0), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*harness.Patience)
	defer cancel()
	if err := c.ProduceSync(ctx, kgo.StringRecord("m")).FirstErr(); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("Kafka: %v, want %v", err, kerr.KafkaStorageError)
	}
}

// patientKafka produces with a client that tries again, and returns its outcome.
func patientKafka(t *testing.T, at harness.Addresses, topic string) <-chan error {
	t.Helper()
	c := at.DialKafka(t, kgo.DefaultProduceTopic(topic))
	out := make(chan error, 1)
	c.Produce(context.Background(), kgo.StringRecord("patient"), func(_ *kgo.Record, err error) { out <- err })
	return out
}

// drain takes and acknowledges so many messages.
func drain(t *testing.T, from <-chan amqp.Delivery, n int) {
	t.Helper()
	for i := range n {
		select {
		case d, ok := <-from:
			if !ok {
				t.Fatalf("the consumer has ended after %d of %d", i, n)
			}
			harness.Must(t, d.Ack(false))
		case <-time.After(harness.Patience):
			t.Fatalf("nothing came after %d of %d", i, n)
		}
	}
}
