package auth

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

func at(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }

// try makes an attempt and returns how long it took.
func try(t *testing.T, th *Throttle, user, ip string, right bool) (time.Duration, error) {
	t.Helper()
	begun := time.Now()
	a, err := th.Begin(t.Context(), user, at(ip))
	switch {
	case err != nil:
	case right:
		a.Succeed()
	default:
		a.Fail(t.Context())
	}
	return time.Since(begun), err
}

func wantTook(t *testing.T, what string, took, want time.Duration, err error) {
	t.Helper()
	if err != nil || took != want {
		t.Errorf("%s: %v, %v, want %v", what, took, err, want)
	}
}

func TestFailuresSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{})
		for i, want := range []time.Duration{0, 0, 0, 250, 500, 1000, 2000, 4000, 5000, 5000} {
			took, err := try(t, th, "u", "192.0.2.1", false)
			wantTook(t, fmt.Sprintf("failure %d", i+1), took, want*time.Millisecond+time.Second, err)
		}
		took, err := try(t, th, "u", "192.0.2.2", true)
		wantTook(t, "the user elsewhere", took, 0, err)
		took, err = try(t, th, "other", "192.0.2.1", true)
		wantTook(t, "another user there", took, 0, err)
		took, err = try(t, th, "u", "192.0.2.1", true)
		wantTook(t, "the right password", took, 5*time.Second, err)
		took, err = try(t, th, "u", "192.0.2.1", true)
		wantTook(t, "after it", took, 0, err)
		for range 6 {
			_, _ = try(t, th, "u", "192.0.2.1", false)
		}
		time.Sleep(6 * time.Minute) //nolint:staticcheck // of the bubble's clock
		took, err = try(t, th, "u", "192.0.2.1", false)
		wantTook(t, "minutes later", took, time.Second, err)
	})
}

// Guesses side by side do not go faster than one after the other: those that
// were begun before the first failed know of it when their turn comes, whether
// the user has been there before or not.
func TestGuessesSideBySide(t *testing.T) {
	for _, known := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			th := NewThrottle(ThrottleLimits{})
			if known {
				_, _ = try(t, th, "u", "192.0.2.1", true)
			}
			begun := time.Now()
			var looked, refused atomic.Int64
			for range 300 {
				go func() {
					a, err := th.Begin(t.Context(), "u", at("192.0.2.1"))
					if err != nil {
						refused.Add(1)
						return
					}
					looked.Add(1)
					time.Sleep(60 * time.Millisecond) // of the bubble's clock: the check
					a.Fail(t.Context())
				}()
			}
			synctest.Wait()
			if n := looked.Load(); n != freeOfPair+1 {
				t.Errorf("%d looked at in the first moment", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := looked.Load(); n > 20 || n+refused.Load() != 300 {
				t.Errorf("known %v: %d looked at, %d refused after %v", known, n, refused.Load(), time.Since(begun))
			}
			if n := th.Stats().Waiting.Load(); n != 0 {
				t.Errorf("%d wait in the end", n)
			}
		})
	}
}

// Names guessed side by side from one address: the ban holds for those that were
// begun before it, and of the address few are looked at at one time.
func TestBanHoldsForThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{})
		var looked, now, most atomic.Int64
		for i := range 500 {
			go func() {
				a, err := th.Begin(t.Context(), fmt.Sprint("u", i), at("192.0.2.1"))
				if err != nil {
					return
				}
				looked.Add(1)
				most.Store(max(most.Load(), now.Add(1)))
				time.Sleep(60 * time.Millisecond) // of the bubble's clock
				now.Add(-1)
				a.Fail(t.Context())
			}()
		}
		time.Sleep(time.Second)
		took, err := try(t, th, "other", "192.0.2.2", true)
		wantTook(t, "elsewhere meanwhile", took, 0, err)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := looked.Load(); n > 110 || most.Load() != checksOfLine {
			t.Errorf("%d looked at, %d at one time", n, most.Load())
		}
	})
}

// Many right logins of one user at one time cost no delay, and none is refused.
func TestManyRightLoginsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{})
		begun := time.Now()
		var in atomic.Int64
		for range 1000 {
			go func() {
				if _, err := try(t, th, "u", "192.0.2.1", true); err == nil {
					in.Add(1)
				}
			}()
		}
		synctest.Wait()
		if in.Load() != 1000 || time.Since(begun) != 0 {
			t.Errorf("%d are in after %v", in.Load(), time.Since(begun))
		}
	})
}

func TestAddressIsBanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{})
		if took, err := try(t, th, "known", "2001:db8::1", true); took != 0 || err != nil {
			t.Fatal(took, err)
		}
		bans := 0
		for i := 0; bans == 0; i++ {
			a, err := th.Begin(t.Context(), fmt.Sprint("u", i), at(fmt.Sprintf("2001:db8::%x", i))) // one /64
			if err != nil || i > 100 {
				t.Fatalf("attempt %d: %v", i, err)
			}
			if a.Fail(t.Context()) {
				bans++
			}
		}
		for _, user := range []string{"u1", "new"} {
			if took, err := try(t, th, user, "2001:db8::ff", true); kernel.CodeOf(err) != kernel.CodeLimit || took != 0 {
				t.Errorf("%s: %v, %v", user, took, err)
			}
		}
		took, err := try(t, th, "known", "2001:db8::2", true)
		wantTook(t, "a user who is known there", took, 0, err)
		took, err = try(t, th, "new", "2001:db8:0:1::1", true)
		wantTook(t, "the next network", took, 0, err)
		time.Sleep(time.Minute)
		if took, err := try(t, th, "new", "2001:db8::ff", true); err != nil || took > 5*time.Second {
			t.Errorf("after the ban: %v, %v", took, err)
		}
		if s := th.Stats(); s.Failed.Load() != 100 || s.Bans.Load() != 1 || s.Refused.Load() != 2 {
			t.Errorf("%d failed, %d bans, %d refused", s.Failed.Load(), s.Bans.Load(), s.Refused.Load())
		}
	})
}

// Row 26: whoever guesses a user's password from anywhere does not keep him out.
func TestNobodyIsLockedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{})
		for i := range 1000 {
			go func() { _, _ = try(t, th, "u", fmt.Sprintf("10.0.%d.%d", i/250, i%250), false) }()
		}
		time.Sleep(10 * time.Second)
		took, err := try(t, th, "u", "192.0.2.1", true)
		wantTook(t, "from a new address", took, userDelay, err)
		took, err = try(t, th, "u", "192.0.2.1", true)
		wantTook(t, "from one where he was", took, 0, err)
	})
}

// What waits and what is remembered is bounded.
func TestThrottleIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		th := NewThrottle(ThrottleLimits{Waiting: 10, WaitingPerClient: 3, Entries: 100, BanAfter: -1})
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 100 {
			go func() {
				if a, err := th.Begin(ctx, "u", at(fmt.Sprintf("10.0.0.%d", i/10))); err == nil {
					a.Fail(ctx)
				}
			}()
		}
		synctest.Wait()
		if n := th.Stats().Waiting.Load(); n < 1 || n > 10 { // those who came while others stood in line were refused
			t.Errorf("%d wait", n)
		}
		cancel()
		synctest.Wait()
		if n := th.Stats().Waiting.Load(); n != 0 {
			t.Errorf("%d wait after their end", n)
		}
		for i := range 1000 {
			a, err := th.Begin(t.Context(), fmt.Sprint(i), at(fmt.Sprintf("10.1.%d.%d", i/250, i%250)))
			if err != nil {
				t.Fatal(err)
			}
			a.Fail(ctx)
			if a, err = th.Begin(t.Context(), fmt.Sprint("right", i), at("192.0.2.1")); err == nil {
				a.Succeed()
			}
		}
		for name, n := range map[string]int{
			"pairs": len(th.pairs.now) + len(th.pairs.before), "addresses": len(th.clients.now) + len(th.clients.before),
			"users": len(th.users.now) + len(th.users.before), "known": len(th.known.now) + len(th.known.before),
		} {
			if n > 100 {
				t.Errorf("%d %s are remembered", n, name)
			}
		}
	})
}

func TestClientAddr(t *testing.T) {
	for _, tc := range [][2]string{{"1.2.3.4", "1.2.3.4"}, {"::ffff:1.2.3.4", "1.2.3.4"}, {"2001:db8::1:2", "2001:db8::"}, {"::1", "::"}} {
		if got := clientAddr(at(tc[0])).String(); got != tc[1] {
			t.Errorf("%s: %s", tc[0], got)
		}
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if clientAddr(near.RemoteAddr()).IsValid() || clientAddr(nil).IsValid() {
		t.Error("a pipe has an address")
	}
}

func BenchmarkRightLogin(b *testing.B) {
	th := NewThrottle(ThrottleLimits{})
	addr := at("192.0.2.1")
	for b.Loop() {
		a, err := th.Begin(b.Context(), "u", addr)
		if err != nil {
			b.Fatal(err)
		}
		a.Succeed()
	}
}
