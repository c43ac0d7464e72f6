package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// HasTag is broker.Conn.HasTag; false while nobody serves.
func (c *Conn) HasTag(tag string) bool {
	l, err := c.linked(c.stop)
	return err == nil && l.HasTag(tag)
}

// DeclareExchange is broker.Conn.DeclareExchange.
func (c *Conn) DeclareExchange(ctx context.Context, x kernel.Exchange) error {
	if x.Durable {
		return c.doOnce(ctx, func(ctx context.Context, l *link) error { return l.DeclareExchange(ctx, x) })
	}
	return c.do(ctx, func(l *link) error {
		if err := l.DeclareExchange(ctx, x); err != nil {
			return err
		}
		return c.note(l, func(m *memory) bool { return m.exchange(x) })
	})
}

// Exchange is broker.Conn.Exchange.
func (c *Conn) Exchange(name string) (x kernel.Exchange, err error) {
	err = c.do(c.stop, func(l *link) (err error) {
		x, err = l.Exchange(name)
		return err
	})
	return x, err
}

// DeleteExchange is broker.Conn.DeleteExchange.
func (c *Conn) DeleteExchange(ctx context.Context, name string, ifUnused bool) error {
	return c.remove(ctx, func(m *memory) bool { return m.hasExchange(name) }, func(ctx context.Context, l *link) error {
		err := l.DeleteExchange(ctx, name, ifUnused)
		if err == nil {
			return c.note(l, func(m *memory) bool { return m.exchangeGone(name) })
		}
		return err
	})
}

// SameQueue is broker.Conn.SameQueue.
func (c *Conn) SameQueue(q broker.QueueSpec) error {
	return c.do(c.stop, func(l *link) error { return l.SameQueue(q) })
}

// DeclareQueue is broker.Conn.DeclareQueue. What lives in memory only is declared again
// at the next host.
func (c *Conn) DeclareQueue(ctx context.Context, q broker.QueueSpec) (info broker.QueueInfo, err error) {
	if q.Durable && !q.Exclusive {
		err = c.doOnce(ctx, func(ctx context.Context, l *link) (err error) {
			info, err = l.DeclareQueue(ctx, q)
			return err
		})
		return info, err
	}
	err = c.do(ctx, func(l *link) (err error) {
		if info, err = l.DeclareQueue(ctx, q); err == nil {
			q.Name, q.Again = info.Name, true
			return c.note(l, func(m *memory) bool { return m.queue(q) })
		}
		return err
	})
	return info, err
}

// Queue is broker.Conn.Queue.
func (c *Conn) Queue(name string) (info broker.QueueInfo, err error) {
	err = c.do(c.stop, func(l *link) (err error) {
		info, err = l.Queue(name)
		return err
	})
	return info, err
}

// DeleteQueue is broker.Conn.DeleteQueue.
func (c *Conn) DeleteQueue(ctx context.Context, name string, ifUnused, ifEmpty bool) (n int64, err error) {
	err = c.remove(ctx, func(m *memory) bool { return m.hasQueue(name) }, func(ctx context.Context, l *link) (err error) {
		deleted, err := l.DeleteQueue(ctx, name, ifUnused, ifEmpty)
		if err == nil {
			n += deleted
			return c.note(l, func(m *memory) bool { return m.queueGone(name) })
		}
		return err
	})
	return n, err
}

// PurgeQueue is broker.Conn.PurgeQueue.
func (c *Conn) PurgeQueue(ctx context.Context, name string) (n int64, err error) {
	err = c.doOnce(ctx, func(ctx context.Context, l *link) (err error) {
		n, err = l.PurgeQueue(ctx, name)
		return err
	})
	return n, err
}

// Bind is broker.Conn.Bind.
func (c *Conn) Bind(ctx context.Context, b kernel.Binding) error {
	return c.do(ctx, func(l *link) error {
		err := l.Bind(ctx, b)
		if err == nil {
			return c.note(l, func(m *memory) bool { return m.bind(b) })
		}
		return err
	})
}

// Unbind is broker.Conn.Unbind.
func (c *Conn) Unbind(ctx context.Context, b kernel.Binding) error {
	return c.do(ctx, func(l *link) error {
		err := l.Unbind(ctx, b)
		if err == nil {
			return c.note(l, func(m *memory) bool { return m.unbind(b) })
		}
		return err
	})
}

// Address is broker.Conn.Address.
func (c *Conn) Address(name string) (addr kernel.GroupAddress, err error) {
	err = c.do(c.stop, func(l *link) (err error) {
		addr, err = l.Address(name)
		return err
	})
	return addr, err
}

// note remembers what a call that has succeeded made or deleted; fn reports whether the
// memory has it, or had it. If the link is left meanwhile, what is made anew at the next
// host may have been begun with before: the call is to be done again there.
func (c *Conn) note(l *link, fn func(*memory) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn(&c.memory) && c.now.Load() != l {
		return errMoved
	}
	return nil
}
