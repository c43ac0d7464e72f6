package listener

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons to refuse a connection, which OnError's errors wrap.
var (
	// ErrBudget: too many are open.
	ErrBudget = errors.New("too many connections")
	// ErrAddressBudget: too many of one address have not logged in.
	ErrAddressBudget = errors.New("too many connections of one address that have not logged in")
	// ErrHandshakes: too many are in the midst of PROXY, TLS or WebSocket.
	ErrHandshakes = errors.New("too many handshakes at a time")
)

// Budget is a limit on connections open at one time. Safe for concurrent use;
// a nil Budget has no limit.
type Budget struct {
	limit int64
	open  atomic.Int64
}

// NewBudget returns a budget of n connections; n <= 0 is no limit.
func NewBudget(n int) *Budget { return &Budget{limit: int64(n)} }

// Open returns how many connections are open.
func (b *Budget) Open() int64 {
	if b == nil {
		return 0
	}
	return b.open.Load()
}

func (b *Budget) take() bool {
	if b == nil {
		return true
	}
	if n := b.open.Add(1); b.limit > 0 && n > b.limit {
		b.open.Add(-1)
		return false
	}
	return true
}

func (b *Budget) give() {
	if b != nil {
		b.open.Add(-1)
	}
}

// takeAll takes a place in each budget, or none.
func takeAll(budgets []*Budget) bool {
	for i, b := range budgets {
		if !b.take() {
			for _, taken := range budgets[:i] {
				taken.give()
			}
			return false
		}
	}
	return true
}

// Addresses is a limit on the connections of one client address that have not
// logged in, so that one client cannot take the places of all. An IPv6 client
// is its /64. Safe for concurrent use; nil has no limit.
type Addresses struct {
	limit int
	mu    sync.Mutex
	open  map[netip.Addr]int
}

// NewAddresses returns a limit of n connections for each address; n <= 0 is no
// limit, which is nil.
func NewAddresses(n int) *Addresses {
	if n <= 0 {
		return nil
	}
	return &Addresses{limit: n, open: map[netip.Addr]int{}}
}

func (a *Addresses) take(who netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[who] >= a.limit {
		return false
	}
	a.open[who]++
	return true
}

func (a *Addresses) give(who netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open[who]--; a.open[who] <= 0 {
		delete(a.open, who)
	}
}

// clientOf is what of an address is counted together.
func clientOf(addr net.Addr) netip.Addr {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		if p, err := ip.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return ip
}

// pace lets so many connections a second through, and as many at once: the
// others wait in the socket's queue, where they cost nothing.
type pace struct {
	each   time.Duration // 0 = no limit
	mu     sync.Mutex
	booked time.Time // up to when the places are taken
}

func newPace(perSecond int) *pace {
	if perSecond <= 0 {
		return &pace{}
	}
	return &pace{each: time.Second / time.Duration(perSecond)}
}

// delay books a place and returns how long until it is there.
func (p *pace) delay(now time.Time) time.Duration {
	if p.each == 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if saved := now.Add(-time.Second); p.booked.Before(saved) {
		p.booked = saved // a quiet time is worth one second's places
	}
	p.booked = p.booked.Add(p.each)
	return max(p.booked.Sub(now), 0)
}
