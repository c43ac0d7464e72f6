package forward

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

const (
	// highMark is how many bytes may wait to be sent before credit is taken back, and
	// lowMark when it is given again. A front-end has given credit for less, if it knows
	// how large its messages are: what the broker has to take back is marked redelivered.
	highMark = 2 << 20
	lowMark  = 512 << 10
)

// stub is the consumer at the broker that stands for one at another node. It implements
// kernel.Admitter and kernel.Pinner.
type stub struct {
	session *session
	id      uint64
	m       *broker.Member
	pull    bool
	holding *holding // whose member it is; nil = it has joined by itself

	// guarded by session.out.mu
	credit    int // given to the broker, and not used
	owed      int // taken back from it, to be given again
	hungry    bool
	reserved  int // bytes of the delivery that was admitted
	delivered int
	limit     int64 // bytes that an acquisition may have
	refused   struct {
		records, bytes int
	}
}

// member returns a member, nil if there is none of that id, or not any more.
func (c *session) member(id uint64) *stub {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.members[id]
}

// credit gives or takes back credit of a member.
func (c *session) credit(id uint64, n int) {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	m := c.members[id]
	switch {
	case m == nil || n == 0:
	case n > 0 && c.full():
		m.owed += n
		m.starve()
	case n > 0:
		m.grant(n)
	default:
		owed := min(m.owed, -n)
		m.owed -= owed
		m.grant(n + owed)
	}
}

// full reports whether enough waits to be sent. The caller holds out.mu.
func (c *session) full() bool { return c.out.waiting+c.reserved > highMark }

// grant gives credit to the broker, or takes it back. The caller holds out.mu.
func (m *stub) grant(n int) {
	m.credit += n
	m.m.Credit(n)
}

// withhold takes credit back that is given again when less waits. The caller holds
// out.mu.
func (m *stub) withhold(n int) {
	m.owed += n
	m.grant(-n)
	m.starve()
}

// starve lists the stub for feed. The caller holds out.mu.
func (m *stub) starve() {
	if !m.hungry {
		m.hungry = true
		m.session.hungry = append(m.session.hungry, m)
	}
}

// feed gives the credit that is owed when little waits to be sent.
func (c *session) feed() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if len(c.hungry) == 0 || c.out.waiting+c.reserved > lowMark {
		return
	}
	for i, m := range c.hungry {
		c.hungry[i] = nil
		m.hungry = false
		n := m.owed
		m.owed = 0
		m.grant(n)
	}
	c.hungry = c.hungry[:0]
}

// Admit implements kernel.Admitter.
func (m *stub) Admit(records, bytes int) bool {
	c := m.session
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if m.pull {
		m.refused.records, m.refused.bytes = records, bytes
		return int64(bytes) <= m.limit
	}
	if c.out.dead || c.out.closing {
		return true
	}
	if waiting := c.out.waiting + c.reserved; waiting > 0 && waiting+bytes > highMark {
		m.withhold(max(m.credit, records))
		return false
	}
	m.reserved = bytes
	c.reserved += bytes
	return true
}

// Deliver implements kernel.Consumer.
func (m *stub) Deliver(batch []kernel.Delivery) {
	c, o := m.session, &m.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	c.reserved -= m.reserved
	m.reserved = 0
	m.credit -= len(batch)
	m.delivered += len(batch)
	if !o.dead && !o.closing {
		o.grow(headSize + deliveriesSize(batch) + 10)
		start := o.begin(kindDeliver)
		o.buf = appendDeliveries(codec.AppendUint(o.buf, m.id), batch)
		o.end(start)
	}
	if c.full() && m.credit > 0 {
		m.withhold(m.credit)
	}
}

// Ended implements kernel.Consumer.
func (m *stub) Ended(reason error) {
	o := &m.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	start := o.begin(kindEnded)
	o.buf = appendError(codec.AppendUint(o.buf, m.id), reason)
	o.end(start)
}
