package kafka

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// kcat is librdkafka 2.0: the old client whose traps reference the low
// minimum versions.
func TestKcat(t *testing.T) {
	t.Parallel()
	kcat := tool(t, "kcat")
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			ctx, topic := limited(t), "kcat-"+codec
			var lines strings.Builder
			for i := range 300 {
				fmt.Fprintf(&lines, "k%d:%s\n", i, strings.Repeat("kcat ", 20))
			}
			produce := exec.CommandContext(ctx, kcat, "-b", shared.addr, "-P", "-t", topic, "-K:", "-z", codec)
			produce.Stdin = strings.NewReader(lines.String())
			if out, err := produce.CombinedOutput(); err != nil {
				t.Fatalf("produce: %v\n%s", err, out)
			}
			out, err := exec.CommandContext(ctx, kcat, "-b", shared.addr, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-K:").Output()
			if err != nil || string(out) != lines.String() {
				t.Errorf("consume: %v, %d bytes of %d", err, len(out), lines.Len())
			}
		})
	}
	t.Run("group", func(t *testing.T) {
		ctx := limited(t)
		produce := exec.CommandContext(ctx, kcat, "-b", shared.addr, "-P", "-t", "kcat-group")
		produce.Stdin = strings.NewReader("one\ntwo\n")
		if out, err := produce.CombinedOutput(); err != nil {
			t.Fatalf("produce: %v\n%s", err, out)
		}
		out, err := exec.CommandContext(ctx, kcat, "-b", shared.addr, "-G", "kcat", "-c", "2", "-q", "-X", "auto.offset.reset=earliest", "kcat-group").Output()
		if err != nil || string(out) != "one\ntwo\n" {
			t.Errorf("group: %v, %q", err, out)
		}
	})
	t.Run("list", func(t *testing.T) {
		out, err := exec.CommandContext(limited(t), kcat, "-b", shared.addr, "-L").Output()
		if err != nil || !strings.Contains(string(out), `topic "kcat-group" with 1 partitions`) {
			t.Errorf("list: %v\n%s", err, out)
		}
	})
	t.Run("sasl", func(t *testing.T) {
		ctx := limited(t)
		login := []string{"-b", shared.addr, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=PLAIN", "-X", "sasl.username=guest"}
		out, err := exec.CommandContext(ctx, kcat, append(login, "-X", "sasl.password=guest", "-L")...).Output()
		if err != nil || !strings.Contains(string(out), "broker 1 at "+shared.addr) {
			t.Errorf("with a password: %v\n%s", err, out)
		}
		if out, err := exec.CommandContext(ctx, kcat, append(login, "-X", "sasl.password=wrong", "-L", "-m", "3")...).CombinedOutput(); err == nil {
			t.Errorf("a wrong password was accepted:\n%s", out)
		}
	})
}

func TestConfluentPython(t *testing.T) {
	t.Parallel()
	python := tool(t, "/usr/bin/python3", "-c", "import confluent_kafka")
	out, err := exec.CommandContext(limited(t), python, "testdata/confluent.py", shared.addr).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKafkaJS(t *testing.T) {
	t.Parallel()
	node := tool(t, "node", "-e", "require('../clients/node_modules/kafkajs')")
	out, err := exec.CommandContext(limited(t), node, "testdata/kafkajs.js", shared.addr).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "ok") {
		t.Errorf("%v\n%s", err, out)
	}
}
