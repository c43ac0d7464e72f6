package cli

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const queues = `[{"name":"orders","vhost":"/","type":"quorum","durable":true,"messages_ready":5,"messages_unacknowledged":2,
"consumers":1,"policy":null,"arguments":{"x-queue-type":"quorum"}},
{"name":"odd\u001b[31m","vhost":"a/b","type":"classic","durable":false,"messages_ready":12345678901,"messages_unacknowledged":0,
"consumers":0,"policy":"p","arguments":{}}]`

// asked is a request as a node saw it.
type asked struct{ method, path, body, user, reason string }

// run runs a command line against a node that answers everything with status
// and answer.
func run(t *testing.T, status int, answer, input string, args ...string) (got []asked, out string, err error) {
	t.Helper()
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		got = append(got, asked{r.Method, r.URL.RequestURI(), string(b), user + ":" + password, r.Header.Get("X-Reason")})
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer node.Close()
	t.Setenv(envURL, node.URL)
	out, err = execute(input, args...)
	return got, out, err
}

func execute(input string, args ...string) (string, error) {
	var out bytes.Buffer
	root := &cobra.Command{Use: "trivium", SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	root.AddCommand(Commands(strings.NewReader(input), &out)...)
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.Execute()
	return out.String(), err
}

func TestFormats(t *testing.T) {
	for format, want := range map[string]string{
		"table": `TENANT  NAME      TYPE     DURABLE  READY        UNACKED  CONSUMERS  POLICY  ARGUMENTS
/       orders    quorum   true     5            2        1                  {"x-queue-type":"quorum"}
a/b     odd?[31m  classic  false    12345678901  0        0          p       
`,
		"json": `[
  {
    "name": "orders",
    "vhost": "/",
    "type": "quorum",
    "durable": true,
    "messages_ready": 5,
    "messages_unacknowledged": 2,
    "consumers": 1,
    "policy": null,
    "arguments": {
      "x-queue-type": "quorum"
    }
  },
  {
    "name": "odd\u001b[31m",
    "vhost": "a/b",
    "type": "classic",
    "durable": false,
    "messages_ready": 12345678901,
    "messages_unacknowledged": 0,
    "consumers": 0,
    "policy": "p",
    "arguments": {}
  }
]
`,
		"yaml": `- arguments:
    x-queue-type: quorum
  consumers: 1
  durable: true
  messages_ready: 5
  messages_unacknowledged: 2
  name: orders
  policy: null
  type: quorum
  vhost: /
- arguments: {}
  consumers: 0
  durable: false
  messages_ready: 12345678901
  messages_unacknowledged: 0
  name: "odd\e[31m"
  policy: p
  type: classic
  vhost: a/b
`,
	} {
		_, out, err := run(t, 200, queues, "", "queue", "list", "-o", format)
		if err != nil || out != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", format, err, out, want)
		}
	}
	for format, want := range map[string]string{"table": "NAME  TAGS\n", "json": "[]\n", "yaml": "[]\n"} {
		if _, out, err := run(t, 200, "[]", "", "user", "list", "-o", format); err != nil || out != want {
			t.Errorf("nothing as %s: %v %q", format, err, out)
		}
	}
}

// TestRequests: what a command line asks the node for.
func TestRequests(t *testing.T) {
	for line, want := range map[string]asked{
		"queue list":                      {"GET", "/api/queues", "", "", ""},
		"queue list -t a/b":               {"GET", "/api/queues/a%2Fb", "", "", ""},
		"queue declare a/b --type quorum": {"PUT", "/api/queues/%2F/a%2Fb", `{"arguments":{"x-queue-type":"quorum"},"auto_delete":false,"durable":true}`, "", ""},
		"queue declare q --argument x-message-ttl=5 --argument k=v --durable=false": {"PUT", "/api/queues/%2F/q", `{"arguments":{"k":"v","x-message-ttl":5},"auto_delete":false,"durable":false}`, "", ""},
		"queue delete q --if-unused --if-empty":                                     {"DELETE", "/api/queues/%2F/q?if-unused=true&if-empty=true", "", "", ""},
		"queue purge q -t v":                                                        {"DELETE", "/api/queues/v/q/contents", "", "", ""},
		"exchange declare x --type topic":                                           {"PUT", "/api/exchanges/%2F/x", `{"arguments":{},"auto_delete":false,"durable":true,"internal":false,"type":"topic"}`, "", ""},
		"exchange delete x --if-unused":                                             {"DELETE", "/api/exchanges/%2F/x?if-unused=true", "", "", ""},
		"binding create x q --key a.*":                                              {"POST", "/api/bindings/%2F/e/x/q/q", `{"arguments":{},"routing_key":"a.*"}`, "", ""},
		"binding create x y --to-exchange":                                          {"POST", "/api/bindings/%2F/e/x/e/y", `{"arguments":{},"routing_key":""}`, "", ""},
		"binding delete x q --properties-key ~":                                     {"DELETE", "/api/bindings/%2F/e/x/q/q/~", "", "", ""},
		"topic create t --partitions 3 --retention 36h":                             {"PUT", "/api/topics/%2F/t", `{"partitions":3,"retention_ms":129600000}`, "", ""},
		"topic create t --retention forever":                                        {"PUT", "/api/topics/%2F/t", `{"partitions":1,"retention_ms":-1}`, "", ""},
		"topic delete t":                                                            {"DELETE", "/api/topics/%2F/t", "", "", ""},
		"group list -t v":                                                           {"GET", "/api/groups/v", "", "", ""},
		"connection list":                                                           {"GET", "/api/connections", "", "", ""},
		"connection close c --reason noon":                                          {"DELETE", "/api/connections/c", "", "", "noon"},
		"user delete u":                                                             {"DELETE", "/api/users/u", "", "", ""},
		"tenant add v --description d":                                              {"PUT", "/api/vhosts/v", `{"description":"d"}`, "", ""},
		"tenant delete / --yes":                                                     {"DELETE", "/api/vhosts/%2F", "", "", ""},
		"tenant delete v":                                                           {"DELETE", "/api/vhosts/v", "", "", ""},
		"permission set u a b c -t v":                                               {"PUT", "/api/permissions/v/u", `{"configure":"a","read":"c","write":"b"}`, "", ""},
		"permission clear u":                                                        {"DELETE", "/api/permissions/%2F/u", "", "", ""},
		"topic-permission set u x w r":                                              {"PUT", "/api/topic-permissions/%2F/u", `{"exchange":"x","read":"r","write":"w"}`, "", ""},
		"topic-permission clear u x":                                                {"DELETE", "/api/topic-permissions/%2F/u/x", "", "", ""},
		`policy set p ^q {"max-length":5} --priority 2`:                             {"PUT", "/api/policies/%2F/p", `{"apply-to":"all","definition":{"max-length":5},"pattern":"^q","priority":2}`, "", ""},
		"policy clear p --operator":                                                 {"DELETE", "/api/operator-policies/%2F/p", "", "", ""},
		"definitions export -t v":                                                   {"GET", "/api/definitions/v", "", "", ""},
		"definitions import -":                                                      {"POST", "/api/definitions", `{"queues":[]}`, "", ""},
	} {
		answer := "[]"
		got, _, err := run(t, 200, answer, `{"queues":[]}`, strings.Fields(line)...)
		if err != nil || len(got) != 1 {
			t.Errorf("%s: %v, asked %v", line, err, got)
			continue
		}
		want.user = "guest:guest"
		if got[0] != want {
			t.Errorf("%s asks\n%+v, want\n%+v", line, got[0], want)
		}
	}
}

func TestUserCommands(t *testing.T) {
	got, _, err := run(t, 404, `{"error":"Object Not Found","reason":"Not Found"}`, "", "user", "password", "u", "p")
	if err == nil || len(got) != 1 {
		t.Errorf("a password for nobody: %v %v", err, got)
	}
	got, _, err = run(t, 200, `{"name":"u","tags":["a","b"]}`, "from input\r\n", "user", "password", "u")
	if err != nil || len(got) != 2 || got[1].body != `{"password":"from input","tags":["a","b"]}` {
		t.Errorf("a password on standard input: %v %v", err, got)
	}
	got, _, err = run(t, 200, `{}`, "", "user", "tags", "u", "monitoring", "x")
	if err != nil || len(got) != 2 || got[1].body != `{"keep_password":true,"tags":["monitoring","x"]}` {
		t.Errorf("tags: %v %v", err, got)
	}
	if _, _, err = run(t, 200, `{}`, "", "user", "add", "u", "p"); err == nil {
		t.Error("a user that exists was added")
	}
}

func TestBindingDelete(t *testing.T) {
	found := `[{"routing_key":"k","properties_key":"k"},{"routing_key":"other","properties_key":"other"}]`
	got, _, err := run(t, 200, found, "", "binding", "delete", "x", "q", "--key", "k")
	if err != nil || len(got) != 2 || got[1].path != "/api/bindings/%2F/e/x/q/q/k" {
		t.Errorf("%v %v", err, got)
	}
	for _, several := range []string{`[]`, `[{"routing_key":"k","properties_key":"k"},{"routing_key":"k","properties_key":"k~x"}]`} {
		if got, _, err := run(t, 200, several, "", "binding", "delete", "x", "q", "--key", "k"); err == nil || len(got) != 1 {
			t.Errorf("%s: %v %v", several, err, got)
		}
	}
}

func TestErrors(t *testing.T) {
	_, _, err := run(t, 400, `{"error":"bad_request","reason":"why not"}`, "", "queue", "declare", "q")
	if r, ok := errors.AsType[*refused](err); !ok || r.Error() != "why not" || r.status != 400 {
		t.Errorf("refused: %v", err)
	}
	for _, line := range []string{
		"queue", "queue nothing", "queue declare", "queue declare a b", "queue list --bogus", "queue list -o xml", "queue declare q --argument x",
		"queue list --url ftp://x", "queue list --url http://u:p@x", "topic create t --retention soon", "policy set p x notjson",
		"definitions import /no/such/file", "queue list --ca-file /no/such/file",
	} {
		got, _, err := run(t, 200, "[]", "", strings.Fields(line)...)
		if _, ok := errors.AsType[UsageError](err); !ok || len(got) > 0 {
			t.Errorf("%q: %v, asked %v", line, err, got)
		}
	}
	for _, args := range [][]string{
		{"queue", "delete", ""}, {"user", "add", "", "p"}, {"user", "add", "u", ""}, {"binding", "create", "", "q"}, {"binding", "create", "x", ""},
		{"permission", "clear", ""}, {"policy", "set", "", "^q", "{}"}, {"tenant", "delete", ""}, {"queue", "delete", "q", "--tenant", ""},
		{"tenant", "delete", "/"},
	} {
		got, _, err := run(t, 404, "{}", "", args...)
		if _, ok := errors.AsType[UsageError](err); !ok || len(slices.DeleteFunc(got, func(a asked) bool { return a.method == "GET" })) > 0 {
			t.Errorf("%q: %v, asked %v", args, err, got)
		}
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	_, err = execute("", "queue", "list", "--url", gone.URL)
	if _, ok := errors.AsType[ConnectError](err); !ok {
		t.Errorf("nobody there: %v", err)
	}
}

// TestCredentials: flags before the environment before guest.
func TestCredentials(t *testing.T) {
	for _, c := range []struct{ envUser, envPassword, line, want string }{
		{"", "", "queue list", "guest:guest"},
		{"u", "p", "queue list", "u:p"},
		{"u", "p", "queue list --user x --password y", "x:y"},
		{"u", "p", "queue list --password y", "u:y"},
		{"", "", "queue list --user x", "x:"},
	} {
		t.Setenv(envUser, c.envUser)
		t.Setenv(envPassword, c.envPassword)
		got, _, err := run(t, 200, "[]", "", strings.Fields(c.line)...)
		if err != nil || len(got) != 1 || got[0].user != c.want {
			t.Errorf("%+v: %v %v", c, err, got)
		}
	}
}

func TestWhatIsNotThereIsNamed(t *testing.T) {
	notFound := `{"error":"Object Not Found","reason":"Not Found"}`
	for _, c := range []struct{ answer, line, want string }{
		{notFound, "queue delete a/b", "there is no such thing: queue 'a/b' in tenant '/'"},
		{notFound, "queue purge q -t x", "there is no such thing: queue 'q' in tenant 'x'"},
		{notFound, "connection close nobody", "there is no such thing: connection 'nobody'"},
		{notFound, "cluster status", "there is no such thing: the node was started without --cluster"},
		{notFound, "policy clear p --operator", "there is no such thing: operator policy 'p' in tenant '/'"},
		{`{"error":"bad_request","reason":"vhost_not_found"}`, "queue declare q -t x", "there is no such tenant"},
	} {
		if _, _, err := run(t, http.StatusNotFound, c.answer, "", strings.Fields(c.line)...); err == nil || err.Error() != c.want {
			t.Errorf("trivium %s: %v, want %q", c.line, err, c.want)
		}
	}
}
