package cluster

import (
	"context"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

const (
	// failoverTime is how long publishers wait at most when the node that serves is
	// killed, drainTime when it is drained.
	failoverTime = 3 * time.Second
	drainTime    = 2 * time.Second
)

// TestThreeNodes: what is published over each protocol by any node is consumed by
// any other, also when the node that serves is killed in between.
func TestThreeNodes(t *testing.T) {
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, seed(t))
	leader := a.leader()
	leader.Kill()
	a.l.moves(healed)
	a.must(leader.Run(), "start again")
	a.whole()
	a.judge()
}

// TestFailoverTime: under load the leader is killed twenty times; each time an AMQP
// publisher gets its next confirm within three seconds.
func TestFailoverTime(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 5)
	var took []time.Duration
	for range 20 {
		n := a.leader()
		begin := time.Now()
		n.Kill()
		took = append(took, confirmed(t, a.c.Nodes, begin))
		a.must(n.Run(), "start again")
		a.whole()
	}
	report(t, "kill of the leader to the next confirm", took, failoverTime)
	a.judge()
}

// TestDrainTime: a node that serves is drained, and publishers are confirmed again
// within two seconds; nothing is unknown for longer.
func TestDrainTime(t *testing.T) {
	full(t)
	a := newArena(t, harness.ClusterConfig{Nodes: 3}, 6)
	var took []time.Duration
	for range 5 {
		n := a.leader()
		begin := time.Now()
		a.must(n.Drain(), "drain")
		_, err := a.c.NextLeader(n, healed)
		a.must(err, "after the drain")
		took = append(took, confirmed(t, a.c.Nodes, begin))
		a.must(n.Undrain(), "undo the drain")
		a.whole()
	}
	report(t, "drain of the leader to the next confirm", took, drainTime)
	a.judge()
}

// confirmed tries the nodes in turn, each for a short time, until one confirms, and
// returns how long that took since begin.
func confirmed(t *testing.T, nodes []*harness.Node, begin time.Time) time.Duration {
	t.Helper()
	for i := 0; time.Since(begin) < healed; i++ {
		if confirmedBy(nodes[i%len(nodes)]) {
			return time.Since(begin)
		}
		pause(context.Background(), 10*time.Millisecond)
	}
	t.Errorf("nobody confirmed within %v", healed)
	return time.Since(begin)
}

// confirmedBy publishes once by way of a node.
func confirmedBy(n *harness.Node) bool {
	conn, err := dialAMQP(n)
	if err != nil {
		return false
	}
	defer conn.close()
	if conn.ch.Confirm(false) != nil {
		return false
	}
	if _, err := conn.ch.QueueDeclare("probe", true, false, false, false, nil); err != nil {
		return false
	}
	confirm, err := conn.ch.PublishWithDeferredConfirm("", "probe", false, false, amqp.Publishing{Body: []byte("x")})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), failoverTime)
	defer cancel()
	ok, err := confirm.WaitContext(ctx)
	return err == nil && ok
}

func report(t *testing.T, what string, took []time.Duration, most time.Duration) {
	t.Helper()
	slices.Sort(took)
	n := len(took)
	t.Logf("%s, %d times: min %v, median %v, 90%% %v, max %v", what, n, took[0], took[n/2], took[n*9/10], took[n-1])
	if took[n-1] > most {
		t.Errorf("%s took up to %v, more than %v: %v", what, took[n-1], most, took)
	}
}
