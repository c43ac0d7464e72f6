package broker

import (
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

func TestTurns(t *testing.T) {
	var u turns
	now := time.Unix(1000, 0)
	for i := range takeoverBurst {
		if wait, ok := u.take(30, now, 5*time.Second); wait != 0 || !ok {
			t.Fatal(i, wait, ok)
		}
	}
	for i, want := range []time.Duration{2 * time.Second, 4 * time.Second} {
		if wait, ok := u.take(30, now, 5*time.Second); (wait-want).Abs() > time.Microsecond || !ok {
			t.Fatal(i, wait, ok)
		}
	}
	for range 3 { // who is refused does not make it longer
		if _, ok := u.take(30, now, 5*time.Second); ok {
			t.Fatal("that takes 6 s")
		}
	}
	if wait, ok := u.take(30, now.Add(4*time.Second), 5*time.Second); (wait-2*time.Second).Abs() > time.Microsecond || !ok {
		t.Fatal(wait, ok)
	}
	if wait, ok := u.take(30, now.Add(time.Hour), 0); wait != 0 || !ok {
		t.Fatal(wait, ok)
	}
}

// TestTakeoverStorm: clients that take a session from each other as fast as they can
// are slowed down; the session is there all the time, and each message that is
// repeated on the way stored once.
func TestTakeoverStorm(t *testing.T) {
	b := open(t, t.TempDir(), func(c *Config) { c.Limits.Takeovers = 6000 })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	s, _ := attach(t, c, "c", false, time.Hour)
	s.Detach(time.Hour)
	const clients, rounds = 3, 15
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			for round := range rounds {
				c := connect(t, b)
				var h *Session
				var mu sync.Mutex
				taken := func() {
					go func() { // as an adapter does, from another goroutine
						mu.Lock()
						defer mu.Unlock()
						h.Detach(time.Hour)
					}()
				}
				mu.Lock()
				var present bool
				var err error
				h, present, err = c.AttachSession(soon(t), Attaching{ClientID: "c", Expiry: time.Hour}, taken)
				if err == nil {
					p := c.Publisher(newOutcomes())
					_, err = p.ToTopicOnce(h, uint16(round+1), "q", &kernel.Record{Key: []byte("q")}, 1)
				}
				mu.Unlock()
				if err != nil && kernel.CodeOf(err) != kernel.CodeFenced {
					t.Error(err)
				}
				if h != nil && !present {
					t.Error("the session is lost")
				}
			}
		})
	}
	wg.Wait()
	_, in := consume(t, c, "q", kernel.MemberOptions{AutoSettle: true}, 1000)
	in.wait(t, rounds)
}
