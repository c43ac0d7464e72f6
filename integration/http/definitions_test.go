package http

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestImportFromThePeer: what RabbitMQ 3.10.8 has exported is there after the
// import, users can log in with their passwords, and our own export of it can be
// imported by another node.
func TestImportFromThePeer(t *testing.T) {
	raw, err := os.ReadFile("testdata/rabbitmq.json")
	harness.Must(t, err)
	b := harness.Start(t)
	g := guest(b.Addresses)
	g.must(t, "POST", "/api/definitions", string(raw))

	conn, err := amqp.Dial("amqp://shop:s3cret@" + b.AMQP + "/shop")
	harness.Must(t, err)
	ch, err := conn.Channel()
	harness.Must(t, err)
	harness.Must(t, ch.Publish("orders", "order.new", false, false, amqp.Publishing{Body: []byte("routed")}))
	harness.Wait(t, harness.Patience, "the binding routes", func() bool {
		d, ok, err := ch.Get("incoming", true)
		return err == nil && ok && string(d.Body) == "routed"
	})
	harness.Must(t, conn.Close())
	if _, err := amqp.Dial("amqp://shop:wrong@" + b.AMQP + "/shop"); err == nil {
		t.Error("any password is good")
	}
	exported := g.must(t, "GET", "/api/definitions", "")
	g.must(t, "POST", "/api/definitions", exported) // what is there already is no error

	other := harness.Start(t)
	o := guest(other.Addresses)
	o.must(t, "POST", "/api/definitions", exported)
	again := o.must(t, "GET", "/api/definitions", "")
	var x, y object
	harness.Must(t, json.Unmarshal([]byte(exported), &x))
	harness.Must(t, json.Unmarshal([]byte(again), &y))
	for _, part := range []string{"users", "vhosts", "permissions", "topic_permissions", "queues", "exchanges", "bindings", "policies"} {
		if !reflect.DeepEqual(x[part], y[part]) {
			t.Errorf("%s:\n%v\nbecame\n%v", part, x[part], y[part])
		}
	}
	if n := len(x["bindings"].([]any)); n != 3 {
		t.Errorf("%d bindings", n)
	}
	// What is durable outlives a restart.
	o.must(t, "DELETE", "/api/queues/shop/fleeting", "")
	again = o.must(t, "GET", "/api/definitions", "")
	if code := other.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	other.Run()
	if kept := o.must(t, "GET", "/api/definitions", ""); kept != again {
		t.Errorf("after a restart:\n%s\nwant\n%s", kept, again)
	}
}

// TestImportIsAllOrNothing: nothing changes if something cannot be had.
func TestImportIsAllOrNothing(t *testing.T) {
	g := guest(shared)
	for name, bad := range map[string]string{
		"parameters":     `{"vhosts":[{"name":"half"}],"parameters":[{"vhost":"half","component":"shovel","name":"s","value":{}}]}`,
		"section":        `{"vhosts":[{"name":"half"}],"shovels":[1]}`,
		"no user":        `{"vhosts":[{"name":"half"}],"permissions":[{"user":"nosuch","vhost":"half","configure":"","write":"","read":""}]}`,
		"pattern":        `{"vhosts":[{"name":"half"}],"permissions":[{"user":"guest","vhost":"half","configure":"(","write":"","read":""}]}`,
		"queue name":     `{"vhosts":[{"name":"half"}],"queues":[{"name":"amq.x","vhost":"half","durable":true}]}`,
		"no queue name":  `{"vhosts":[{"name":"half"}],"queues":[{"name":"","vhost":"half","durable":true}]}`,
		"exchange type":  `{"vhosts":[{"name":"half"}],"exchanges":[{"name":"x","vhost":"half","type":"none"}]}`,
		"no vhost":       `{"vhosts":[{"name":"half"}],"queues":[{"name":"q","vhost":"nosuch","durable":true}]}`,
		"policy's vhost": `{"vhosts":[{"name":"half"}],"policies":[{"vhost":"nosuch","name":"p","pattern":"a","definition":{"max-length":1}}]}`,
		"no queue":       `{"vhosts":[{"name":"half"}],"bindings":[{"source":"amq.topic","vhost":"half","destination":"q","destination_type":"queue","routing_key":"","arguments":{}}]}`,
		"no exchange":    `{"vhosts":[{"name":"half"}],"queues":[{"name":"q","vhost":"half","durable":true}],"bindings":[{"source":"x","vhost":"half","destination":"q","destination_type":"queue","routing_key":"","arguments":{}}]}`,
		"password hash":  `{"vhosts":[{"name":"half"}],"users":[{"name":"u","tags":"","password_hash":"x","hashing_algorithm":"rabbit_password_hashing_sha256"}]}`,
		"no password":    `{"vhosts":[{"name":"half"}],"users":[{"name":"u","tags":"","password":""}]}`,
		"argument":       `{"vhosts":[{"name":"half"}],"queues":[{"name":"q","vhost":"half","durable":true,"arguments":{"x-no-such":1}}]}`,
		"user limits":    `{"vhosts":[{"name":"half"}],"users":[{"name":"u","tags":"","limits":{"max-channels":1}}]}`,
		"not an object":  `["half"]`,
		"wrong type":     `{"vhosts":"half"}`,
		"not JSON":       `{"vhosts":[{"name":"half"}]`,
		"global setting": `{"vhosts":[{"name":"half"}],"global_parameters":[{"name":"mqtt_port_to_vhost_mapping","value":{}}]}`,
	} {
		if status, answer := g.ask(t, "POST", "/api/definitions", bad); status != 400 {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		if status, _ := g.ask(t, "GET", "/api/vhosts/half", ""); status != 404 {
			t.Errorf("%s: the tenant was made", name)
		}
	}
}
