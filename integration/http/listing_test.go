package http

import (
	"fmt"
	"net/url"
	"testing"
)

// TestOddNames: names that need escaping are found under exactly their path.
func TestOddNames(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/vhosts/"+url.PathEscape("odd/vhost"), "")
	for _, name := range []string{"a/b", "a%2Fb", "ü ö", "?x=1&y", "#", "..", "e", "~", "contents", "+"} {
		at := "/api/queues/odd%2Fvhost/" + url.PathEscape(name)
		if name == ".." {
			at = "/api/queues/odd%2Fvhost/%2E%2E"
		}
		g.must(t, "PUT", at, `{"durable":true}`)
		if got := get[object](t, g, at)["name"]; got != name {
			t.Errorf("%q is listed as %q", name, got)
		}
		g.must(t, "POST", "/api/bindings/odd%2Fvhost/e/amq.topic/q/"+url.PathEscape(name), `{"routing_key":"a~/b"}`)
		found := get[[]object](t, g, at+"/bindings")
		if len(found) != 2 {
			t.Fatalf("bindings of %q: %v", name, found)
		}
		key := url.PathEscape(found[1]["properties_key"].(string))
		g.must(t, "DELETE", "/api/bindings/odd%2Fvhost/e/amq.topic/q/"+url.PathEscape(name)+"/"+key, "")
		g.must(t, "DELETE", at, "")
	}
	g.must(t, "DELETE", "/api/vhosts/odd%2Fvhost", "")
}

// TestPages: pages of a long listing are complete and in order.
func TestPages(t *testing.T) {
	g := guest(shared)
	g.must(t, "PUT", "/api/vhosts/pages", "")
	const count = 120
	for i := range count {
		g.must(t, "PUT", fmt.Sprintf("/api/exchanges/pages/x%03d", i), `{"type":"fanout"}`)
	}
	type page struct {
		Filtered int `json:"filtered_count"`
		Count    int `json:"page_count"`
		Items    []object
	}
	seen := 0
	for number := 1; ; number++ {
		p := get[page](t, g, fmt.Sprintf("/api/exchanges/pages?page=%d&page_size=50&name=%%5Ex&use_regex=true&columns=name", number))
		if p.Filtered != count || p.Count != 3 {
			t.Fatalf("page %d: %+v", number, p)
		}
		for _, x := range p.Items {
			if want := fmt.Sprintf("x%03d", seen); x["name"] != want {
				t.Fatalf("%v, want %s", x["name"], want)
			}
			seen++
		}
		if number == p.Count {
			break
		}
	}
	if seen != count {
		t.Errorf("%d of %d on the pages", seen, count)
	}
	g.must(t, "DELETE", "/api/vhosts/pages", "")
}
