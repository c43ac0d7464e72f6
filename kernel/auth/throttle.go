package auth

import (
	"context"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// ThrottleLimits say how failed logins slow down further ones. Zero fields have
// the defaults named.
type ThrottleLimits struct {
	// MaxDelay is how long a login waits at most before it is looked at (5 s).
	MaxDelay time.Duration
	// Floor is how long a refusal takes at least (1 s), so that it does not tell
	// what was wrong.
	Floor time.Duration
	// Forget is how long a failure counts after the last one (5 min).
	Forget time.Duration
	// BanAfter is how many failures of one address have it refused for BanTime
	// (1 min) without looking at what it sends (100; negative = never).
	BanAfter int
	BanTime  time.Duration
	// Waiting logins at one time (4,096), of them from one address (64).
	Waiting, WaitingPerClient int
	// Entries is how many failing users and addresses are remembered, of each
	// kind (65,536).
	Entries int
}

func (l ThrottleLimits) withDefaults() ThrottleLimits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	last := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	last(&l.MaxDelay, 5*time.Second)
	last(&l.Floor, time.Second)
	last(&l.Forget, 5*time.Minute)
	last(&l.BanTime, time.Minute)
	set(&l.BanAfter, 100)
	set(&l.Waiting, 4096)
	set(&l.WaitingPerClient, 64)
	set(&l.Entries, 65_536)
	return l
}

// How many failures are free, and what the next costs; then it doubles.
const (
	freeOfPair   = 2
	freeOfClient = 20
	perDoubling  = 8 // failures of an address
	freeOfUser   = 20
	firstDelay   = 250 * time.Millisecond
	userDelay    = 250 * time.Millisecond // does not grow: others must not lock him out
	// knownLife is how long a user who has logged in from an address is known
	// there, give or take as much again.
	knownLife = 24 * time.Hour
)

// ThrottleStats count since the start.
type ThrottleStats struct {
	Failed  atomic.Uint64 // logins with wrong credentials
	Delayed atomic.Uint64 // logins that had to wait
	Refused atomic.Uint64 // logins not looked at
	Bans    atomic.Uint64 // addresses banned
	Waiting atomic.Int64  // logins that wait now, to be looked at or to be refused
}

// origin is whose failures are counted: a user's from an address, an address's
// (user is ""), a user's (addr is the zero value).
type origin struct {
	user string
	addr netip.Addr
}

// record is what an origin has done. Guarded by Throttle.mu.
type record struct {
	failures int
	pending  int // attempts under way
	waiting  int // of them, those in Throttle.wait
	last     time.Time
	banned   time.Time // until then
}

// Throttle makes guessing passwords slow. Failures count for the user at one
// address, for the address, and, little, for the user everywhere: nobody can
// lock a user out from elsewhere. One who has logged in from an address before
// does not suffer for what others do there, as behind a proxy. Safe for
// concurrent use.
type Throttle struct {
	limits ThrottleLimits
	stats  ThrottleStats

	mu                    sync.Mutex
	pairs, clients, users generations[*record]
	known                 generations[struct{}] // pairs that have logged in
}

// NewThrottle returns a Throttle that remembers nothing yet.
func NewThrottle(l ThrottleLimits) *Throttle {
	l = l.withDefaults()
	t := &Throttle{limits: l}
	t.pairs.init(l.Entries, l.Forget)
	t.clients.init(l.Entries, l.Forget)
	t.users.init(l.Entries, l.Forget)
	t.known.init(l.Entries, knownLife)
	return t
}

// Stats returns the counters, which may be read at any time.
func (t *Throttle) Stats() *ThrottleStats { return &t.stats }

// Attempt is one login under way. Exactly one of its methods is called, once.
type Attempt struct {
	t            *Throttle
	pair         origin
	own, client  *record // nil = none yet
	known        bool
	answerBefore time.Time // a refusal is not sent before
}

// Begin waits for the time that the failures so far cost. CodeLimit if the
// address is banned, or too many wait; else the error is ctx's.
func (t *Throttle) Begin(ctx context.Context, user string, remote net.Addr) (*Attempt, error) {
	a := &Attempt{t: t, pair: origin{user, clientAddr(remote)}}
	if len(user) > kernel.MaxName {
		a.pair.user = "" // nobody's
	}
	delay, err := t.admit(a)
	if err != nil {
		return nil, err
	}
	a.answerBefore = time.Now().Add(delay + t.limits.Floor)
	if delay == 0 {
		return a, nil
	}
	t.stats.Delayed.Add(1)
	err = t.wait(ctx, a.client, delay)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.banned(a) {
		err = t.refuse(a.pair.user)
	}
	if err != nil {
		a.release()
		return nil, err
	}
	return a, nil
}

// admit finds out what is known about an attempt and how long it waits, for
// which it takes a place.
func (t *Throttle) admit(a *Attempt) (time.Duration, error) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a.own, a.client = t.find(&t.pairs, a.pair, now), t.find(&t.clients, origin{addr: a.pair.addr}, now)
	_, a.known = t.known.get(a.pair, now)
	if t.banned(a) {
		return 0, t.refuse(a.pair.user)
	}
	var delay time.Duration
	if a.own != nil {
		delay = t.backoff(a.own.failures + a.own.pending - freeOfPair)
	}
	if !a.known {
		if a.client != nil {
			delay = max(delay, t.backoff((a.client.failures-freeOfClient+perDoubling-1)/perDoubling))
		}
		if r := t.find(&t.users, origin{user: a.pair.user}, now); r != nil && r.failures > freeOfUser {
			delay = max(delay, min(userDelay, t.limits.MaxDelay))
		}
	}
	if delay > 0 && !t.place(a.client, a.known) {
		return 0, t.refuse(a.pair.user)
	}
	if a.own != nil {
		a.own.pending++
	}
	return delay, nil
}

// find returns what an origin has done lately, nil if nothing.
func (t *Throttle) find(g *generations[*record], s origin, now time.Time) *record {
	r, ok := g.get(s, now)
	if !ok || now.Sub(r.last) > t.limits.Forget {
		return nil
	}
	return r
}

func (t *Throttle) banned(a *Attempt) bool {
	return !a.known && a.client != nil && time.Now().Before(a.client.banned)
}

func (t *Throttle) refuse(user string) error {
	t.stats.Refused.Add(1)
	return kernel.Errorf(kernel.CodeLimit, "user", user, "too many failed logins from this address")
}

// backoff is what the nth failure after the free ones costs.
func (t *Throttle) backoff(n int) time.Duration {
	if n <= 0 {
		return 0
	}
	return time.Duration(min(float64(t.limits.MaxDelay), float64(firstDelay)*math.Exp2(float64(n-1))))
}

// place takes a place among those who wait, false if there is none. t.mu is held.
func (t *Throttle) place(client *record, known bool) bool {
	if t.stats.Waiting.Load() >= int64(t.limits.Waiting) || client != nil && !known && client.waiting >= t.limits.WaitingPerClient {
		return false
	}
	t.stats.Waiting.Add(1)
	if client != nil {
		client.waiting++
	}
	return true
}

// wait waits in a place, and gives it back.
func (t *Throttle) wait(ctx context.Context, client *record, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Waiting.Add(-1)
	if client != nil {
		client.waiting--
	}
	return err
}

// release ends an attempt. t.mu is held.
func (a *Attempt) release() {
	if a.own != nil {
		a.own.pending--
	}
}

// Succeed notes that the login was right.
func (a *Attempt) Succeed() {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	a.release()
	if a.own != nil {
		a.own.failures = 0
	}
	if !a.known {
		t.known.put(a.pair, struct{}{}, time.Now())
	}
}

// Cancel notes that it was not found out whether the login was right.
func (a *Attempt) Cancel() {
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	a.release()
}

// Fail notes that the login was wrong and waits until that may be told, or ctx
// ends, or too many wait. banned says that the address is refused from now on.
func (a *Attempt) Fail(ctx context.Context) (banned bool) {
	t := a.t
	t.stats.Failed.Add(1)
	now := time.Now()
	t.mu.Lock()
	a.release()
	t.count(&t.pairs, a.pair, now)
	if a.pair.user != "" {
		t.count(&t.users, origin{user: a.pair.user}, now)
	}
	if !a.known { // who has been here before harms nobody but himself
		r := t.count(&t.clients, origin{addr: a.pair.addr}, now)
		if t.limits.BanAfter > 0 && r.failures >= t.limits.BanAfter {
			r.failures, r.banned, banned = t.limits.BanAfter*3/4, now.Add(t.limits.BanTime), true
			t.stats.Bans.Add(1)
		}
		a.client = r
	}
	left := a.answerBefore.Sub(now)
	waits := left > 0 && t.place(a.client, a.known)
	t.mu.Unlock()
	if waits {
		_ = t.wait(ctx, a.client, left) // the login has failed in any case
	}
	return banned
}

// count counts a failure. t.mu is held.
func (t *Throttle) count(g *generations[*record], s origin, now time.Time) *record {
	r := t.find(g, s, now)
	if r == nil {
		r = &record{}
		g.put(s, r, now)
	}
	r.failures++
	r.last = now
	return r
}

// clientAddr is whom an address belongs to: of IPv6 it is the /64. All that has
// no IP address is one client.
func clientAddr(remote net.Addr) netip.Addr {
	if remote == nil {
		return netip.Addr{}
	}
	var addr netip.Addr
	if tcp, ok := remote.(*net.TCPAddr); ok {
		addr, _ = netip.AddrFromSlice(tcp.IP)
	} else if ap, err := netip.ParseAddrPort(remote.String()); err == nil {
		addr = ap.Addr()
	}
	addr = addr.Unmap()
	if addr.Is6() {
		p, _ := addr.WithZone("").Prefix(64)
		return p.Addr()
	}
	return addr
}

// generations is a map that forgets: what was not used for one to two lives, or
// while as many others came as fit.
type generations[V any] struct {
	now, before map[origin]V
	since       time.Time
	entries     int
	life        time.Duration
}

func (g *generations[V]) init(entries int, life time.Duration) {
	g.entries, g.life = max(entries/2, 1), life
	g.now, g.since = map[origin]V{}, time.Now()
}

func (g *generations[V]) get(s origin, now time.Time) (v V, ok bool) {
	g.turn(now)
	if v, ok = g.now[s]; ok {
		return v, true
	}
	if v, ok = g.before[s]; ok {
		g.put(s, v, now)
	}
	return v, ok
}

func (g *generations[V]) put(s origin, v V, now time.Time) {
	if _, there := g.now[s]; !there && len(g.now) >= g.entries {
		g.before, g.now, g.since = g.now, map[origin]V{}, now
	}
	g.now[s] = v
}

func (g *generations[V]) turn(now time.Time) {
	switch age := now.Sub(g.since); {
	case age >= 2*g.life:
		g.before, g.now, g.since = nil, map[origin]V{}, now
	case age >= g.life:
		g.before, g.now, g.since = g.now, map[origin]V{}, now
	}
}
