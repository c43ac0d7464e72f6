package cluster

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/trivium-mq/trivium/integration/harness"
)

const (
	restQueues, restTopics, restPartitions = 5000, 10, 100
	// restTime is how long nothing happens, restCPU how much of a core that may take.
	restTime = 15 * time.Second
	restCPU  = 0.05
	// restartTime is how long a node may take to be ready again.
	restartTime = 20 * time.Second
)

// TestManyQueuesAtRest: a cluster of 5,000 queues and 1,000 partitions takes next to no
// time while nothing happens, writes for all of them into one log of each node, and has
// a node that was killed back soon.
func TestManyQueuesAtRest(t *testing.T) {
	full(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc to tell what a process takes")
	}
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3}), rng: rand.New(rand.NewPCG(6, 0))}
	a.whole()
	begin := time.Now()
	declareMany(t, a.c.Nodes)
	partitionMany(t, a.c.Nodes)
	t.Logf("declared in %v", time.Since(begin).Round(time.Millisecond))

	leader := a.leader()
	before := metric(t, leader, "trivium_wal_syncs_total")
	publishMany(t, leader)
	made := metric(t, leader, "trivium_wal_syncs_total") - before
	t.Logf("%.0f syncs for %d messages to as many queues", made, restQueues)
	if made > restQueues/5 {
		t.Error("the queues do not share them")
	}
	a.whole()
	pause(t.Context(), 5*time.Second) // what has been said is written
	used := make([]time.Duration, 3)
	for i, n := range a.c.Nodes {
		used[i] = cpuTime(t, n)
	}
	begin = time.Now()
	pause(t.Context(), restTime) // what is measured is that nothing happens
	took := time.Since(begin)
	for i, n := range a.c.Nodes {
		share := float64(cpuTime(t, n)-used[i]) / float64(took)
		t.Logf("node %d takes %.1f %% of a core at rest", n.ID, 100*share)
		if share > restCPU {
			t.Errorf("that is more than %.0f %%", 100*restCPU)
		}
	}
	for _, n := range []*harness.Node{a.follower(), a.leader()} {
		n.Kill()
		begin := time.Now()
		a.must(n.Run(), "start node %d", n.ID)
		took := time.Since(begin)
		t.Logf("node %d is ready after %v", n.ID, took.Round(time.Millisecond))
		if took > restartTime {
			t.Errorf("that is more than %v", restartTime)
		}
		a.whole()
	}
}

func restQueue(i int) string { return fmt.Sprintf("rest-%04d", i) }

// declareMany declares the queues, by clients of all nodes side by side.
func declareMany(t *testing.T, nodes []*harness.Node) {
	t.Helper()
	const clients = 15
	var all sync.WaitGroup
	for k := range clients {
		c := openAMQP(t, nodes[k%len(nodes)], false)
		all.Go(func() {
			for i := k; i < restQueues; i += clients {
				if _, err := c.ch.QueueDeclare(restQueue(i), true, false, false, false, nil); err != nil {
					t.Errorf("declare %d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// partitionMany makes the topics.
func partitionMany(t *testing.T, nodes []*harness.Node) {
	t.Helper()
	c, err := kafkaClient(nodes)
	harness.Must(t, err)
	defer c.Close()
	for i := range restTopics {
		_, err := kadm.NewClient(c).CreateTopic(t.Context(), restPartitions, 1, nil, fmt.Sprint("rest-topic-", i))
		harness.Must(t, err)
	}
}

// publishMany publishes a message to each queue, and waits for the confirms of all.
func publishMany(t *testing.T, n *harness.Node) {
	t.Helper()
	c := openAMQP(t, n, true)
	var last []*amqp.DeferredConfirmation
	for i := range restQueues {
		d, err := c.ch.PublishWithDeferredConfirm("", restQueue(i), true, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("x")})
		harness.Must(t, err)
		last = append(last, d)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, d := range last {
		if ok, err := d.WaitContext(ctx); err != nil || !ok {
			t.Fatalf("message %d is not confirmed: %v", i, err)
		}
	}
}

// metric is a figure of a node.
func metric(t *testing.T, n *harness.Node, name string) float64 {
	t.Helper()
	answer, err := http.Get("http://" + n.HTTP + "/metrics")
	harness.Must(t, err)
	defer answer.Body.Close()
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		if figure, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err := strconv.ParseFloat(figure, 64)
			harness.Must(t, err)
			return value
		}
	}
	t.Fatalf("node %d has no metric %s", n.ID, name)
	return 0
}

// cpuTime is the processor time that a node has taken (proc(5), fields 14 and 15 of stat,
// in hundredths of a second).
func cpuTime(t *testing.T, n *harness.Node) (used time.Duration) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.PID()))
	harness.Must(t, err)
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:]) // from the third one on
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(string(f), 10, 64)
		harness.Must(t, err)
		used += time.Duration(ticks) * 10 * time.Millisecond
	}
	return used
}
