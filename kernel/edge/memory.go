package edge

import (
	"context"
	"reflect"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// maxMemory is how many exchanges, queues and bindings, each, of a connection are
// declared again: of more, such as queues that expire while it makes others for ever,
// the latest.
const maxMemory = 4096

// memory is what a connection has declared that lives in memory only, in the order of
// declaration: it is gone with its host, and is declared again at the next one.
type memory struct {
	exchanges []kernel.Exchange
	queues    []broker.QueueSpec
	bindings  []kernel.Binding // of or to one of those
}

func (m *memory) exchange(x kernel.Exchange) bool {
	if !m.hasExchange(x.Name) {
		if len(m.exchanges) == maxMemory {
			m.exchangeGone(m.exchanges[0].Name)
		}
		m.exchanges = append(m.exchanges, x)
	}
	return true
}

func (m *memory) hasExchange(name string) bool {
	return slices.ContainsFunc(m.exchanges, func(x kernel.Exchange) bool { return x.Name == name })
}

func (m *memory) exchangeGone(name string) bool {
	had := len(m.exchanges) + len(m.bindings)
	m.exchanges = slices.DeleteFunc(m.exchanges, func(x kernel.Exchange) bool { return x.Name == name })
	m.bindings = slices.DeleteFunc(m.bindings, func(b kernel.Binding) bool {
		return b.Exchange == name || b.ToExchange && b.Queue == name
	})
	return len(m.exchanges)+len(m.bindings) < had
}

func (m *memory) queue(q broker.QueueSpec) bool {
	if !m.hasQueue(q.Name) {
		if len(m.queues) == maxMemory {
			m.queueGone(m.queues[0].Name)
		}
		m.queues = append(m.queues, q)
	}
	return true
}

func (m *memory) hasQueue(name string) bool {
	return slices.ContainsFunc(m.queues, func(q broker.QueueSpec) bool { return q.Name == name })
}

// owns reports whether a queue is exclusive to the connection.
func (m *memory) owns(name string) bool {
	return slices.ContainsFunc(m.queues, func(q broker.QueueSpec) bool { return q.Name == name && q.Exclusive })
}

func (m *memory) queueGone(name string) bool {
	had := len(m.queues) + len(m.bindings)
	m.queues = slices.DeleteFunc(m.queues, func(q broker.QueueSpec) bool { return q.Name == name })
	m.bindings = slices.DeleteFunc(m.bindings, func(b kernel.Binding) bool { return !b.ToExchange && b.Queue == name })
	return len(m.queues)+len(m.bindings) < had
}

func (m *memory) bind(b kernel.Binding) bool {
	lives := m.hasExchange(b.Exchange) || !b.ToExchange && m.hasQueue(b.Queue) || b.ToExchange && m.hasExchange(b.Queue)
	if lives && !slices.ContainsFunc(m.bindings, same(b)) {
		if len(m.bindings) == maxMemory {
			m.bindings = slices.Delete(m.bindings, 0, 1)
		}
		m.bindings = append(m.bindings, b)
	}
	return lives
}

func (m *memory) unbind(b kernel.Binding) bool {
	had := len(m.bindings)
	m.bindings = slices.DeleteFunc(m.bindings, same(b))
	return len(m.bindings) < had
}

// same returns what finds b in a list, which may be long.
func same(b kernel.Binding) func(kernel.Binding) bool {
	return func(o kernel.Binding) bool {
		return o.Key == b.Key && o.Queue == b.Queue && o.Exchange == b.Exchange && reflect.DeepEqual(b, o)
	}
}

// deserted forgets a queue that goes by itself, having lost its last consumer.
func (m *memory) deserted(name string) {
	for _, q := range m.queues {
		if q.Name == name && q.AutoDelete {
			m.queueGone(name)
			return
		}
	}
}

// redeclare makes at a new host what the connection had at the old one. What somebody
// else has made there meanwhile, differently, is not the connection's any more.
func (c *Conn) redeclare(ctx context.Context, l *link) error {
	c.mu.Lock()
	m := memory{slices.Clone(c.memory.exchanges), slices.Clone(c.memory.queues), slices.Clone(c.memory.bindings)}
	c.mu.Unlock()
	for _, x := range m.exchanges {
		if err := l.DeclareExchange(ctx, x); again(err) {
			return err
		} else if err != nil {
			c.dropped(err, func(m *memory) bool { return m.exchangeGone(x.Name) })
		}
	}
	for _, q := range m.queues {
		if _, err := l.DeclareQueue(ctx, q); again(err) {
			return err
		} else if err != nil {
			c.dropped(err, func(m *memory) bool { return m.queueGone(q.Name) })
		}
	}
	for _, b := range m.bindings {
		if err := l.Bind(ctx, b); again(err) {
			return err
		} else if err != nil {
			c.dropped(err, func(m *memory) bool { return m.unbind(b) })
		}
	}
	return nil
}

// dropped forgets what could not be made again.
func (c *Conn) dropped(err error, forget func(*memory) bool) {
	c.e.cfg.Logger.Info().Err(err).Str("connection", c.info.Name).Msg("what a connection had declared could not be declared again")
	c.mu.Lock()
	defer c.mu.Unlock()
	forget(&c.memory)
}
