package kernel

import (
	"math"
	"slices"
	"sync"
)

// Pool bounds what several members hold together, on whatever groups they are:
// a record takes one unit when it is handed out, and whoever settles it puts
// that back. No unit lies with a member that has nothing to hand out, so an idle
// group never keeps others waiting. Members that want more than there is are
// called in turn. Safe for concurrent use.
type Pool struct {
	mu      sync.Mutex
	limit   int
	free    int // negative after the limit was lowered
	waiting []PoolMember
	called  map[PoolMember]struct{} // woken, and not heard of since
	owed    map[PoolMember]struct{} // first when they take again, see Owe
}

// PoolMember is a member as the pool knows it; a pointer.
type PoolMember interface {
	// Wake asks the member to take again. It must not block nor call the pool.
	Wake()
}

// NewPool makes a pool of limit units, 0 = without limit.
func NewPool(limit int) *Pool {
	limit = poolLimit(limit)
	return &Pool{limit: limit, free: limit, called: make(map[PoolMember]struct{}), owed: make(map[PoolMember]struct{})}
}

func poolLimit(n int) int {
	if n <= 0 {
		return math.MaxInt32
	}
	return n
}

// SetLimit changes how many units there are, 0 = without limit. What is out
// stays out.
func (p *Pool) SetLimit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += poolLimit(n) - p.limit
	p.limit = poolLimit(n)
	p.call()
}

// Add takes n units that are out already, whatever there is.
func (p *Pool) Add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free -= n
}

// Take takes up to n units for a member. One that gets none is woken when its
// turn comes. Repay must follow, whatever it got.
func (p *Pool) Take(m PoolMember, n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, first := p.called[m]
	_, owed := p.owed[m]
	first = first || owed
	delete(p.called, m)
	if n <= 0 {
		return 0
	}
	delete(p.owed, m)
	got := min(n, p.free)
	if got <= 0 || !first && len(p.waiting)+len(p.called) > 0 { // others were first
		p.wait(m, first)
		return 0
	}
	p.free -= got
	return got
}

// Repay gives back the n units of the last Take that were not used. more asks
// for another turn.
func (p *Pool) Repay(m PoolMember, n int, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	if more {
		p.wait(m, false)
	}
	p.call()
}

// Owe says that a member could not use its turn yet: when it takes again it
// comes before those that wait. Until then nothing is kept for it.
func (p *Pool) Owe(m PoolMember) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed[m] = struct{}{}
}

// Put gives back n units that were in use, and wakes whom they may serve.
func (p *Pool) Put(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	p.call()
}

// Forget takes a member out of the turn, until it takes again.
func (p *Pool) Forget(m PoolMember) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.called, m)
	delete(p.owed, m)
	for i, o := range p.waiting {
		if o == m {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			break
		}
	}
	p.call()
}

func (p *Pool) wait(m PoolMember, first bool) {
	at := slices.Index(p.waiting, m)
	switch {
	case at < 0 && first:
		p.waiting = slices.Insert(p.waiting, 0, m)
	case at < 0:
		p.waiting = append(p.waiting, m)
	case first:
		copy(p.waiting[1:at+1], p.waiting[:at])
		p.waiting[0] = m
	}
}

// call wakes as many as there are units for.
func (p *Pool) call() {
	for len(p.waiting) > 0 && p.free > len(p.called) {
		m := p.waiting[0]
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		p.called[m] = struct{}{}
		m.Wake()
	}
}
