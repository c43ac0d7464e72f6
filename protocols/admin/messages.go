package admin

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// storeTime is how long a publish may take to be stored.
const storeTime = 10 * time.Second

// publishBody is what a client publishes. Pointers tell what is missing.
type publishBody struct {
	Key        *string `json:"routing_key"`
	Payload    *string `json:"payload"`
	Encoding   *string `json:"payload_encoding"`
	Properties *values `json:"properties"`
}

// body decodes the payload.
func (b *publishBody) body() ([]byte, error) {
	switch *b.Encoding {
	case "string":
		return []byte(*b.Payload), nil
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(*b.Payload)
		if err != nil {
			return nil, badRequest("the payload is not base64")
		}
		return raw, nil
	}
	return nil, badRequest(fmt.Sprintf("unsupported_encoding: %.40s", *b.Encoding))
}

// missing names the keys that a body must have and has not, in RabbitMQ's form.
func missing(keys ...any) error {
	text := ""
	for i := 0; i < len(keys); i += 2 {
		if keys[i+1].(bool) {
			if text != "" {
				text += ","
			}
			text += fmt.Sprintf("{key_missing,%s}", keys[i])
		}
	}
	if text == "" {
		return nil
	}
	return badRequest("[" + text + "]")
}

// publish is POST /api/exchanges/{vhost}/{name}/publish. A message that no
// queue takes is not stored, and the answer says so.
func publish(c *call) error {
	var b publishBody
	done, err := c.readLarge(&b)
	if err != nil {
		return err
	}
	defer done()
	err = missing("properties", b.Properties == nil, "routing_key", b.Key == nil, "payload", b.Payload == nil, "payload_encoding", b.Encoding == nil)
	if err != nil {
		return err
	}
	x, err := c.exchange()
	if err != nil {
		return badRequest(fmt.Sprintf("404 NOT_FOUND - no exchange '%s' in vhost '%s'", c.args[1], c.args[0]))
	}
	payload, err := b.body()
	if err != nil {
		return err
	}
	r, opt, err := c.s.cfg.Mapper.Record(x.Name, *b.Key, *b.Properties, payload, c.user.Name)
	if err != nil {
		return err
	}
	opt.Mandatory = true
	routed := false
	err = c.within(c.args[0], func(conn *broker.Conn) error {
		out := make(outcome, 1)
		p := conn.Publisher(out)
		defer p.Close()
		conn.Gathered(c.r.Context()) // nobody would try it again
		matched, err := p.ToExchange(x.Name, *b.Key, r, opt, 0)
		if err != nil || matched == 0 {
			return err
		}
		routed = true
		return out.wait(c)
	})
	if err != nil {
		return err
	}
	return c.answer(struct {
		Routed bool `json:"routed"`
	}{routed})
}

// outcome takes the outcome of one publish.
type outcome chan error

// Completed implements kernel.Completion.
func (o outcome) Completed(_ uint64, res kernel.Result) { o <- res.Err }

// Flush implements kernel.Completion.
func (o outcome) Flush() {}

func (o outcome) wait(c *call) error {
	limit := time.NewTimer(storeTime)
	defer limit.Stop()
	select {
	case err := <-o:
		return err
	case <-limit.C:
	case <-c.r.Context().Done():
	}
	return kernel.Errorf(kernel.CodeUnknown, "", "", "the message may or may not have been stored")
}

// The ways to get messages.
var ackModes = map[string]struct {
	outcome kernel.Outcome
	again   bool
}{
	"ack_requeue_true": {kernel.Release, true}, "reject_requeue_true": {kernel.Release, true},
	"ack_requeue_false": {kernel.Accept, false}, "reject_requeue_false": {kernel.Refuse, false},
}

const (
	// maxGet is the most messages of one request, and maxGetBytes about how many
	// bytes of payload are answered: what does not fit stays in the queue.
	maxGet      = 10_000
	maxGetBytes = 16 << 20
)

// getBody is what a client asks of a queue.
type getBody struct {
	Count    *whole  `json:"count"`
	AckMode  *string `json:"ackmode"`
	Encoding *string `json:"encoding"`
	Truncate *whole  `json:"truncate"`
}

// message is a message that was taken from a queue.
type message struct {
	Bytes       int            `json:"payload_bytes"`
	Redelivered bool           `json:"redelivered"`
	Exchange    string         `json:"exchange"`
	Key         string         `json:"routing_key"`
	Count       int64          `json:"message_count"`
	Properties  map[string]any `json:"properties"`
	Payload     string         `json:"payload"`
	Encoding    string         `json:"payload_encoding"`

	partition int32
	offset    int64
}

// getMessages is POST /api/queues/{vhost}/{name}/get.
func getMessages(c *call) error {
	var b getBody
	if err := c.read(&b); err != nil {
		return err
	}
	if err := missing("count", b.Count == nil, "ackmode", b.AckMode == nil, "encoding", b.Encoding == nil); err != nil {
		return err
	}
	mode, ok := ackModes[*b.AckMode]
	switch {
	case !ok:
		return badRequest(fmt.Sprintf("unknown ackmode: %.40s", *b.AckMode))
	case *b.Count < 0 || *b.Count > maxGet:
		return badRequest(fmt.Sprintf("count is not between 0 and %d", maxGet))
	case *b.Encoding != "auto" && *b.Encoding != "base64":
		return badRequest(fmt.Sprintf("unsupported_encoding: %.40s", *b.Encoding))
	case b.Truncate != nil && *b.Truncate < 0:
		return badRequest("truncate is negative")
	}
	q, ok := c.s.node.QueueStatus(c.args[0], c.args[1])
	if !ok {
		return &refusal{404, "not_found", fmt.Sprintf("NOT_FOUND - no queue '%s' in vhost '%s'", c.args[1], c.args[0])}
	}
	if q.Queue != nil && q.Queue.Type == kernel.Stream {
		return badRequest(fmt.Sprintf("540 NOT_IMPLEMENTED - basic.get not supported by stream queues queue '%s' in vhost '%s'", c.args[1], c.args[0]))
	}
	list := []message{}
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		m, err := conn.Join(c.r.Context(), q.Address, kernel.MemberOptions{Pull: true}, nil)
		if err != nil {
			return err
		}
		defer m.Leave()
		list, err = c.take(m, &b, q.Address.Topic)
		for i := range list {
			m.Settle(mode.outcome, list[i].partition, list[i].offset, list[i].offset)
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.answer(list)
}

// take takes messages, one by one, so that what does not fit the answer is not
// touched.
func (c *call) take(m *broker.Member, b *getBody, topic string) ([]message, error) {
	list, bytes := []message{}, 0
	for len(list) < int(*b.Count) && bytes < maxGetBytes {
		before := len(list)
		err := m.Acquire(1, func(batch []kernel.Delivery, ready int64) {
			for i := range batch {
				msg := c.s.message(&batch[i], ready, b, topic)
				bytes += len(msg.Payload)
				list = append(list, msg)
			}
		})
		if err != nil {
			return list, err
		}
		if len(list) == before {
			break
		}
	}
	return list, nil
}

// message copies what is shown of a delivery.
func (s *Server) message(d *kernel.Delivery, ready int64, b *getBody, topic string) message {
	payload := d.Record.Value
	msg := message{
		Bytes: len(payload), Redelivered: d.Redelivered, Count: ready, Encoding: "string", partition: d.Partition, offset: d.Offset,
	}
	msg.Exchange, msg.Key, msg.Properties = s.cfg.Mapper.Message(d.Record, topic)
	if b.Truncate != nil {
		payload = payload[:min(len(payload), int(*b.Truncate))]
	}
	if *b.Encoding == "base64" || !utf8.Valid(payload) {
		msg.Payload, msg.Encoding = base64.StdEncoding.EncodeToString(payload), "base64"
	} else {
		msg.Payload = string(payload)
	}
	return msg
}
