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
	// delayedOfPair is how many attempts of one user at an address sit out a delay
	// at one time, delayedOfKnown if he has been there before.
	delayedOfPair  = 4
	delayedOfKnown = 8
	firstDelay     = 250 * time.Millisecond
	userDelay      = 250 * time.Millisecond // does not grow: others must not lock him out
	// patience is how long a login waits for its turn beside its delay.
	patience = 5 * time.Second
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
	last     time.Time // of them
	banned   time.Time // until then

	checks  int        // attempts being looked at, as a line
	queue   []*Attempt // that wait to be looked at, as a line
	mine    int        // attempts being looked at, as a pair
	delayed int        // attempts that sit out a delay, as a pair
	waiting int        // attempts in Throttle.wait, as a line
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

// Patience is how long a login may take to be looked at; then it is refused.
func (t *Throttle) Patience() time.Duration { return t.limits.MaxDelay + patience }

// Attempt is one login under way. Exactly one of its methods is called, once.
type Attempt struct {
	t            *Throttle
	pair         origin
	own, client  *record
	line         *record // where it waits for its turn: client, or own if known
	known        bool
	turn         chan struct{} // closed when its turn has come
	has          bool          // it is being looked at
	answerBefore time.Time     // a refusal is not sent before
}

// Begin waits for the time that the failures so far cost, and for its turn: of
// one address few attempts are looked at side by side. CodeLimit if the
// address is banned, or too many wait; else the error is ctx's.
func (t *Throttle) Begin(ctx context.Context, user string, remote net.Addr) (*Attempt, error) {
	now := time.Now()
	a := &Attempt{t: t, pair: origin{user, clientAddr(remote)}}
	if len(user) > kernel.MaxName {
		a.pair.user = "" // nobody's
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a.own, a.client = t.touch(&t.pairs, a.pair, now), t.touch(&t.clients, origin{addr: a.pair.addr}, now)
	_, a.known = t.known.get(a.pair, now)
	if a.line = a.client; a.known {
		a.line = a.own
	}
	waited, err := t.admit(ctx, a)
	if err != nil {
		return nil, err
	}
	a.answerBefore = now.Add(waited + t.limits.Floor)
	return a, nil
}

// admit returns when the attempt's turn has come and it has waited for as long
// as the failures up to then cost. t.mu is held, but not while it waits.
func (t *Throttle) admit(ctx context.Context, a *Attempt) (waited time.Duration, err error) {
	for err == nil {
		if t.banned(a) {
			break
		}
		if delay := t.delay(a); delay > waited {
			if a.give(); !t.mayDelay(a) {
				break
			}
			if waited == 0 {
				t.stats.Delayed.Add(1)
			}
			a.own.delayed++
			err = t.wait(ctx, a.line, delay-waited)
			a.own.delayed--
			waited = delay
			continue
		}
		if a.has || t.take(a) {
			return waited, nil
		}
		if len(a.line.queue) >= queued*t.limits.WaitingPerClient || t.full() {
			break
		}
		err = t.queue(ctx, a)
	}
	a.give()
	if err == nil {
		err = t.refuse(a.pair.user)
	}
	return 0, err
}

// delay is what an attempt has to wait as of now.
func (t *Throttle) delay(a *Attempt) time.Duration {
	delay := t.backoff(a.own.failures - freeOfPair)
	if a.known {
		return delay
	}
	delay = max(delay, t.backoff((a.client.failures-freeOfClient+perDoubling-1)/perDoubling))
	if r := t.find(&t.users, origin{user: a.pair.user}, time.Now()); r != nil && r.failures > freeOfUser {
		delay = max(delay, min(userDelay, t.limits.MaxDelay))
	}
	return delay
}

// touch returns the record of an origin, made if there is none.
func (t *Throttle) touch(g *generations[*record], s origin, now time.Time) *record {
	r, ok := g.get(s, now)
	if !ok {
		r = &record{}
		g.put(s, r, now)
	} else if now.Sub(r.last) > t.limits.Forget {
		r.failures = 0
	}
	return r
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
	return !a.known && time.Now().Before(a.client.banned)
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

// full says that no more may wait at all.
func (t *Throttle) full() bool { return t.stats.Waiting.Load() >= int64(t.limits.Waiting) }

// mayDelay says whether an attempt may sit out a delay: few of one user at an
// address do, and of an address not too many.
func (t *Throttle) mayDelay(a *Attempt) bool {
	most := delayedOfPair
	if a.known {
		most = delayedOfKnown
	}
	return a.own.delayed < most && t.hasPlace(a)
}

// hasPlace says whether there is a place for an attempt in wait. t.mu is held.
func (t *Throttle) hasPlace(a *Attempt) bool {
	return !t.full() && a.line.waiting < t.limits.WaitingPerClient
}

// wait takes a place, waits, and gives it back. t.mu is held, but not while it waits: there
// is still the place that was looked for before.
func (t *Throttle) wait(ctx context.Context, line *record, d time.Duration) error {
	t.stats.Waiting.Add(1)
	line.waiting++
	t.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	var err error
	select {
	case <-timer.C:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	t.stats.Waiting.Add(-1)
	line.waiting--
	return err
}

// Succeed notes that the login was right.
func (a *Attempt) Succeed() {
	t := a.t
	t.mu.Lock()
	defer t.mu.Unlock()
	a.own.failures = 0
	a.give()
	if !a.known {
		t.known.put(a.pair, struct{}{}, time.Now())
	}
}

// Cancel notes that it was not found out whether the login was right.
func (a *Attempt) Cancel() {
	a.t.mu.Lock()
	defer a.t.mu.Unlock()
	a.give()
}

// Fail notes that the login was wrong and waits until that may be told, or ctx
// ends, or too many wait. banned says that the address is refused from now on.
func (a *Attempt) Fail(ctx context.Context) (banned bool) {
	t := a.t
	t.stats.Failed.Add(1)
	now := time.Now()
	t.mu.Lock()
	a.own.count(now)
	t.pairs.put(a.pair, a.own, now)
	if a.pair.user != "" {
		t.touch(&t.users, origin{user: a.pair.user}, now).count(now)
	}
	if r := a.client; !a.known { // who has been here before harms nobody but himself
		r.count(now)
		t.clients.put(origin{addr: a.pair.addr}, r, now)
		if t.limits.BanAfter > 0 && r.failures >= t.limits.BanAfter {
			r.failures, r.banned, banned = t.limits.BanAfter*3/4, now.Add(t.limits.BanTime), true
			t.stats.Bans.Add(1)
		}
	}
	a.give() // who comes next sees all that
	if left := a.answerBefore.Sub(now); left > 0 && t.hasPlace(a) {
		_ = t.wait(ctx, a.line, left) // the login has failed in any case
	}
	t.mu.Unlock()
	return banned
}

// count counts a failure. Throttle.mu is held.
func (r *record) count(now time.Time) {
	r.failures++
	r.last = now
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
