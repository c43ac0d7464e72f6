package cluster

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestForeignKafkaAtEveryNode: clients that are made of librdkafka find all they need by
// any node that they are told of, and groups whose coordinator is any of them.
func TestForeignKafkaAtEveryNode(t *testing.T) {
	full(t)
	harness.NeedPython(t, "confluent_kafka")
	harness.NeedProgram(t, "kcat")
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	const partitions, count = 6, 200
	for i, n := range k.c.Nodes {
		topic := fmt.Sprint("foreign-", i)
		k.topic(n, topic, partitions)
		out := harness.Client(t, 2*healed, harness.Python, "confluent_group.py", n.Kafka, harness.ClusterUser, harness.ClusterPassword, topic,
			strconv.Itoa(partitions), strconv.Itoa(count))
		if strings.TrimSpace(out) != "ok" {
			t.Errorf("node %d: confluent-kafka says %q", n.ID, out)
		}
		t.Logf("node %d: node %d coordinates %s", n.ID, k.coordinator(topic).ID, topic)
		kcatAt(t, k, n)
	}
}

// kcatAt has kcat produce and read as a group, with one node as the only one it is told of.
func kcatAt(t *testing.T, k *kafkaNodes, n *harness.Node) {
	t.Helper()
	topic := fmt.Sprint("kcat-", n.ID)
	k.topic(n, topic, 6)
	kcat := func(stdin string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(k.ctx, "kcat", append([]string{"-b", n.Kafka, "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanisms=PLAIN",
			"-X", "sasl.username=" + harness.ClusterUser, "-X", "sasl.password=" + harness.ClusterPassword}, args...)...)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("node %d: kcat %v: %v\n%s", n.ID, args, err, out)
		}
		return string(out)
	}
	for partition := range 6 {
		kcat(fmt.Sprint(partition, "\n"), "-P", "-t", topic, "-p", strconv.Itoa(partition))
	}
	if out := kcat("", "-G", topic, "-c", "6", "-q", "-X", "auto.offset.reset=earliest", topic); len(strings.Fields(out)) != 6 {
		t.Errorf("node %d: kcat has read %q", n.ID, out)
	}
	read := strings.Fields(kcat("", "-C", "-t", topic, "-e", "-q", "-o", "beginning"))
	if slices.Sort(read); strings.Join(read, "") != "012345" {
		t.Errorf("node %d: kcat has read %q to the ends", n.ID, read)
	}
	if out := kcat("", "-L", "-t", topic); strings.Count(out, "leader ") != 6 || !strings.Contains(out, " 3 brokers:") {
		t.Errorf("node %d: kcat lists %s", n.ID, out)
	}
}
