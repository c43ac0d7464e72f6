package broker

import (
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
)

// dead makes dead letters of records that died in groups that have an exchange for
// them. They are routed anew, in the tenant of the group.
type dead struct {
	loaded chan struct{} // closed when the tenants are there

	buried  atomic.Uint64 // dead letters that queues have taken
	dropped atomic.Uint64 // those that nothing takes, or that would go round in circles
	kept    atomic.Uint64 // tries that have to be made again
}

// bury is placement.Config.Bury.
func (b *Broker) bury(f *placement.Burial) {
	select {
	case <-b.dead.loaded:
	case <-b.ctx.Done():
		for i := range f.Letters {
			f.Done(i, true) // the next start does it
		}
		return
	}
	t, ok := b.tenant(f.Address.Tenant)
	for i := range f.Letters {
		switch {
		case !ok:
			b.dead.drop(f, i)
		case b.alarms.gathers() && !f.Last: // whoever takes it may not be back
			b.dead.keep(f, i)
		default:
			t.bury(f, i)
		}
	}
}

// drop gives up a dead letter.
func (d *dead) drop(f *placement.Burial, i int) {
	d.dropped.Add(1)
	f.Done(i, false)
}

// keep puts a dead letter off.
func (d *dead) keep(f *placement.Burial, i int) {
	d.kept.Add(1)
	f.Done(i, true)
}

// unrouted ends a dead letter that nothing takes now.
func (d *dead) unrouted(f *placement.Burial, i int) {
	if f.Limits.AtLeastOnce && !f.Last {
		d.keep(f, i)
		return
	}
	d.drop(f, i)
}

// queueName is how the name of a group stands in the history of a dead record.
func queueName(a kernel.GroupAddress) string {
	if a.IsOwn() {
		return a.Topic
	}
	return a.String()
}

// bury routes and stores the dead letter of one record.
func (t *tenant) bury(f *placement.Burial, i int) {
	b := t.b
	l := newLetter(f, &f.Letters[i], b.now().Unix(), b.tables)
	m, ok := l.route(b, t.table.Load())
	if !ok {
		b.dead.unrouted(f, i)
		return
	}
	topics := slices.DeleteFunc(slices.Clone(m.Topics), func(topic *route.Topic) bool {
		return topic.Kind == kernel.Plain && kernel.DeathCycle(l.deaths, topic.Name)
	})
	if len(m.Live) > 0 && !f.Letters[i].Again {
		t.show(m.Live, l)
	}
	switch {
	case len(topics) > 0:
		l.store(b, f, i, topics)
	case len(m.Topics) > 0: // only a circle
		b.dead.drop(f, i)
	case len(m.Live) > 0:
		b.dead.buried.Add(1)
		f.Done(i, false)
	default:
		b.dead.unrouted(f, i)
	}
}

// show feeds a dead letter to session-less subscribers; who is slow misses it.
func (t *tenant) show(live []*route.Live, l *letter) {
	m := kernel.LiveMessage{Name: l.key, Record: &l.record}
	if l.exchange != kernel.ExchangeDefault {
		m.Name = kernel.NameOfKey(l.key)
	}
	for _, to := range live {
		if to.Feed.Slow.On() || !to.Feed.Offer(&m, to.Handle) {
			to.Feed.Drop()
		}
	}
}

// letter is a dead letter on its way.
type letter struct {
	record   kernel.Record
	exchange string   // that it is published to
	key      string   // routing key
	more     []string // further ones
	table    []byte   // typed headers, nil = the record's are all
	deaths   []kernel.Death
}

// newLetter makes the dead letter of a record: the same, but for its address, its
// time to live and its history. It keeps its routing keys, unless the group has
// one for dead letters: then the further ones go. now is in seconds since 1970.
func newLetter(f *placement.Burial, from *placement.Letter, now int64, tables Tables) *letter {
	v := from.Record
	a := addressOf(v, f.Address.Topic)
	l := &letter{exchange: f.Limits.DeadLetterExchange, key: a.key, table: a.table}
	if a.table != nil {
		l.more = tables.Keys(a.table)
	}
	death := kernel.Death{
		Queue: queueName(f.Address), Reason: from.Reason, Time: now,
		Exchange: a.exchange, RoutingKeys: append([]string{a.key}, l.more...), Expiration: a.ttl(v),
	}
	if k := f.Limits.DeadLetterKey; k != nil {
		l.key = *k
		if len(l.more) > 0 {
			l.table, l.more = tables.WithoutKeys(a.table), nil
		}
	}
	l.record = kernel.Record{Key: v.Key, Value: v.Value, Timestamp: v.Timestamp}
	l.add(kernel.HeaderExchange, []byte(l.exchange))
	if a.ownKey {
		l.add(kernel.HeaderRoute, []byte(l.key))
	} else {
		l.record.Key = []byte(l.key)
	}
	if l.table != nil {
		l.add(kernel.HeaderTable, l.table)
	}
	first := l.copy(v)
	l.deaths = kernel.AddDeath(l.deaths, death)
	l.add(kernel.HeaderDeath, kernel.AppendDeaths(nil, l.deaths))
	if !first {
		l.add(kernel.HeaderFirstDeathQueue, []byte(death.Queue))
		l.add(kernel.HeaderFirstDeathReason, []byte(death.Reason))
		l.add(kernel.HeaderFirstDeathExchange, []byte(death.Exchange))
	}
	l.add(kernel.HeaderLastDeathQueue, []byte(death.Queue))
	l.add(kernel.HeaderLastDeathReason, []byte(death.Reason))
	l.add(kernel.HeaderLastDeathExchange, []byte(death.Exchange))
	return l
}

func (l *letter) add(name string, value []byte) {
	l.record.Headers = append(l.record.Headers, kernel.Header{Key: name, Value: value})
}

// copy takes over the headers that stay, and the deaths so far. It reports
// whether the record has died before. Names that only the broker writes are
// believed in its own batches only.
func (l *letter) copy(v *kernel.View) (died bool) {
	own := v.IsOwn()
	it := v.Headers()
	for name, value, ok := it.Next(); ok; name, value, ok = it.Next() {
		name := string(name)
		reserved := strings.HasPrefix(name, kernel.HeaderReserved)
		switch {
		case !own && (reserved || kernel.IsDeathHeader(name)):
			l.add(kernel.HeaderUser+name, value)
		case name == kernel.HeaderExchange, name == kernel.HeaderRoute, name == kernel.HeaderExpiresAt, name == kernel.HeaderTTL, name == kernel.HeaderTable:
		case name == kernel.HeaderDeath:
			l.deaths = kernel.ReadDeaths(value)
		case name == kernel.HeaderLastDeathQueue, name == kernel.HeaderLastDeathReason, name == kernel.HeaderLastDeathExchange:
		default:
			died = died || name == kernel.HeaderFirstDeathQueue
			l.add(name, value)
		}
	}
	return died
}

// address is where a stored record was published to.
type address struct {
	exchange, key string
	ownKey        bool   // the record's key is not the address
	table         []byte // typed headers, aliased; nil = none
	expires       string
	stated        string // time to live as its publisher gave it
	dated         bool   // its time is the client's
}

func addressOf(v *kernel.View, topic string) (a address) {
	var exchange, rk []byte
	hasQoS := false
	if v.IsOwn() {
		it := v.Headers()
		for name, value, ok := it.Next(); ok; name, value, ok = it.Next() {
			switch string(name) {
			case kernel.HeaderExchange:
				exchange = append([]byte{}, value...)
			case kernel.HeaderRoute:
				rk = append([]byte{}, value...)
			case kernel.HeaderQoS:
				hasQoS = true
			case kernel.HeaderExpiresAt:
				a.expires = string(value)
			case kernel.HeaderTTL:
				a.stated = string(value)
			case kernel.HeaderTimestamp:
				a.dated = true
			case kernel.HeaderTable:
				a.table = value
			}
		}
	}
	a.key, a.ownKey = string(v.Key), rk != nil
	if rk != nil {
		a.key = string(rk)
	}
	switch {
	case exchange != nil:
		a.exchange = string(exchange)
	case hasQoS:
		a.exchange, a.key = kernel.ExchangeTopic, kernel.KeyOfName(a.key)
	default:
		a.key, a.ownKey = topic, true
	}
	return a
}

// ttl is the time to live that a record had of its own, in milliseconds.
func (a *address) ttl(v *kernel.View) string {
	if a.stated != "" || a.expires == "" || a.dated {
		return a.stated
	}
	at, err := strconv.ParseInt(a.expires, 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(max(at-v.Timestamp, 0), 10)
}
