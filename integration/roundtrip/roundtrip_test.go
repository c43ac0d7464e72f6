// Package roundtrip drives foreign clients, in the languages their users write,
// against the real binary.
package roundtrip

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
)

const (
	count   = 500
	timeout = 90 * time.Second
)

func wantOK(t *testing.T, out string) {
	t.Helper()
	if got := strings.TrimSpace(out); got != fmt.Sprintf("ok %d", count) {
		t.Errorf("client said %q", got)
	}
}

func TestPika(t *testing.T) {
	harness.NeedPython(t, "pika")
	b := harness.Start(t)
	wantOK(t, harness.Client(t, timeout, harness.Python, "pika_roundtrip.py", b.AMQP, strconv.Itoa(count)))
}

func TestAMQPLib(t *testing.T) {
	harness.NeedNode(t, "amqplib")
	b := harness.Start(t)
	wantOK(t, harness.Client(t, timeout, "node", "amqplib_roundtrip.js", b.AMQP, strconv.Itoa(count)))
}

// TestDirectReplyTo: clients of two connections ask and answer, in order.
func TestDirectReplyTo(t *testing.T) {
	b := harness.Start(t)
	t.Run("pika", func(t *testing.T) {
		harness.NeedPython(t, "pika")
		wantOK(t, harness.Client(t, timeout, harness.Python, "pika_replies.py", b.AMQP, strconv.Itoa(count)))
	})
	t.Run("amqplib", func(t *testing.T) {
		harness.NeedNode(t, "amqplib")
		wantOK(t, harness.Client(t, timeout, "node", "amqplib_replies.js", b.AMQP, strconv.Itoa(count)))
	})
}

func TestMQTTJS(t *testing.T) {
	harness.NeedNode(t, "mqtt")
	b := harness.Start(t)
	for _, version := range []string{"4", "5"} {
		wantOK(t, harness.Client(t, timeout, "node", "mqttjs_roundtrip.js", b.MQTT, strconv.Itoa(count), version))
	}
}

func TestConfluentKafka(t *testing.T) {
	harness.NeedPython(t, "confluent_kafka")
	b := harness.Start(t)
	wantOK(t, harness.Client(t, timeout, harness.Python, "confluent_roundtrip.py", b.Kafka, strconv.Itoa(count)))
}

func TestKafkaJS(t *testing.T) {
	harness.NeedNode(t, "kafkajs")
	b := harness.Start(t)
	wantOK(t, harness.Client(t, timeout, "node", "kafkajs_roundtrip.js", b.Kafka, strconv.Itoa(count)))
}

// value is long enough to be worth compressing.
func value(topic string, i int) string {
	return fmt.Sprintf("%s-%d %s", topic, i, strings.Repeat("kcat ", 20))
}

// TestKcatEveryCodec: kcat produces keys and values with every codec; all are
// read back, by kcat and from the AMQP queue that the topic becomes.
func TestKcatEveryCodec(t *testing.T) {
	harness.NeedProgram(t, "kcat")
	b := harness.Start(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "kcat-" + codec
			var lines strings.Builder
			for i := range count {
				fmt.Fprintf(&lines, "k%d:%s\n", i, value(topic, i))
			}
			file := filepath.Join(t.TempDir(), "lines")
			harness.Must(t, os.WriteFile(file, []byte(lines.String()), 0o600))
			harness.Client(t, timeout, "kcat", "-P", "-b", b.Kafka, "-t", topic, "-K:", "-z", codec, "-l", file)
			out := harness.Client(t, timeout, "kcat", "-C", "-q", "-b", b.Kafka, "-t", topic, "-K:", "-o", "beginning", "-e")
			if out != lines.String() {
				t.Errorf("kcat read back %d bytes, want %d", len(out), lines.Len())
			}
			readQueue(t, b, topic)
		})
	}
}

// readQueue declares the topic as a queue and gets every record, in order.
func readQueue(t *testing.T, b *harness.Broker, topic string) {
	t.Helper()
	_, ch := b.DialAMQP(t)
	q, err := ch.QueueDeclare(topic, true, false, false, false, nil)
	if err != nil || q.Messages != count {
		t.Fatalf("declare: %d messages, %v", q.Messages, err)
	}
	for i := range count {
		d, ok, err := ch.Get(topic, true)
		if err != nil || !ok || string(d.Body) != value(topic, i) || d.Headers["x-kafka-key"] != fmt.Sprint("k", i) {
			t.Fatalf("get %d: %v %v %q %v", i, ok, err, d.Body, d.Headers)
		}
	}
}

// TestMosquittoToKcat: mosquitto_pub publishes, a queue bound to amq.topic holds
// it, kcat replays it.
func TestMosquittoToKcat(t *testing.T) {
	harness.NeedProgram(t, "kcat", "mosquitto_pub")
	b := harness.Start(t)
	_, ch := b.DialAMQP(t)
	harness.Declare(t, ch, "greenhouse", "house.#")
	host, port, _ := strings.Cut(b.MQTT, ":")
	for _, version := range []string{"mqttv311", "mqttv5"} {
		harness.Client(t, timeout, "mosquitto_pub", "-h", host, "-p", port, "-V", version, "-q", "1", "-t", "house/1", "-m", version)
	}
	out := harness.Client(t, timeout, "kcat", "-C", "-q", "-b", b.Kafka, "-t", "greenhouse", "-o", "beginning", "-e", "-f", "%k=%s\n")
	if out != "house/1=mqttv311\nhouse/1=mqttv5\n" {
		t.Errorf("kcat replayed %q", out)
	}
}
