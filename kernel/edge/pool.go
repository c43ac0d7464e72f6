package edge

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// pool is kernel.Pool for members of one connection, whichever host serves. It is made
// at each when a member joins there, and the connection keeps nothing of one that has no
// members any more.
type pool struct {
	mu    sync.Mutex
	limit int
	out   int   // units in use
	on    *link // what inner belongs to, nil = it was not needed yet
	inner Pool
}

// NewPool is kernel.NewPool.
func (c *Conn) NewPool(limit int) Pool { return &pool{limit: limit} }

// at returns the pool of a link, less what is in use; nil if there is a later link.
func (p *pool) at(l *link) Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.on == l:
		return p.inner
	case p.on != nil && p.on.number > l.number:
		return nil
	}
	p.on, p.inner = l, l.NewPool(p.limit)
	if p.out != 0 {
		p.inner.Add(p.out)
	}
	return p.inner
}

// SetLimit is kernel.Pool.SetLimit.
func (p *pool) SetLimit(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = n
	if p.inner != nil {
		p.inner.SetLimit(n)
	}
}

// Add is kernel.Pool.Add.
func (p *pool) Add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out += n
	if p.inner != nil {
		p.inner.Add(n)
	}
}

// Put is kernel.Pool.Put.
func (p *pool) Put(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out -= n
	if p.inner != nil {
		p.inner.Put(n)
	}
}

// took counts units that members have taken from the pool of the link.
func (p *pool) took(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out += n
}

// compile-time checks: a connection is a link, an edge nearly a host.
var (
	_ Link      = (*Conn)(nil)
	_ Publisher = (*publisher)(nil)
	_ Member    = (*member)(nil)
	_ Pool      = (*pool)(nil)
	_ Pool      = (*kernel.Pool)(nil)
)
