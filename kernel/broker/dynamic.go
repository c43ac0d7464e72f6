package broker

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
)

// dynamic works out, message by message, the routes that depend on more than
// the key. It remembers where sets of topics are, and its memory is used again,
// so that a publish that goes where an earlier one went allocates nothing here.
type dynamic struct {
	msg   route.Message
	match route.Match
	to    plan                    // the answer, until the next one
	may   func(*route.Topic) bool // see route.Message

	table *route.Table
	known []dynamicPlan // by hash of the topics, a power of two of them
}

type dynamicPlan struct {
	topics []*route.Topic
	plan   *plan
}

const dynamicSlots = 64

// toExchange returns the plan for a message published to an exchange that is
// there. It is valid until the next call.
func (d *dynamic) toExchange(b *Broker, table *route.Table, exchange, key string, r *kernel.Record, opt *kernel.PublishOptions) *plan {
	d.begin(r)
	d.msg.Key, d.msg.More, d.msg.Fields = key, opt.Keys, opt.Fields
	table.Route(&d.match, exchange, &d.msg) // which is there: see planKey
	return d.plan(b, table, exchange, key)
}

// toName is toExchange for a message published under a name with levels.
func (d *dynamic) toName(b *Broker, table *route.Table, name string, r *kernel.Record) *plan {
	d.begin(r)
	table.RouteName(&d.match, name, &d.msg)
	return d.plan(b, table, kernel.ExchangeDefault, name)
}

func (d *dynamic) begin(r *kernel.Record) {
	d.msg.Reset()
	d.msg.Record, d.msg.Draw, d.msg.May = r, rand.Uint64(), d.may
}

// plan makes the plan of what was matched.
func (d *dynamic) plan(b *Broker, table *route.Table, exchange, key string) *plan {
	d.msg.Release()
	m := &d.match
	d.to = plan{live: m.Live, key: key, matched: len(m.Topics) + len(m.Live)}
	if len(m.Live) > 0 {
		d.to.name = nameAt(exchange, key)
	}
	if len(m.Topics) == 0 {
		return &d.to
	}
	if d.table != table {
		d.table = table
		if d.known == nil {
			d.known = make([]dynamicPlan, dynamicSlots)
		}
		clear(d.known)
	}
	at := &d.known[hashTopics(m.Topics)%dynamicSlots]
	if !slices.Equal(at.topics, m.Topics) {
		topics := slices.Clone(m.Topics)
		*at = dynamicPlan{topics, b.compile(route.Match{Topics: topics}, "", "")}
	}
	d.to.legs, d.to.spread = at.plan.legs, at.plan.spread
	if d.to.spread != nil {
		d.to.legs = b.legs(d.to.spread, []byte(key))
	}
	return &d.to
}

func hashTopics(topics []*route.Topic) (h uint64) {
	for _, t := range topics {
		h = (h ^ binary.LittleEndian.Uint64(t.ID[:])) * 0x9e3779b97f4a7c15
	}
	return h >> 32
}

// nameAt is the topic name under which live subscribers see a publish.
func nameAt(exchange, key string) string {
	if exchange == kernel.ExchangeDefault {
		return key
	}
	return kernel.NameOfKey(key)
}
