package broker

import (
	"hash/maphash"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
)

// plan is where a publish goes, worked out once for a route and a table.
// Immutable.
type plan struct {
	legs    []leg // by placement group
	live    []*route.Live
	key     string // routing key or topic name
	name    string // topic name that live subscribers see
	matched int
	spread  []*route.Topic // all topics, if any has several partitions; nil else
	dynamic bool           // it depends on the whole message, see Publisher.dynamic
	err     error
}

// leg is the part of a plan in one placement group.
type leg struct {
	group *placement.Group
	set   *placement.TargetSet
}

// compile makes a plan of what was matched. key chooses the partition, unless
// the record has another key.
func (b *Broker) compile(m route.Match, key, name string) *plan {
	p := &plan{live: m.Live, key: key, name: name, matched: len(m.Topics) + len(m.Live), dynamic: m.Dynamic}
	p.legs = b.legs(m.Topics, []byte(key))
	for _, t := range m.Topics {
		if len(t.Parts) > 1 {
			p.spread = m.Topics
		}
	}
	return p
}

// legs returns the target set in each placement group. key chooses among
// several partitions as log producers do.
func (b *Broker) legs(topics []*route.Topic, key []byte) []leg {
	var durable, volatile []placement.PartitionID
	for _, t := range topics {
		id := placement.PartitionID(t.Parts[choose(key, len(t.Parts))])
		if t.Volatile {
			volatile = append(volatile, id)
		} else {
			durable = append(durable, id)
		}
	}
	legs := make([]leg, 0, 2)
	if len(durable) > 0 {
		legs = append(legs, leg{b.durable, b.durable.Targets(durable...)})
	}
	if len(volatile) > 0 {
		legs = append(legs, leg{b.volatile, b.volatile.Targets(volatile...)})
	}
	return legs
}

// choose picks one of n partitions as Kafka's default partitioner does for a
// key.
func choose(key []byte, n int) int {
	if n <= 1 {
		return 0
	}
	return int(murmur2(key)&0x7fffffff) % n
}

// murmur2 is the hash that Kafka clients choose partitions by.
func murmur2(data []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= m
		k ^= k >> r
		k *= m
		h = h*m ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// routeCache remembers the plans of recent routes, refusals included, for one
// table and directory. Its lookups
// allocate nothing. Entries that share a slot replace each other, which makes
// the cache grow, up to maxSlots.
type routeCache struct {
	table *route.Table
	dir   *auth.Directory
	slots []cacheSlot // a power of two of them
}

const (
	minSlots = 4
	maxSlots = 256
)

type cacheSlot struct {
	plan          *plan
	exchange, key string
	byName        bool
}

var cacheSeed = maphash.MakeSeed()

// slot returns the place of a route, without a plan if it has to be worked out.
func (c *routeCache) slot(table *route.Table, dir *auth.Directory, byName bool, exchange, key string) *cacheSlot {
	if c.table != table || c.dir != dir {
		c.table, c.dir = table, dir
		if c.slots == nil {
			c.slots = make([]cacheSlot, minSlots)
		}
		clear(c.slots)
	}
	hash := maphash.String(cacheSeed, key)
	s := &c.slots[hash&uint64(len(c.slots)-1)]
	if s.plan != nil && (s.key != key || s.exchange != exchange || s.byName != byName) {
		if n := len(c.slots); n < maxSlots {
			c.slots = make([]cacheSlot, 2*n)
			s = &c.slots[hash&uint64(2*n-1)]
		}
		*s = cacheSlot{}
	}
	return s
}

// fill enters a plan. The strings may alias a network buffer, so they are
// copied.
func (s *cacheSlot) fill(p *plan, byName bool, exchange, key string) {
	*s = cacheSlot{plan: p, byName: byName, exchange: strings.Clone(exchange), key: strings.Clone(key)}
}

// byKey returns the plan for a publish to an exchange.
func (p *Publisher) byKey(table *route.Table, exchange, key string) *plan {
	s := p.cache.slot(table, p.conn.b.directory(), false, exchange, key)
	if s.plan == nil {
		s.fill(p.conn.planKey(table, exchange, strings.Clone(key)), false, exchange, key)
	}
	return s.plan
}

// planKey makes the plan for a publish to an exchange. Rights come before
// existence, so that a refusal tells nothing.
func (c *Conn) planKey(table *route.Table, exchange, key string) *plan {
	if err := c.allow(kernel.Write, KindExchange, exchange); err != nil {
		return &plan{err: err}
	}
	if x, _, ok := table.Exchange(exchange); ok && x.Internal {
		return &plan{err: kernel.Errorf(kernel.CodeAccessRefused, "exchange", exchange,
			"cannot publish to internal exchange '%s' in vhost '%s'", exchange, c.tenant.name)}
	}
	var m route.Match
	if !table.Route(&m, exchange, &route.Message{Key: key, May: c.mayReach}) {
		return &plan{err: c.tenant.noExchange(exchange)}
	}
	if err := c.allowKeys(table, exchange, key); err != nil {
		return &plan{err: err}
	}
	return c.b.compile(m, key, nameAt(exchange, key))
}

// planName makes the plan for a publish under a name with levels.
func (c *Conn) planName(table *route.Table, name string) *plan {
	if err := c.allowName(name); err != nil {
		return &plan{err: err}
	}
	var m route.Match
	table.RouteName(&m, name, &route.Message{May: c.mayReach})
	return c.b.compile(m, name, name)
}

// byName returns the plan for a publish under a name with levels.
func (p *Publisher) byName(table *route.Table, name string) *plan {
	s := p.cache.slot(table, p.conn.b.directory(), true, "", name)
	if s.plan == nil {
		name = strings.Clone(name)
		s.fill(p.conn.planName(table, name), true, "", name)
	}
	return s.plan
}
