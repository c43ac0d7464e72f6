package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// TestDeclarationsTakeEffectOnce: a client of a follower deletes a queue (declares one),
// and the answer is lost on its way to the follower. Somebody else sees what was done and
// undoes it. When the follower hears again, it must not do it once more.
func TestDeclarationsTakeEffectOnce(t *testing.T) {
	full(t)
	a := &arena{t: t, c: harness.StartCluster(t, harness.ClusterConfig{Nodes: 3, Network: true}), rng: rand.New(rand.NewPCG(19, 0))}
	a.whole()
	for _, deletes := range []bool{true, false} {
		leader := a.leader()
		follower := a.others(leader)[0]
		queue := harness.Name("once")
		mine, theirs := staying(t, follower), staying(t, leader)
		if deletes {
			harness.Declare(t, mine.ch, queue)
		}
		there := func() bool {
			ch, err := theirs.conn.Channel()
			harness.Must(t, err)
			defer ch.Close()
			_, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err != nil && !answered(err, amqp.NotFound) {
				t.Fatal(err)
			}
			return err == nil
		}
		a.c.Net.Set(leader.ID, follower.ID, harness.Link{Cut: true})
		done := make(chan error, 1)
		go func() {
			var err error
			if deletes {
				_, err = mine.ch.QueueDelete(queue, false, false, false)
			} else {
				_, err = mine.ch.QueueDeclare(queue, true, false, false, false, nil)
			}
			done <- err
		}()
		harness.Wait(t, 3*time.Second, "it has been done", func() bool { return there() != deletes })
		if deletes {
			harness.Declare(t, theirs.ch, queue)
		} else if _, err := theirs.ch.QueueDelete(queue, false, false, false); err != nil {
			t.Fatal(err)
		}
		a.hold(2 * time.Second)
		a.c.Net.Heal()
		if err := <-done; err != nil {
			t.Errorf("deletes %v: %v", deletes, err)
		}
		if there() != deletes {
			t.Errorf("deletes %v: it was done twice; what somebody else has done in between is undone", deletes)
		}
		a.whole()
	}
}
