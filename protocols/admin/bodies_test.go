package admin

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeBodiesAreShared: one user has one place at a time, so that the other is
// for others, and who waits in vain gives up.
func TestLargeBodiesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBodies()
		first, ok := b.take("slow", time.Second, nil)
		if !ok {
			t.Fatal("no place at all")
		}
		if _, ok := b.take("slow", time.Second, nil); ok {
			t.Error("one user has both places")
		}
		other, ok := b.take("other", time.Second, nil)
		if !ok {
			t.Fatal("one user keeps another from his place")
		}
		over := make(chan struct{})
		close(over)
		if _, ok := b.take("third", time.Hour, over); ok {
			t.Error("three places")
		}
		first()
		again, ok := b.take("slow", time.Second, nil)
		if !ok {
			t.Fatal("a place was not given back")
		}
		again()
		other()
		if len(b.users) != 0 || len(b.places) != 0 {
			t.Errorf("left: %v, %d places", b.users, len(b.places))
		}
	})
}

// deadlines records the deadlines of a connection.
type deadlines struct {
	net.Conn
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// TestIdleStrangersAreCutSoon: the server waits for a connection on which nobody
// has logged in 10 s, not the 2 minutes of one on which somebody has.
func TestIdleStrangersAreCutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d deadlines
		c := &caller{Conn: &d}
		now := time.Now()
		for ask, want := range map[time.Duration]time.Duration{idleTimeout: strangerTime, time.Second: time.Second, -time.Second: -time.Second} {
			if err := c.SetReadDeadline(now.Add(ask)); err != nil || d.read != now.Add(want) {
				t.Errorf("a stranger waits %v instead of %v: %v", d.read.Sub(now), want, err)
			}
		}
		if _ = c.SetReadDeadline(time.Time{}); d.read != now.Add(strangerTime) {
			t.Errorf("a stranger waits %v instead of without end", d.read.Sub(now))
		}
		c.loggedIn()
		if d.read != now.Add(readTimeout) {
			t.Errorf("the request has %v", d.read.Sub(now))
		}
		if _ = c.SetReadDeadline(now.Add(idleTimeout)); d.read != now.Add(idleTimeout) {
			t.Errorf("a user waits %v", d.read.Sub(now))
		}
	})
}
