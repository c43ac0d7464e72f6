package admin

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

type fruit struct {
	Name  string         `json:"name"`
	Count int            `json:"count"`
	More  map[string]any `json:"more"`
}

var fruits = []fruit{
	{"Apple", 7, map[string]any{"colour": "red"}}, {"banana", 12, map[string]any{"colour": "yellow"}},
	{"cherry", 3, nil}, {"Fig", 12, map[string]any{"colour": "green"}},
}

// listFruits answers a query on fruits.
func listFruits(t *testing.T, query string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	c := &call{s: &Server{}, w: w, r: httptest.NewRequest("GET", "/api/fruits?"+query, nil)}
	err := list(c, slices.Clone(fruits), func(f *fruit) string { return f.Name }, func(f *fruit) any { return f })
	if err != nil {
		c.refuse(err)
	}
	if !json.Valid(w.Body.Bytes()) {
		t.Errorf("%s: not JSON: %s", query, w.Body)
	}
	return w.Code, w.Body.String()
}

func TestList(t *testing.T) {
	for query, want := range map[string]string{
		"columns=name":                                          `[{"name":"Apple"},{"name":"banana"},{"name":"cherry"},{"name":"Fig"}]`,
		"columns=more.colour,name&name=a":                       `[{"more":{"colour":"red"},"name":"Apple"},{"more":{"colour":"yellow"},"name":"banana"}]`,
		"columns=nothing&name=fig":                              `[{}]`,
		"columns=name&sort=count":                               `[{"name":"cherry"},{"name":"Apple"},{"name":"banana"},{"name":"Fig"}]`,
		"columns=name&sort=count&sort_reverse=true":             `[{"name":"Fig"},{"name":"banana"},{"name":"Apple"},{"name":"cherry"}]`,
		"columns=name&sort=more.colour":                         `[{"name":"cherry"},{"name":"Fig"},{"name":"Apple"},{"name":"banana"}]`,
		"columns=name&sort=nothing":                             `[{"name":"Apple"},{"name":"banana"},{"name":"cherry"},{"name":"Fig"}]`,
		"columns=name&sort_reverse=true":                        `[{"name":"Fig"},{"name":"cherry"},{"name":"banana"},{"name":"Apple"}]`,
		"columns=name&name=%5Ef&use_regex=true":                 `[{"name":"Fig"}]`,
		"columns=name&name=%5Ef":                                `[]`,
		"columns=name&page=2&page_size=3":                       `{"filtered_count":4,"item_count":1,"items":[{"name":"Fig"}],"page":2,"page_count":2,"page_size":3,"total_count":4}`,
		"columns=name&page=1&page_size=1&name=e":                `{"filtered_count":2,"item_count":1,"items":[{"name":"Apple"}],"page":1,"page_count":2,"page_size":1,"total_count":4}`,
		"columns=name&page=1&name=nothing":                      `{"filtered_count":0,"item_count":0,"items":[],"page":1,"page_count":1,"page_size":100,"total_count":4}`,
		"columns=name&page_size=1":                              `[{"name":"Apple"},{"name":"banana"},{"name":"cherry"},{"name":"Fig"}]`,
		"columns=count&page=1&page_size=500&sort=name&name=err": `{"filtered_count":1,"item_count":1,"items":[{"count":3}],"page":1,"page_count":1,"page_size":500,"total_count":4}`,
	} {
		if status, body := listFruits(t, query); status != 200 || body != want {
			t.Errorf("%s: %d\n%s\nwant\n%s", query, status, body, want)
		}
	}
	for _, query := range []string{
		"page=0", "page=-1", "page=x", "page=", "page=1&page_size=0", "page=1&page_size=501", "page=1&page_size=x", "page=2", "page=99999999999999999999",
		"name=(&use_regex=true", "use_regex=true&name=" + strings.Repeat("a", maxPattern+1),
	} {
		if status, body := listFruits(t, query); status != 400 {
			t.Errorf("%.60s: %d %s", query, status, body)
		}
	}
}

func TestSplit(t *testing.T) {
	for raw, want := range map[string][]string{
		"/api/queues":                                {"queues"},
		"/api/queues/":                               {"queues"},
		"/api/queues/%2F/a%2Fb":                      {"queues", "/", "a/b"},
		"/api/queues/%2f/%C3%BC%20%25":               {"queues", "/", "ü %"},
		"/api/exchanges/v//bindings":                 {"exchanges", "v", "", "bindings"},
		"/api/queues/v/..":                           {"queues", "v", ".."},
		"/api" + strings.Repeat("/a", maxSegments+1): nil,
		"/other": nil,
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := split(u); !slices.Equal(got, want) || ok != (want != nil) {
			t.Errorf("%s: %q %v, want %q", raw, got, ok, want)
		}
	}
}

// TestResources: no row of the table is hidden by one before it, and every one
// does something.
func TestResources(t *testing.T) {
	tab := newTable(resources)
	for i := range tab {
		path := slices.Clone(tab[i].segments)
		found, args := tab.find(path)
		if found == nil || found.path != tab[i].path {
			t.Errorf("%s is hidden by %v", tab[i].path, found)
		}
		if want := strings.Count(tab[i].path, "{"); len(args) != want {
			t.Errorf("%s: %d names, want %d", tab[i].path, len(args), want)
		}
		for method, fn := range tab[i].methods {
			if fn == nil {
				t.Errorf("%s %s does nothing", method, tab[i].path)
			}
		}
	}
}

func TestBodies(t *testing.T) {
	var f flag
	for text, want := range map[string]bool{`true`: true, `"true"`: true, `false`: false, `"false"`: false, `null`: false} {
		if err := json.Unmarshal([]byte(text), &f); err != nil || bool(f) != want {
			t.Errorf("%s: %v %v", text, f, err)
		}
	}
	for _, text := range []string{`1`, `"yes"`, `{}`} {
		if json.Unmarshal([]byte(text), &f) == nil {
			t.Errorf("%s is a flag", text)
		}
	}
	var v values
	if err := json.Unmarshal([]byte(`{"a":1,"b":1.5,"c":[2,{"d":9007199254740993}],"e":"x","f":1e400}`), &v); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%#v", v), `admin.values{"a":1, "b":1.5, "c":[]interface {}{2, map[string]interface {}{"d":9007199254740993}}, "e":"x", "f":"1e400"}`; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	var w words
	for text, want := range map[string]string{`"a, b,,"`: "a b", `["a","b"]`: "a b", `""`: "", `[]`: ""} {
		if err := json.Unmarshal([]byte(text), &w); err != nil || strings.Join(w, " ") != want {
			t.Errorf("%s: %q %v", text, w, err)
		}
	}
}

// TestPropertiesKey: keys that could be taken for one another are not.
func TestPropertiesKey(t *testing.T) {
	seen := map[string]string{}
	for _, c := range []struct {
		key  string
		args map[string]any
	}{{"", nil}, {"~", nil}, {"k", nil}, {"k~x", nil}, {"", map[string]any{"a": 1}}, {"k", map[string]any{"a": 1}}, {"k", map[string]any{"a": "1"}}, {"%7E", nil}} {
		key := propertiesKey(c.key, c.args)
		if was, twice := seen[key]; twice {
			t.Errorf("%v and %s are both %s", c, was, key)
		}
		seen[key] = fmt.Sprint(c)
	}
	// RabbitMQ 3.10.8's answers.
	for key, want := range map[string]string{"": "~", "a.#": "a.%23", "a~b": "a%7Eb", "a b+c": "a+b%2Bc", "%41": "%2541", "*.-_": "%2A.-_", "ü/x": "%C3%BC%2Fx"} {
		if got := propertiesKey(key, nil); got != want {
			t.Errorf("%q is %s, want %s", key, got, want)
		}
	}
	for given, want := range map[string]string{"a.#": "a.%23", "a.%23": "a.%23", "a%7Eb": "a%7Eb", "~": "~", "k~x": "k~x", "a.#~x": "a.%23~x"} {
		if !names(given, want) {
			t.Errorf("%s does not name %s", given, want)
		}
	}
	if names("a~b", "a%7Eb") || names("a b+c", "a+b%2Bc") || names("", "~") {
		t.Error("a key names another")
	}
}

// TestCodes: every code of the kernel has a status.
func TestCodes(t *testing.T) {
	for code := kernel.CodeInternal; code <= kernel.CodeDropped; code++ {
		if r := codes[code]; r.status < 400 || r.kind == "" {
			t.Errorf("code %d: %+v", code, r)
		}
	}
}
