package broker

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestDeleteIfEmptyLosesNothing: a record that was published and confirmed while
// an empty queue is deleted is there, or the queue had gone before.
func TestDeleteIfEmptyLosesNothing(t *testing.T) {
	for _, durable := range []bool{true, false} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			b := open(t, t.TempDir(), func(c *Config) { s := *DefaultSettings(); s.AutoCreateQueues = false; c.Settings = &s })
			c, other := connect(t, b), connect(t, b)
			refused, deleted := 0, 0
			for round := range 60 {
				declare(t, c, QueueSpec{Name: "q", Durable: durable})
				start, stop, sent := make(chan struct{}), make(chan struct{}), make(chan int)
				go func() {
					p, n := publisher(t, other), 0
					close(start)
					for ; ; n++ {
						select {
						case <-stop:
							sent <- n
							return
						default:
						}
						if n < round%4 && p.exchange("", "q", "x") == 0 {
							sent <- -1 // it has gone: nobody promised anything
							return
						} else if n >= round%4 {
							n--
						} else {
							p.done.wait(t, p.next)
						}
					}
				}()
				<-start
				_, err := c.DeleteQueue(soon(t), "q", false, true)
				close(stop)
				n := <-sent
				switch kernel.CodeOf(err) {
				case kernel.CodePrecondition:
					refused++
					info, err := c.Queue("q")
					if err != nil || n >= 0 && info.Ready != int64(n) {
						t.Fatalf("round %d: %d records were confirmed, %+v, %v", round, n, info, err)
					}
					if _, err := c.DeleteQueue(soon(t), "q", false, false); err != nil {
						t.Fatal(err)
					}
				default:
					deleted++
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if deleted == 0 {
				t.Error("never deleted")
			}
			t.Logf("refused %d times, deleted %d times", refused, deleted)
		})
	}
}
