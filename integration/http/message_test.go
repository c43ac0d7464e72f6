package http

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

const noPayloadChange = `"encoding":"auto"`

type message struct {
	Bytes       int    `json:"payload_bytes"`
	Redelivered bool   `json:"redelivered"`
	Exchange    string `json:"exchange"`
	Key         string `json:"routing_key"`
	Count       int    `json:"message_count"`
	Properties  object `json:"properties"`
	Payload     string `json:"payload"`
	Encoding    string `json:"payload_encoding"`
}

func take(t *testing.T, queue, mode string, count int, more string) (list []message) {
	t.Helper()
	body := fmt.Sprintf(`{"count":%d,"ackmode":%q,%s}`, count, mode, more)
	harness.Must(t, json.Unmarshal([]byte(guest(shared).must(t, "POST", "/api/queues/%2F/"+queue+"/get", body)), &list))
	return list
}

// What is published over HTTP arrives at an AMQP client with its properties, and
// the other way round.
func TestMessagesOfBothFrontEnds(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/queues/%2F/both", `{"durable":true}`)
	_, ch := shared.DialAMQP(t)
	g.must(t, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{"delivery_mode":2,"content_type":"text/plain","priority":3,
		"headers":{"a":1,"b":"x","c":[1,"2"],"d":{"e":true}}},"routing_key":"both","payload":"aGk=","payload_encoding":"base64"}`)
	d, ok, err := ch.Get("both", true)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := amqp.Table{"a": int64(1), "b": "x", "c": []any{int64(1), "2"}, "d": amqp.Table{"e": true}}
	if string(d.Body) != "hi" || d.DeliveryMode != 2 || d.ContentType != "text/plain" || d.Priority != 3 || !reflect.DeepEqual(d.Headers, want) {
		t.Errorf("over AMQP: %+v", d)
	}
	harness.Must(t, ch.Publish("amq.direct", "k", false, false, amqp.Publishing{Body: []byte("lost")}))
	harness.Must(t, ch.Publish("", "both", false, false, amqp.Publishing{
		Body: []byte{0xff, 1}, MessageId: "m", Headers: amqp.Table{"n": int32(5), "t": "x"},
	}))
	harness.Wait(t, harness.Patience, "the message is there", func() bool {
		return get[object](t, g, "/api/queues/%2F/both")["messages"] == 1.0
	})
	got := take(t, "both", "ack_requeue_false", 10, noPayloadChange)
	if len(got) != 1 || got[0].Encoding != "base64" || got[0].Payload != base64.StdEncoding.EncodeToString([]byte{0xff, 1}) ||
		!reflect.DeepEqual(got[0].Properties, object{"message_id": "m", "headers": object{"n": 5.0, "t": "x"}}) {
		t.Errorf("over HTTP: %+v", got)
	}
	if got := take(t, "both", "ack_requeue_false", 10, noPayloadChange); len(got) != 0 {
		t.Errorf("it is still there: %+v", got)
	}
}

// TestGet: the four ways to get a message, in RabbitMQ's meaning.
func TestGet(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/queues/%2F/gets", `{"durable":true}`)
	for i := range 3 {
		answer := g.must(t, "POST", "/api/exchanges/%2F/amq.default/publish",
			fmt.Sprintf(`{"properties":{},"routing_key":"gets","payload":"message %d","payload_encoding":"string"}`, i))
		if answer != `{"routed":true}` {
			t.Fatal(answer)
		}
	}
	check := func(list []message, redelivered bool, payloads ...string) {
		t.Helper()
		if len(list) != len(payloads) {
			t.Fatalf("%d messages, want %d: %+v", len(list), len(payloads), list)
		}
		for i, m := range list {
			if m.Payload != payloads[i] || m.Redelivered != redelivered || m.Bytes != 9 || m.Key != "gets" {
				t.Errorf("message %d: %+v", i, m)
			}
		}
	}
	check(take(t, "gets", "ack_requeue_true", 2, noPayloadChange), false, "message 0", "message 1")
	check(take(t, "gets", "reject_requeue_true", 1, `"encoding":"auto","truncate":4`), true, "mess")
	check(take(t, "gets", "reject_requeue_false", 1, `"encoding":"base64"`), true, base64.StdEncoding.EncodeToString([]byte("message 0")))
	list := take(t, "gets", "ack_requeue_false", 5, noPayloadChange)
	if len(list) != 2 || list[0].Payload != "message 1" || list[1].Payload != "message 2" || list[0].Count != 1 || list[1].Count != 0 {
		t.Errorf("the rest: %+v", list)
	}
	for body, want := range map[string]int{
		`{"count":-1,"ackmode":"ack_requeue_true","encoding":"auto"}`:   400,
		`{"count":1,"ackmode":"whatever","encoding":"auto"}`:            400,
		`{"count":1,"ackmode":"ack_requeue_true","encoding":"utf-16"}`:  400,
		`{"count":"1","ackmode":"ack_requeue_true","encoding":"auto"}`:  200, // rabbitmqadmin sends a text
		`{"count":1e9,"ackmode":"ack_requeue_true","encoding":"auto"}`:  400,
		`{"count":"x","ackmode":"ack_requeue_true","encoding":"auto"}`:  400,
		`[{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"}]`:  400,
		`{"count":1,"ackmode":"ack_requeue_true","encoding":"auto"} {}`: 400,
	} {
		if status, answer := g.ask(t, "POST", "/api/queues/%2F/gets/get", body); status != want {
			t.Errorf("%s: %d %s, want %d", body, status, answer, want)
		}
	}
}

// TestPublishWithFurtherKeys: CC, BCC and typed headers route what is published
// over HTTP as they do over AMQP.
func TestPublishWithFurtherKeys(t *testing.T) {
	g := guest(shared)
	_, ch := shared.DialAMQP(t)
	for _, queue := range []string{"key-cc", "key-bcc", "key-typed"} {
		g.must(t, "PUT", "/api/queues/%2F/"+queue, `{"durable":true}`)
	}
	harness.Must(t, ch.QueueBind("key-typed", "", "amq.headers", false, amqp.Table{"n": int32(1), "x-match": "all"}))
	g.must(t, "POST", "/api/exchanges/%2F/amq.default/publish", `{"properties":{"headers":{"CC":["key-cc"],"BCC":["key-bcc"]}},
		"routing_key":"nowhere","payload":"copy","payload_encoding":"string"}`)
	g.must(t, "POST", "/api/exchanges/%2F/amq.headers/publish", `{"properties":{"headers":{"n":1}},
		"routing_key":"","payload":"typed","payload_encoding":"string"}`)
	for _, queue := range []string{"key-cc", "key-bcc", "key-typed"} {
		d, ok, err := ch.Get(queue, true)
		if err != nil || !ok {
			t.Fatal(queue, ok, err)
		}
		if d.Headers["BCC"] != nil {
			t.Errorf("%s: %v", queue, d.Headers)
		}
	}
}
