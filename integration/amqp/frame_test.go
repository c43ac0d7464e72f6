package amqp

import (
	"bytes"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestHeadersLargerThanFrames: a header frame cannot be split. Whatever was
// published, a client gets the message and no frame that it must refuse.
func TestHeadersLargerThanFrames(t *testing.T) {
	ownOnly(t)
	_, ch := shared.DialAMQP(t)
	q := newQueue(t, ch)
	big := bytes.Repeat([]byte("v"), 200_000)
	k := shared.DialKafka(t)
	must(t, k.ProduceSync(t.Context(), &kgo.Record{Topic: q, Value: []byte("kafka"), Headers: []kgo.RecordHeader{
		{Key: "trace", Value: []byte("1")}, {Key: "big", Value: big}, {Key: "span", Value: []byte("2")},
	}}).FirstErr())
	send(t, ch, "", q, "between")
	must(t, ch.PublishWithContext(t.Context(), "", q, false, false, amqp091.Publishing{
		Body: []byte("amqp"), MessageId: "m", Headers: args{"a": int32(1), "big": string(big[:100_000])},
	}))
	until(t, "the messages", func() bool { return count(t, ch, q) == 3 })
	for _, frameMax := range []int{131072, 4096} {
		c, err := amqp091.DialConfig("amqp://guest:guest@"+shared.AMQP+"/", amqp091.Config{FrameSize: frameMax})
		must(t, err)
		deliveries, err := channel(t, c).Consume(q, "", false, false, false, false, nil)
		must(t, err)
		d := harness.Receive(t, deliveries)
		if string(d.Body) != "kafka" || d.Headers["trace"] != "1" || d.Headers["span"] != "2" || d.Headers["big"] != nil || d.Headers["x-headers-dropped"] != true {
			t.Errorf("frame_max %d: %q %v", frameMax, d.Body, d.Headers)
		}
		if d = harness.Receive(t, deliveries); string(d.Body) != "between" || len(d.Headers) != 0 {
			t.Errorf("frame_max %d: %q %v", frameMax, d.Body, d.Headers)
		}
		d = harness.Receive(t, deliveries)
		whole := frameMax > 100_000
		if string(d.Body) != "amqp" || d.MessageId != "m" || (d.Headers["a"] == int32(1)) != whole || (d.Headers["x-headers-dropped"] == true) == whole {
			t.Errorf("frame_max %d: %q %q %v", frameMax, d.Body, d.MessageId, len(d.Headers))
		}
		must(t, c.Close())
	}
}
