package http

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// trivium runs one of our own commands and returns its output and exit code.
func trivium(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), args...)
	cmd.Env = append(os.Environ(), "TRIVIUM_URL=http://"+shared.HTTP)
	out, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func TestOwnCommands(t *testing.T) {
	file := filepath.Join(t.TempDir(), "definitions.json")
	for _, c := range []struct {
		line, want string
		code       int
	}{
		{"tenant add cli --description commands", "", 0},
		{"queue declare orders -t cli --type quorum", "", 0},
		{"queue declare orders -t cli --type classic", "inequivalent arg 'x-queue-type'", 1},
		{"queue list -t cli", "orders  quorum", 0},
		{"exchange declare events -t cli --type topic", "", 0},
		{"binding create events orders -t cli --key order.#", "", 0},
		{"binding list -t cli", "order.#", 0},
		{"binding delete events orders -t cli --key order.#", "", 0},
		{"exchange delete events -t cli", "", 0},
		{"topic create log -t cli --partitions 3", "", 0},
		{"topic create log -t cli --partitions 3", "", 0},
		{"topic create log -t cli --partitions 4", "has 3 partitions", 1},
		{"topic describe log -t cli -o yaml", "partitions: 3", 0},
		{"group describe orders -t cli -o json", `"kind": "queue"`, 0},
		{"user add cli-user secret --tags management", "", 0},
		{"user add cli-user secret", "exists", 1},
		{"permission set cli-user .* .* .* -t cli", "", 0},
		{"permission list", "cli-user", 0},
		{"user tags cli-user monitoring other", "", 0},
		{"queue list --user cli-user --password secret", "orders", 0}, // the password is still good
		{"user password cli-user changed", "", 0},
		{"queue list --user cli-user --password secret", "Login failed", 1},
		{"user list --user cli-user --password changed", "Not administrator user", 1},
		{"definitions export " + file, "", 0},
		{"tenant delete cli", "", 0},
		{"user delete cli-user", "", 0},
		{"definitions import " + file, "", 0},
		{"queue list -t cli", "orders  quorum", 0},
		{"queue list --user cli-user --password changed", "orders", 0},
		{"connection list", "PROTOCOL", 0},
		{"connection close nobody", "no such thing", 1},
		{"queue delete nothing -t cli", "no such thing", 1},
		{"queue frobnicate", "unknown command", 2},
		{"queue list --url http://127.0.0.1:1", "connection refused", 3},
		{"user delete cli-user", "", 0},
		{"tenant delete cli", "", 0},
	} {
		if out, code := trivium(t, strings.Fields(c.line)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("trivium %s: exit code %d\n%s, want %d with %q", c.line, code, out, c.code, c.want)
		}
	}
}

// TestRabbitmqadmin drives the API with RabbitMQ's own tool, which a RabbitMQ
// with the management plugin gives out at /cli/rabbitmqadmin; it is not ours to
// ship. RABBITMQADMIN names the file.
func TestRabbitmqadmin(t *testing.T) {
	tool := os.Getenv("RABBITMQADMIN")
	if tool == "" {
		t.Skip("RABBITMQADMIN names no rabbitmqadmin")
	}
	host, port, _ := strings.Cut(shared.HTTP, ":")
	file := filepath.Join(t.TempDir(), "definitions.json")
	for _, c := range []struct{ line, want string }{
		{"declare vhost name=tool", "vhost declared"},
		{"declare user name=tool-user password=p tags=monitoring", "user declared"},
		{"declare permission vhost=tool user=tool-user configure=.* write=.* read=.*", "permission declared"},
		{"-V tool declare queue name=q durable=true", "queue declared"},
		{"-V tool declare exchange name=x type=topic", "exchange declared"},
		{"-V tool declare binding source=x destination=q routing_key=a.#", "binding declared"},
		{"-V tool publish exchange=x routing_key=a.b payload=hello", "Message published"},
		{"-V tool publish exchange=x routing_key=b payload=hello", "NOT routed"},
		{"-V tool get queue=q ackmode=ack_requeue_true", "hello"},
		{"-V tool get queue=q count=5 ackmode=ack_requeue_false", "True"}, // redelivered
		{"-V tool get queue=q", "No items"},
		{"-V tool list queues name messages", "| q "},
		{"list exchanges vhost name type", "amq.topic"},
		{"list bindings", "a.#"},
		{"list users", "tool-user"},
		{"list permissions", "tool-user"},
		{"list nodes name running", "True"},
		{"list connections", "No items"},
		{"show overview", "3.13"},
		{"export " + file, "Exported"},
		{"import " + file, "Uploaded"},
		{"-V tool delete binding source=x destination_type=queue destination=q properties_key=a.#", "binding deleted"},
		{"-V tool purge queue name=q", "queue purged"},
		{"-V tool delete queue name=q", "queue deleted"},
		{"-V tool delete exchange name=x", "exchange deleted"},
		{"-V tool delete queue name=q", "Not found"},
		{"delete user name=tool-user", "user deleted"},
		{"delete vhost name=tool", "vhost deleted"},
	} {
		args := append([]string{tool, "-H", host, "-P", port}, strings.Fields(c.line)...)
		out, _ := exec.Command("/usr/bin/python3", args...).CombinedOutput() // some are to fail
		if !strings.Contains(string(out), c.want) {
			t.Errorf("rabbitmqadmin %s:\n%s, want %q", c.line, out, c.want)
		}
	}
}
