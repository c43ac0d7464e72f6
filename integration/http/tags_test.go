package http

import (
	"testing"
)

// TestTags: what each of RabbitMQ's tags may do.
func TestTags(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/vhosts/tags", "")
	tags := []string{"administrator", "monitoring", "policymaker", "management", "none"}
	as := map[string]user{}
	for _, tag := range tags {
		g.must(t, "PUT", "/api/users/tag-"+tag, `{"password":"p","tags":"`+tag+`"}`)
		g.must(t, "PUT", "/api/permissions/tags/tag-"+tag, `{"configure":"^mine","write":"^mine","read":"^mine"}`)
		as[tag] = user{g.base, "tag-" + tag, "p"}
	}
	for _, c := range []struct {
		method, path, body                                    string
		administrator, monitoring, policymaker, manager, none int
	}{
		{"GET", "/api/whoami", "", 200, 200, 200, 200, 401},
		{"GET", "/api/overview", "", 200, 200, 200, 200, 401},
		{"GET", "/api/nodes", "", 200, 200, 401, 401, 401},
		{"GET", "/api/users", "", 200, 401, 401, 401, 401},
		{"GET", "/api/permissions", "", 200, 401, 401, 401, 401},
		{"GET", "/api/definitions", "", 200, 401, 401, 401, 401},
		{"GET", "/api/parameters", "", 200, 401, 200, 401, 401},
		{"GET", "/api/queues/%2F", "", 200, 200, 401, 401, 401}, // not his tenant
		{"PUT", "/api/queues/%2F/mine", "{}", 401, 401, 401, 401, 401},
		{"GET", "/api/queues/tags", "", 200, 200, 200, 200, 401},
		{"PUT", "/api/queues/tags/other", "{}", 401, 401, 401, 401, 401}, // not permitted
		{"PUT", "/api/vhosts/more", "", 201, 401, 401, 401, 401},
		{"GET", "/api/health/checks/alarms", "", 200, 200, 401, 401, 401},
	} {
		for i, want := range []int{c.administrator, c.monitoring, c.policymaker, c.manager, c.none} {
			if status, answer := as[tags[i]].ask(t, c.method, c.path, c.body); status != want {
				t.Errorf("%s %s as %s: %d %s, want %d", c.method, c.path, tags[i], status, answer, want)
			}
		}
	}
	for _, tag := range tags[:4] {
		as[tag].must(t, "PUT", "/api/queues/tags/mine-"+tag, "{}")
	}
	vhosts := get[[]object](t, as["management"], "/api/vhosts")
	if len(vhosts) != 1 || vhosts[0]["name"] != "tags" {
		t.Errorf("the tenants of a manager: %v", vhosts)
	}
	if all := get[[]object](t, as["monitoring"], "/api/vhosts"); len(all) < 3 {
		t.Errorf("the tenants of a monitor: %v", all)
	}
	for _, q := range get[[]object](t, as["management"], "/api/queues") {
		if q["vhost"] != "tags" {
			t.Errorf("a manager sees %v", q["name"])
		}
	}
	// Others' connections are not a manager's to see or to close.
	conn, _ := shared.DialAMQP(t)
	for _, x := range get[[]object](t, as["management"], "/api/connections") {
		t.Errorf("a manager sees the connection %v", x["name"])
	}
	if all := get[[]object](t, as["monitoring"], "/api/connections"); len(all) == 0 {
		t.Error("a monitor sees no connection")
	}
	if status, _ := as["monitoring"].ask(t, "DELETE", "/api/connections/username/guest", ""); status != 401 {
		t.Errorf("a monitor closed connections: %d", status)
	}
	if conn.IsClosed() {
		t.Error("the connection is closed")
	}
	g.must(t, "DELETE", "/api/vhosts/tags", "")
	g.must(t, "DELETE", "/api/vhosts/more", "")
	for _, tag := range tags {
		g.must(t, "DELETE", "/api/users/tag-"+tag, "")
	}
}
