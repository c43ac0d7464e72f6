package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// command runs the binary to its end.
func command(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), harness.Binary(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else {
		harness.Must(t, err)
	}
	return out.String(), complaints.String(), code
}

func TestConfigCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trivium.yaml")
	harness.Must(t, os.WriteFile(file, []byte("amqp:\n  listen: 127.0.0.1:1\n  tls_listen: 127.0.0.1:1\n  lisen: x\nmqtt:\n  max_packet: 0\n"), 0o600))
	out, complaints, code := command(t, []string{"TRIVIUM_KAFKA_ADVERTISE=0.0.0.0:9092"}, "config", "check", "--config", file, "--log-level", "loud")
	for _, want := range []string{
		"amqp.tls_listen: 127.0.0.1:1 is taken by amqp.listen (" + file + ":3)", file + ":4: unknown key amqp.lisen", "mqtt.max_packet: 0 is not between 1024 and 268435455 (" + file + ":6)",
		"kafka.advertise: 0.0.0.0:9092 is no address a client can connect to (TRIVIUM_KAFKA_ADVERTISE)", "log.level: \"loud\" is none of debug, info, warn, error (--log-level)",
		"amqp.tls_listen: needs tls.cert and tls.key (" + file + ":3)",
	} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("not told: %s", want)
		}
	}
	if code != 1 || strings.Count(out, "\n") != 6 || !strings.Contains(complaints, "problems with the configuration: 6") {
		t.Errorf("exit code %d\n%s%s", code, out, complaints)
	}
	if out, complaints, code = command(t, nil, "config", "check"); code != 0 || out != "ok\n" {
		t.Errorf("the defaults: exit code %d\n%s%s", code, out, complaints)
	}
}

// TestAccessSettings: the configured administrator is there in place of guest,
// and nobody without credentials gets in.
func TestAccessSettings(t *testing.T) {
	t.Setenv("TRIVIUM_ADMIN_USER", "root")
	t.Setenv("TRIVIUM_ADMIN_PASSWORD", "hush")
	b := harness.Start(t, "--access-anonymous=false")
	conn, err := amqp.Dial("amqp://root:hush@" + b.AMQP + "/")
	harness.Must(t, err)
	harness.Must(t, conn.Close())
	if conn, err := amqp.Dial("amqp://guest:guest@" + b.AMQP + "/"); err == nil {
		conn.Close()
		t.Error("guest is there")
	}
	if c, err := dialMQTT("tcp://"+b.MQTT, "", nil); err == nil {
		c.Disconnect(0)
		t.Error("an MQTT client without credentials was served")
	}
	if strings.Contains(b.Output(), "hush") {
		t.Error("the log tells the password")
	}
}

func TestConfigShow(t *testing.T) {
	env := []string{"TRIVIUM_ADMIN_USER=root", "TRIVIUM_ADMIN_PASSWORD=hush"}
	out, _, code := command(t, env, "config", "show", "--mqtt", "off")
	if code != 0 || strings.Contains(out, "hush") || !strings.Contains(out, `  listen: "off" # --mqtt`) || !strings.Contains(out, "  listen: 127.0.0.1:5672 # default") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	out, _, code = command(t, env, "config", "show", "-o", "json")
	var all map[string]map[string]struct {
		Value any
		From  string
	}
	harness.Must(t, json.Unmarshal([]byte(out), &all))
	if v := all["admin"]["user"]; code != 0 || v.Value != "root" || v.From != "environment" {
		t.Errorf("exit code %d, %+v", code, v)
	}
	if _, _, code = command(t, nil, "config", "show", "-o", "xml"); code != 2 {
		t.Errorf("another format: exit code %d", code)
	}
}
