package edge

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// pool is kernel.Pool for members of one connection, whichever host serves.
type pool struct {
	c *Conn

	mu    sync.Mutex
	limit int
	out   int  // units in use
	inner Pool // of the link in use, nil = none
}

// NewPool is kernel.NewPool.
func (c *Conn) NewPool(limit int) Pool {
	p := &pool{c: c, limit: limit}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools[p] = struct{}{}
	if l := c.now.Load(); l != nil {
		p.attach(l)
	}
	return p
}

// attach makes the pool of a link, less what is in use.
func (p *pool) attach(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner = l.NewPool(p.limit)
	if p.out != 0 {
		p.inner.Add(p.out)
	}
}

func (p *pool) detach() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inner = nil
}

// at returns the pool of the link in use.
func (p *pool) at() Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
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
