package http

import (
	"encoding/json"
	"strings"
	"testing"
)

// The statuses, reasons and fields of these requests, in this order, are what
// RabbitMQ 3.10.8 with its management plugin answers (compared by hand; in the
// texts quoted here the two are equal to the letter).
func TestAnswersOfThePeer(t *testing.T) {
	g := guest(shared)
	as := map[string]user{"guest": g, "wrong": {g.base, "guest", "wrong"}, "u1": {g.base, "peer-u1", "p"}}
	for _, c := range []struct {
		as, method, path, body string
		status                 int
		want                   string // within the answer; fields of an object or of its first element, if it begins with +
	}{
		{"guest", "GET", "/api/whoami", "", 200, `{"name":"guest","tags":["administrator"]}`},
		{"wrong", "GET", "/api/whoami", "", 401, `{"error":"not_authorized","reason":"Login failed"}`},
		{"guest", "GET", "/api/nothing", "", 404, `{"error":"Object Not Found","reason":"Not Found"}`},
		{"guest", "PUT", "/api/vhosts/peer", `{"description":"d","tags":"a,b"}`, 201, ""},
		{"guest", "PUT", "/api/vhosts/peer", "", 204, ""},
		{"guest", "GET", "/api/vhosts/peer", "", 200, "+name description tags default_queue_type metadata tracing cluster_state"},
		{"guest", "GET", "/api/vhosts/none", "", 404, `"Object Not Found"`},
		{"guest", "GET", "/api/vhosts/peer/permissions", "", 200, `"user":"guest"`},
		{"guest", "PUT", "/api/users/peer-u1", `{"password":"p","tags":"management"}`, 201, ""},
		{"guest", "PUT", "/api/users/peer-u1", `{"password":"p","tags":"management"}`, 204, ""},
		{"guest", "GET", "/api/users/peer-u1", "", 200, "+name password_hash hashing_algorithm tags limits"},
		{"guest", "PUT", "/api/users/peer-u2", `{"password_hash":"xx","tags":""}`, 400, `"bad_request"`},
		{"guest", "PUT", "/api/users/peer-u2", `{"password":"p"}`, 400, `{"error":"bad_request","reason":"tags_not_present"}`},
		{"guest", "PUT", "/api/users/peer-u2", `{"tags":""}`, 201, ""},
		{"guest", "GET", "/api/users/without-permissions", "", 200, `"name":"peer-u2"`},
		{"guest", "POST", "/api/users/bulk-delete", `{"users":["peer-u2"]}`, 204, ""},
		{"guest", "DELETE", "/api/users/peer-u2", "", 404, `"Object Not Found"`},
		{"guest", "PUT", "/api/permissions/peer/peer-u1", `{"configure":".*","write":".*","read":".*"}`, 201, ""},
		{"guest", "PUT", "/api/permissions/peer/peer-u1", `{"configure":".*","write":".*"}`, 400, `{"error":"bad_request","reason":"[{key_missing,read}]"}`},
		{"guest", "PUT", "/api/permissions/peer/peer-u1", `{"configure":"(","write":".*","read":".*"}`, 400, `"bad_request"`},
		{"guest", "PUT", "/api/permissions/none/peer-u1", `{"configure":".*","write":".*","read":".*"}`, 400, `"vhost_or_user_not_found"`},
		{"guest", "PUT", "/api/permissions/peer/nobody", `{"configure":".*","write":".*","read":".*"}`, 400, `"vhost_or_user_not_found"`},
		{"guest", "GET", "/api/permissions/peer/peer-u1", "", 200, `{"user":"peer-u1","vhost":"peer","configure":".*","write":".*","read":".*"}`},
		{"guest", "GET", "/api/permissions/peer/nobody", "", 404, `"Object Not Found"`},
		{"guest", "PUT", "/api/topic-permissions/peer/peer-u1", `{"exchange":"amq.topic","write":"^a","read":".*"}`, 201, ""},
		{"guest", "GET", "/api/topic-permissions/peer/peer-u1", "", 200, `[{"user":"peer-u1","vhost":"peer","exchange":"amq.topic","write":"^a","read":".*"}]`},
		{"u1", "GET", "/api/exchanges/%2F", "", 401, `{"error":"not_authorised","reason":"User not authorised to access virtual host"}`},
		{"u1", "GET", "/api/users", "", 401, `{"error":"not_authorised","reason":"Not administrator user"}`},
		{"u1", "GET", "/api/nodes", "", 401, `{"error":"not_authorised","reason":"Not monitor user"}`},
		{"u1", "GET", "/api/exchanges/peer", "", 200, "+name vhost type durable auto_delete internal arguments user_who_performed_action"},
		{"guest", "PUT", "/api/exchanges/peer/x", `{"type":"direct"}`, 201, ""},
		{"guest", "PUT", "/api/exchanges/peer/x", `{"type":"direct"}`, 204, ""},
		{"guest", "PUT", "/api/exchanges/peer/x", `{"type":"fanout"}`, 400,
			`{"error":"bad_request","reason":"inequivalent arg 'type' for exchange 'x' in vhost 'peer': received 'fanout' but current is 'direct'"}`},
		{"guest", "PUT", "/api/exchanges/peer/y", `{"type":"nonsense"}`, 400, `unknown exchange type 'nonsense'`},
		{"guest", "PUT", "/api/exchanges/peer/amq.foo", `{"type":"direct"}`, 401, `"not_authorised"`},
		{"guest", "PUT", "/api/exchanges/peer/y", `notjson`, 400, `{"error":"bad_request","reason":"not_json"}`},
		{"guest", "PUT", "/api/exchanges/none/y", `{"type":"direct"}`, 404, `{"error":"not_found","reason":"vhost_not_found"}`},
		{"guest", "GET", "/api/exchanges/peer/amq.default", "", 200, `"name":""`},
		{"guest", "DELETE", "/api/exchanges/peer/none", "", 404, `"Object Not Found"`},
		{"guest", "DELETE", "/api/exchanges/peer/amq.direct", "", 401, `"not_authorised"`},
		{"guest", "PUT", "/api/queues/peer/q1", `{"durable":true,"auto_delete":false,"arguments":{"x-queue-type":"classic"}}`, 201, ""},
		{"guest", "PUT", "/api/queues/peer/q1", `{}`, 400,
			`{"error":"bad_request","reason":"inequivalent arg 'durable' for queue 'q1' in vhost 'peer': received 'false' but current is 'true'"}`},
		{"guest", "PUT", "/api/queues/peer/q2", `{"durable":"false"}`, 201, ""},
		{"guest", "PUT", "/api/queues/peer/q3", `{"arguments":{"x-queue-type":"bogus"}}`, 400,
			`{"error":"bad_request","reason":"invalid arg 'x-queue-type' for queue 'q3' in vhost 'peer': \"unsupported queue type 'bogus'\""}`},
		{"guest", "PUT", "/api/queues/peer/amq.q", `{}`, 401, `"not_authorised"`},
		{"guest", "GET", "/api/queues/peer/q1", "", 200, "+name vhost type node durable auto_delete exclusive arguments consumer_details deliveries incoming"},
		{"guest", "POST", "/api/bindings/peer/e/x/q/q1", `{"routing_key":"k1"}`, 201, ""},
		{"guest", "POST", "/api/bindings/peer/e/x/q/q1", `{"routing_key":"k1","arguments":{"a":1}}`, 201, ""},
		{"guest", "POST", "/api/bindings/peer/e/x/q/q1", `{}`, 201, ""},
		{"guest", "POST", "/api/bindings/peer/e/x/q/none", `{}`, 404, `{"error":"not_found","reason":"no queue 'none' in vhost 'peer'"}`},
		{"guest", "POST", "/api/bindings/peer/e/x/e/amq.fanout", `{"routing_key":"ee"}`, 201, ""},
		{"guest", "GET", "/api/bindings/peer/e/x/q/q1/k1", "", 200,
			`{"source":"x","vhost":"peer","destination":"q1","destination_type":"queue","routing_key":"k1","arguments":{},"properties_key":"k1"}`},
		{"guest", "GET", "/api/bindings/peer/e/x/q/q1/~", "", 200, `"properties_key":"~"`},
		{"guest", "GET", "/api/bindings/peer/e/x/q/q1/nope", "", 404, `"Object Not Found"`},
		{"guest", "GET", "/api/bindings/peer/e/x/e/amq.fanout", "", 200, `"destination_type":"exchange"`},
		{"guest", "GET", "/api/exchanges/peer/amq.fanout/bindings/destination", "", 200, `"source":"x"`},
		{"guest", "GET", "/api/queues/peer/q1/bindings", "", 200, `"properties_key":"q1"`},
		{"guest", "DELETE", "/api/bindings/peer/e/x/q/q1/k1", "", 204, ""},
		{"guest", "DELETE", "/api/bindings/peer/e/x/q/q1/k1", "", 404, `"Object Not Found"`},
		{"guest", "POST", "/api/exchanges/peer/amq.default/publish", `{"properties":{},"routing_key":"none","payload":"hi","payload_encoding":"string"}`, 200, `{"routed":false}`},
		{"guest", "POST", "/api/exchanges/peer/amq.default/publish", `{"properties":{},"routing_key":"none"}`, 400,
			`{"error":"bad_request","reason":"[{key_missing,payload},{key_missing,payload_encoding}]"}`},
		{"guest", "POST", "/api/exchanges/peer/none/publish", `{"properties":{},"routing_key":"k","payload":"hi","payload_encoding":"string"}`, 400,
			`{"error":"bad_request","reason":"404 NOT_FOUND - no exchange 'none' in vhost 'peer'"}`},
		{"guest", "POST", "/api/exchanges/peer/x/publish", `{"properties":{},"routing_key":"k","payload":"hi","payload_encoding":"wrong"}`, 400, `unsupported_encoding`},
		{"guest", "POST", "/api/queues/peer/q1/get", `{"count":5,"encoding":"auto"}`, 400, `{"error":"bad_request","reason":"[{key_missing,ackmode}]"}`},
		{"guest", "POST", "/api/queues/peer/none/get", `{"count":5,"ackmode":"ack_requeue_false","encoding":"auto"}`, 404,
			`{"error":"not_found","reason":"NOT_FOUND - no queue 'none' in vhost 'peer'"}`},
		{"guest", "DELETE", "/api/queues/peer/q1/contents", "", 204, ""},
		{"guest", "DELETE", "/api/queues/peer/none/contents", "", 404, `"Object Not Found"`},
		{"guest", "GET", "/api/queues/peer?page=1&page_size=1&sort=name&columns=name,vhost", "", 200,
			`{"filtered_count":2,"item_count":1,"items":[{"name":"q1","vhost":"peer"}],"page":1,"page_count":2,"page_size":1,"total_count":2}`},
		{"guest", "GET", "/api/queues/peer?page=1&name=q&use_regex=true&sort=name&sort_reverse=true&columns=name", "", 200,
			`{"filtered_count":2,"item_count":2,"items":[{"name":"q2"},{"name":"q1"}],"page":1,"page_count":1,"page_size":100,"total_count":2}`},
		{"guest", "GET", "/api/queues/peer?page=9&page_size=1", "", 400, `{"error":"page_out_of_range","reason":"Page out of range, page: 9 page size: 1, len: 2"}`},
		{"guest", "GET", "/api/queues?page=1&page_size=501", "", 400,
			`{"error":"invalid_pagination_parameters","reason":"Invalid pagination parameters: page number 1, page size 501"}`},
		{"guest", "GET", "/api/queues?page=a", "", 400, `{"error":"bad_request","reason":"Pagination parameters are invalid"}`},
		{"guest", "GET", "/api/queues/peer?sort=nonsense&columns=name", "", 200, `[{"name":"q1"},{"name":"q2"}]`},
		{"guest", "GET", "/api/connections/none", "", 404, `"Object Not Found"`},
		{"guest", "DELETE", "/api/connections/none", "", 404, `"Object Not Found"`},
		{"guest", "GET", "/api/aliveness-test/%2F", "", 200, `{"status":"ok"}`},
		{"guest", "GET", "/api/health/checks/alarms", "", 200, `{"status":"ok"}`},
		{"guest", "GET", "/api/health/checks/local-alarms", "", 200, `{"status":"ok"}`},
		{"guest", "GET", "/api/health/checks/virtual-hosts", "", 200, `{"status":"ok"}`},
		{"guest", "GET", "/api/health/checks/port-listener/1", "", 503, "+status reason missing ports"},
		{"guest", "GET", "/api/health/checks/port-listener/a", "", 400, `{"error":"bad_request","reason":"Invalid port"}`},
		{"guest", "GET", "/api/health/checks/protocol-listener/amqp091", "", 200, "+status protocol"},
		{"guest", "GET", "/api/health/checks/node-is-quorum-critical", "", 200, "+status reason"},
		{"guest", "GET", "/api/nodes?columns=name,type,running", "", 200, `"type":"disc"`},
		{"guest", "POST", "/api/queues", "", 405, ""},
		{"guest", "PUT", "/api/overview", "", 405, ""},
		{"guest", "HEAD", "/api/queues/peer/q1", "", 200, ""},
		{"guest", "OPTIONS", "/api/queues/peer/q1", "", 200, ""},
		{"guest", "GET", "/api/definitions/peer", "", 200, "+rabbit_version parameters policies queues exchanges bindings"},
		{"guest", "GET", "/api/definitions", "", 200,
			"+rabbit_version rabbitmq_version product_name product_version users vhosts permissions topic_permissions parameters global_parameters policies queues exchanges bindings"},
		{"guest", "DELETE", "/api/queues/peer/q1?if-unused=true", "", 204, ""},
		{"guest", "DELETE", "/api/queues/peer/q2", "", 204, ""},
		{"guest", "DELETE", "/api/queues/peer/q2", "", 404, `"Object Not Found"`},
		{"guest", "DELETE", "/api/vhosts/peer", "", 204, ""},
		{"guest", "DELETE", "/api/vhosts/peer", "", 404, `"Object Not Found"`},
		{"guest", "DELETE", "/api/users/peer-u1", "", 204, ""},
	} {
		status, body := as[c.as].ask(t, c.method, c.path, c.body)
		fields, keyed := strings.CutPrefix(c.want, "+")
		switch {
		case status != c.status:
			t.Errorf("%s %s %s as %s: %d %s, want %d", c.method, c.path, c.body, c.as, status, body, c.status)
		case keyed:
			hasFields(t, c.path, body, strings.Fields(fields))
		case !strings.Contains(body, c.want):
			t.Errorf("%s %s %s as %s: %s, want %s", c.method, c.path, c.body, c.as, body, c.want)
		}
	}
}

// hasFields checks the names in an object, or in the first one of an array.
func hasFields(t *testing.T, path, body string, fields []string) {
	t.Helper()
	var list []object
	if !strings.HasPrefix(body, "[") {
		body = "[" + body + "]"
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list) == 0 {
		t.Fatalf("%s: %v: %s", path, err, body)
	}
	for _, name := range fields {
		if _, ok := list[0][name]; !ok {
			t.Errorf("%s: no field %s in %s", path, name, body)
		}
	}
}
