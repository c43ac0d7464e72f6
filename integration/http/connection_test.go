package http

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

func TestConnections(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/queues/%2F/watched", `{"durable":true}`)
	config := amqp.Config{Properties: amqp.Table{"connection_name": "the one", "product": "test"}}
	conn, err := amqp.DialConfig("amqp://guest:guest@"+shared.AMQP+"/", config)
	harness.Must(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	harness.Must(t, err)
	_, err = ch.Consume("watched", "tag", false, false, false, false, nil)
	harness.Must(t, err)
	_, err = ch.QueueDeclare("own", false, false, true, false, nil)
	harness.Must(t, err)

	var name string
	for _, x := range get[[]object](t, g, "/api/connections") {
		if x["user_provided_name"] == "the one" {
			name = x["name"].(string)
		}
	}
	local := conn.LocalAddr().String()
	if !strings.HasPrefix(name, local+" -> ") {
		t.Fatalf("the connection of %s is called %q", local, name)
	}
	at := "/api/connections/" + url.PathEscape(name)
	wanted := object{
		"user": "guest", "vhost": "/", "state": "running", "protocol": "AMQP 0-9-1", "consumer_count": 1.0, "ssl": false, "auth_mechanism": "PLAIN",
		"channels": 1.0,
	}
	for field, want := range wanted {
		if got := get[object](t, g, at)[field]; got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	if got := get[object](t, g, at)["client_properties"].(object)["product"]; got != "test" {
		t.Errorf("client property: %v", got)
	}
	channels := get[[]object](t, g, at+"/channels")
	if len(channels) != 1 || channels[0]["number"] != 1.0 || channels[0]["consumer_count"] != 1.0 || channels[0]["name"] != name+" (1)" {
		t.Errorf("channels: %v", channels)
	}
	consumers := get[[]object](t, g, "/api/consumers/%2F?name=watched")
	if len(consumers) != 1 || consumers[0]["consumer_tag"] != "tag" || consumers[0]["ack_required"] != true ||
		consumers[0]["channel_details"].(object)["connection_name"] != name {
		t.Errorf("consumers: %v", consumers)
	}
	if got := get[object](t, g, "/api/queues/%2F/watched"); len(got["consumer_details"].([]any)) != 1 || got["consumers"] != 1.0 {
		t.Errorf("the queue: %v", got)
	}
	if got := get[object](t, g, "/api/queues/%2F/own"); got["exclusive"] != true || got["owner_pid_details"].(object)["name"] != name {
		t.Errorf("the exclusive queue: %v", got)
	}

	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	if status, answer := g.ask(t, "DELETE", at, "", "X-Reason", "maintenance at noon"); status != 204 {
		t.Fatalf("close: %d %s", status, answer)
	}
	reason := harness.Receive(t, closed)
	if reason == nil || reason.Code != amqp.ConnectionForced || !strings.Contains(reason.Reason, "maintenance at noon") {
		t.Errorf("the client was told %v", reason)
	}
	harness.Wait(t, harness.Patience, "the connection is gone", func() bool {
		status, _ := g.ask(t, "GET", at, "")
		return status == 404
	})
	if _, err := conn.Channel(); !errors.Is(err, amqp.ErrClosed) {
		t.Errorf("a channel on the closed connection: %v", err)
	}
}
