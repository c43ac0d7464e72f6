// Package http drives the HTTP API of the real binary as scripts written for
// RabbitMQ's do.
package http

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

var shared harness.Addresses

func TestMain(m *testing.M) { os.Exit(harness.Shared(m, &shared)) }

// user asks the API in one user's name.
type user struct{ base, name, password string }

func guest(at harness.Addresses) user { return user{"http://" + at.HTTP, "guest", "guest"} }

// ask sends a request and returns status and body.
func (u user) ask(t testing.TB, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, u.base+path, bytes.NewBufferString(body))
	harness.Must(t, err)
	req.SetBasicAuth(u.name, u.password)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	harness.Must(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	harness.Must(t, err)
	return resp.StatusCode, string(b)
}

// must sends a request that has to succeed.
func (u user) must(t testing.TB, method, path, body string) string {
	t.Helper()
	status, answer := u.ask(t, method, path, body)
	if status >= 300 {
		t.Fatalf("%s %s %s: %d %s", method, path, body, status, answer)
	}
	return answer
}

// get decodes what is at a path.
func get[T any](t testing.TB, u user, path string) (v T) {
	t.Helper()
	harness.Must(t, json.Unmarshal([]byte(u.must(t, "GET", path, "")), &v))
	return v
}

type object = map[string]any
