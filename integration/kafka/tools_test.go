package kafka

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// kcat is librdkafka 2.0: the old client whose traps reference the low
// minimum versions.
func TestKcatGroupListAndLogin(t *testing.T) {
	t.Parallel()
	const kcat = "kcat"
	harness.NeedProgram(t, kcat)
	t.Run("group", func(t *testing.T) {
		ctx := limited(t)
		produce := exec.CommandContext(ctx, kcat, "-b", shared.Kafka, "-P", "-t", "kcat-group")
		produce.Stdin = strings.NewReader("one\ntwo\n")
		if out, err := produce.CombinedOutput(); err != nil {
			t.Fatalf("produce: %v\n%s", err, out)
		}
		out, err := exec.CommandContext(ctx, kcat, "-b", shared.Kafka, "-G", "kcat", "-c", "2", "-q", "-X", "auto.offset.reset=earliest", "kcat-group").Output()
		if err != nil || string(out) != "one\ntwo\n" {
			t.Errorf("group: %v, %q", err, out)
		}
	})
	t.Run("list", func(t *testing.T) {
		out, err := exec.CommandContext(limited(t), kcat, "-b", shared.Kafka, "-L").Output()
		if err != nil || !strings.Contains(string(out), `topic "kcat-group" with 1 partitions`) {
			t.Errorf("list: %v\n%s", err, out)
		}
	})
	t.Run("sasl", func(t *testing.T) {
		ctx := limited(t)
		login := []string{"-b", shared.Kafka, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=PLAIN", "-X", "sasl.username=guest"}
		out, err := exec.CommandContext(ctx, kcat, append(login, "-X", "sasl.password=guest", "-L")...).Output()
		if err != nil || !strings.Contains(string(out), "broker 1 at "+shared.Kafka) {
			t.Errorf("with a password: %v\n%s", err, out)
		}
		if out, err := exec.CommandContext(ctx, kcat, append(login, "-X", "sasl.password=wrong", "-L", "-m", "3")...).CombinedOutput(); err == nil {
			t.Errorf("a wrong password was accepted:\n%s", out)
		}
	})
}

// A transactional producer is told at once why it cannot work: librdkafka asked
// again after other codes until it timed out.
func TestKcatTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	const kcat = "kcat"
	harness.NeedProgram(t, kcat)
	cmd := exec.CommandContext(limited(t), kcat, "-b", shared.Kafka, "-P", "-t", "kcat-tx", "-X", "transactional.id=tx")
	cmd.Stdin = strings.NewReader("one\n")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Fatal error") || !strings.Contains(string(out), "transactions are not supported") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestConfluentPython(t *testing.T) {
	t.Parallel()
	harness.NeedPython(t, "confluent_kafka")
	wantOK(t, harness.Client(t, patience, harness.Python, script(t, "confluent.py"), shared.Kafka))
}

func TestKafkaJS(t *testing.T) {
	t.Parallel()
	harness.NeedNode(t, "kafkajs")
	wantOK(t, harness.Client(t, patience, "node", script(t, "kafkajs.js"), shared.Kafka))
}

func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", name))
	must(t, err)
	return path
}

func wantOK(t *testing.T, out string) {
	t.Helper()
	if strings.TrimSpace(out) != "ok" {
		t.Errorf("client said %q", out)
	}
}
