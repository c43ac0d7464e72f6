package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Two clients with one id take the session from each other for ever, each as fast as
// it reconnects. So a session that has been taken over takeoverBurst times, and
// again more often than Limits.Takeovers a minute, lets the next connection wait, and
// refuses it when that would take longer than takeoverWait.
const takeoverBurst = 10

// turns are the takeovers that a session is good for.
type turns struct {
	left float64
	at   time.Time // when that was; zero: never
}

// take uses one and returns how long it has to be waited for; ok is false, and
// nothing used, if that is longer than most.
func (t *turns) take(perMinute int, now time.Time, most time.Duration) (wait time.Duration, ok bool) {
	left := float64(takeoverBurst)
	rate := float64(perMinute) / float64(time.Minute)
	if !t.at.IsZero() {
		left = min(left, t.left+float64(now.Sub(t.at))*rate)
	}
	if left--; left < 0 {
		wait = time.Duration(-left / rate)
	}
	if wait > most {
		return 0, false
	}
	t.left, t.at = left, now
	return wait, true
}

// awaitTurn waits until a connection may take over a session. The session is not
// locked.
func (c *Conn) awaitTurn(ctx context.Context, e *sessionEntry) error {
	e.mu.Lock()
	wait, ok := e.turns.take(c.b.limits.Takeovers, c.b.now(), takeoverWait)
	e.mu.Unlock()
	if !ok {
		return kernel.Errorf(kernel.CodeLimit, "session", e.id, "it is taken over too often: several clients seem to use the same client id")
	}
	if wait == 0 {
		return nil
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case <-limit.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.stop:
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the connection is closed")
	}
}
