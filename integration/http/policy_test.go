package http

import (
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// fill declares a queue with n messages.
func fill(t testing.TB, ch *amqp.Channel, queue string, n int, args amqp.Table) {
	t.Helper()
	_, err := ch.QueueDeclare(queue, true, false, false, false, args)
	harness.Must(t, err)
	for i := range n {
		harness.Confirmed(t, ch, "", queue, amqp.Publishing{Body: []byte(fmt.Sprint(i))})
	}
}

func depth(t testing.TB, ch *amqp.Channel, queue string) int {
	t.Helper()
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	harness.Must(t, err)
	return q.Messages
}

// TestPolicies: policies over HTTP rule a queue that is there, also after a kill.
func TestPolicies(t *testing.T) {
	b := harness.Start(t)
	g := guest(b.Addresses)
	open := func() *amqp.Channel {
		_, ch := b.DialAMQP(t)
		harness.Must(t, ch.Confirm(false))
		return ch
	}
	ch := open()
	_, err := ch.QueueDeclare("dead", true, false, false, false, nil)
	harness.Must(t, err)
	fill(t, ch, "orders", 10, nil)
	fill(t, ch, "orders.q", 10, amqp.Table{"x-queue-type": "quorum"})
	becomes := func(queue string, n int) {
		t.Helper()
		harness.Wait(t, harness.Patience, fmt.Sprintf("%s has %d messages", queue, n), func() bool { return depth(t, ch, queue) == n })
	}
	if status, _ := g.ask(t, "PUT", "/api/policies/%2F/trim",
		`{"pattern":"^orders","apply-to":"queues","priority":"1","definition":{"max-length":4,"dead-letter-exchange":"","dead-letter-routing-key":"dead","ha-mode":"all"}}`); status != 201 {
		t.Errorf("a new policy: %d", status)
	}
	becomes("orders", 4)
	becomes("orders.q", 4)
	becomes("dead", 12)
	if status, _ := g.ask(t, "PUT", "/api/operator-policies/%2F/bound", `{"pattern":"^orders$","definition":{"max-length":2}}`); status != 201 {
		t.Errorf("a new operator policy: %d", status)
	}
	becomes("orders", 2)
	q := get[object](t, g, "/api/queues/%2F/orders")
	effective := object{"dead-letter-exchange": "", "dead-letter-routing-key": "dead", "ha-mode": "all", "max-length": 2.0}
	if q["policy"] != "trim" || q["operator_policy"] != "bound" || !reflect.DeepEqual(q["effective_policy_definition"], effective) {
		t.Errorf("%v, %v, %v", q["policy"], q["operator_policy"], q["effective_policy_definition"])
	}
	want := object{"vhost": "/", "name": "trim", "pattern": "^orders", "apply-to": "queues", "priority": 1.0,
		"definition": object{"max-length": 4.0, "dead-letter-exchange": "", "dead-letter-routing-key": "dead", "ha-mode": "all"}}
	for _, path := range []string{"/api/policies", "/api/policies/%2F"} {
		if got := get[[]object](t, g, path); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%s: %v", path, got)
		}
	}
	b.Kill()
	b.Run()
	ch = open()
	harness.Confirmed(t, ch, "", "orders", amqp.Publishing{Body: []byte("after the kill")})
	becomes("orders", 2)
	dead, err := ch.Consume("dead", "", true, false, false, false, nil)
	harness.Must(t, err)
	for d := harness.Receive(t, dead); string(d.Body) != "8"; d = harness.Receive(t, dead) { // the kill may have made some twice
		continue
	}
	for _, path := range []string{"/api/policies/%2F/trim", "/api/operator-policies/%2F/bound"} {
		g.must(t, "DELETE", path, "")
		if status, _ := g.ask(t, "GET", path, ""); status != 404 {
			t.Errorf("GET %s after the end: %d", path, status)
		}
		if status, _ := g.ask(t, "DELETE", path, ""); status != 404 {
			t.Errorf("DELETE %s once more: %d", path, status)
		}
	}
	fill(t, ch, "orders", 5, nil)
	becomes("orders", 7)
}

// TestPoliciesRefused: what RabbitMQ refuses too.
func TestPoliciesRefused(t *testing.T) {
	g := guest(shared)
	for body, reason := range map[string]string{
		`{"pattern":"^x","definition":{"max-lenght":1}}`:                                   "not a recognised policy setting",
		`{"pattern":"^x","definition":{"max-length":-1}}`:                                  "max-length",
		`{"pattern":"^x","definition":{"max-length":"1"}}`:                                 "max-length",
		`{"pattern":"^x","definition":{"expires":0}}`:                                      "expires",
		`{"pattern":"^x","definition":{"overflow":"x"}}`:                                   "overflow",
		`{"pattern":"^x","definition":{"dead-letter-exchange":1}}`:                         "dead-letter-exchange",
		`{"pattern":"^x","definition":{"federation-upstream-set":"all"}}`:                  "not a recognised policy setting",
		`{"pattern":"(","definition":{"max-length":1}}`:                                    "regular expression",
		`{"pattern":"^x","definition":{}}`:                                                 "empty",
		`{"pattern":"^x"}`:                                                                 "{key_missing,definition}",
		`{"definition":{"max-length":1}}`:                                                  "{key_missing,pattern}",
		`{"pattern":"^x","apply-to":"topics","definition":{"max-length":1}}`:               "apply-to",
		`{"pattern":"^x","priority":"high","definition":{"max-length":1}}`:                 "number",
		`{"pattern":"^x","definition":{"max-length":1},"apply-to":"queues","priority":{}}`: "number",
	} {
		status, answer := g.ask(t, "PUT", "/api/policies/%2F/bad", body)
		if status != 400 || !strings.Contains(answer, reason) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, answer := g.ask(t, "PUT", "/api/operator-policies/%2F/bad", `{"pattern":"^x","definition":{"dead-letter-exchange":"x"}}`); status != 400 {
		t.Errorf("operator: %d %s", status, answer)
	}
	if status, _ := g.ask(t, "PUT", "/api/policies/none/p", `{"pattern":"^x","definition":{"max-length":1}}`); status != 404 {
		t.Errorf("no such tenant: %d", status)
	}
	if list := get[[]object](t, g, "/api/policies"); len(list) != 0 {
		t.Errorf("%v", list)
	}
}

// TestPoliciesInDefinitions: RabbitMQ exports operator policies as parameters.
func TestPoliciesInDefinitions(t *testing.T) {
	b := harness.Start(t)
	g := guest(b.Addresses)
	g.must(t, "POST", "/api/definitions", `{"vhosts":[{"name":"shop"}],
		"parameters":[{"value":{"apply-to":"queues","definition":{"max-length":3},"pattern":"^o","priority":7},"vhost":"shop","component":"operator_policy","name":"bound"}],
		"policies":[{"vhost":"shop","name":"ha","pattern":".*","apply-to":"all","definition":{"ha-mode":"exactly","ha-params":2,"expires":3600000},"priority":0}],
		"queues":[{"name":"o","vhost":"shop","durable":true,"auto_delete":false,"arguments":{}}],
		"permissions":[{"user":"guest","vhost":"shop","configure":".*","write":".*","read":".*"}]}`)
	q := get[object](t, g, "/api/queues/shop/o")
	if want := (object{"max-length": 3.0, "expires": 3600000.0, "ha-mode": "exactly", "ha-params": 2.0}); !reflect.DeepEqual(q["effective_policy_definition"], want) {
		t.Errorf("%v", q["effective_policy_definition"])
	}
	other := guest(harness.Start(t).Addresses)
	exported := g.must(t, "GET", "/api/definitions", "")
	other.must(t, "POST", "/api/definitions", exported)
	var x, y object
	harness.Must(t, json.Unmarshal([]byte(exported), &x))
	harness.Must(t, json.Unmarshal([]byte(other.must(t, "GET", "/api/definitions", "")), &y))
	for _, part := range []string{"parameters", "policies"} {
		if list, _ := x[part].([]any); len(list) != 1 || !reflect.DeepEqual(x[part], y[part]) {
			t.Errorf("%s: %v became %v", part, x[part], y[part])
		}
	}
	// Those of one tenant go into another one.
	g.must(t, "PUT", "/api/vhosts/copy", "")
	g.must(t, "POST", "/api/definitions/copy", g.must(t, "GET", "/api/definitions/shop", ""))
	for _, kind := range []string{"policies", "operator-policies"} {
		if list := get[[]object](t, g, "/api/"+kind+"/copy"); len(list) != 1 || list[0]["vhost"] != "copy" {
			t.Errorf("%s: %v", kind, list)
		}
	}
	g.must(t, "DELETE", "/api/vhosts/copy", "")
	if list := get[[]object](t, g, "/api/policies"); len(list) != 1 {
		t.Errorf("policies outlive their tenant: %v", list)
	}
}

// TestAlternateExchangeByPolicy shows at the exchange too.
func TestAlternateExchangeByPolicy(t *testing.T) {
	g := guest(shared)
	_, ch := shared.DialAMQP(t)
	harness.Must(t, ch.Confirm(false))
	x, rest, q := harness.Name("x"), harness.Name("rest"), harness.Name("q")
	harness.Must(t, ch.ExchangeDeclare(x, "direct", true, false, false, false, nil))
	harness.Must(t, ch.ExchangeDeclare(rest, "fanout", true, false, false, false, nil))
	fill(t, ch, q, 0, nil)
	harness.Must(t, ch.QueueBind(q, "", rest, false, nil))
	path := "/api/policies/%2F/" + url.PathEscape(x)
	g.must(t, "PUT", path, fmt.Sprintf(`{"pattern":"^%s$","apply-to":"exchanges","definition":{"alternate-exchange":%q}}`, x, rest))
	harness.Confirmed(t, ch, x, "nobody's", amqp.Publishing{Body: []byte("kept")})
	if n := depth(t, ch, q); n != 1 {
		t.Errorf("%d messages", n)
	}
	if info := get[object](t, g, "/api/exchanges/%2F/"+x); info["policy"] != x {
		t.Errorf("%v", info)
	}
	g.must(t, "DELETE", path, "")
	harness.Confirmed(t, ch, x, "nobody's", amqp.Publishing{Body: []byte("lost")})
	if n := depth(t, ch, q); n != 1 {
		t.Errorf("%d messages after the end of the policy", n)
	}
}
