package broker

import (
	"context"
	"strings"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
)

// Publisher publishes for one connection or channel. It remembers recent
// routes. Not safe for concurrent use; Completed calls come from elsewhere.
type Publisher struct {
	conn  *Conn
	sink  *sink
	sent  uint64 // publishes whose outcome the sink is told
	cache routeCache
	log   logRoute
	live  kernel.LiveMessage // reused
	keeps *keeping           // keyed writes of the publish under way, nil = none
	uses  *onces             // whose number the publish under way uses, nil = none
	use   *use
	id    kernel.DedupID // of the publish under way, zero = none

	dynamic dynamic
}

// Publisher returns a publisher whose outcomes go to done (nil: nobody asks).
func (c *Conn) Publisher(done kernel.Completion) *Publisher {
	return &Publisher{conn: c, sink: newSink(done), dynamic: dynamic{may: c.mayReach}}
}

// settleTime is the longest that Settle waits.
const settleTime = 5 * time.Second

// Settle waits until everything accepted so far has its outcome: what was
// stored is then counted, handed out, purged and deleted by whatever comes
// later. It costs nothing when nothing is under way. An error is ctx's, or
// CodeUnavailable when the outcomes do not come within 5 seconds. Like a publish it is not safe for concurrent use.
func (p *Publisher) Settle(ctx context.Context) error {
	return p.sink.await(ctx, p.sent)
}

// ToExchange routes r by an exchange and stores it in every target. It returns
// how many targets matched. An error (exchange missing: CodeNotFound, internal:
// CodeAccessRefused, record too large: CodeTooLarge, the queue could not be
// created now: CodeUnavailable, CodeUnknown) means nothing was stored and no
// Completed call comes. It may wait, bounded, while the node is over its
// budget of bytes in flight or the queue is being created.
// The record's Key is the routing key unless the caller set another.
//
// A message with an ID is stored once in each target: one that remembers the ID
// confirms and drops it. Who is fed from memory gets the repeats, too.
func (p *Publisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error) {
	p.id = opt.ID
	matched, err = p.toExchange(exchange, key, r, &opt, token)
	p.id = kernel.DedupID{}
	return matched, err
}

func (p *Publisher) toExchange(exchange, key string, r *kernel.Record, opt *kernel.PublishOptions, token uint64) (matched int, err error) {
	t := p.conn.tenant
	if t.b.alarms.gathers() {
		return 0, errGathering
	}
	table := t.table.Load()
	to := p.byKey(table, exchange, key)
	if to.err != nil {
		return 0, to.err
	}
	if to.dynamic || len(opt.Keys) > 0 {
		if err := p.conn.allowKeys(table, exchange, opt.Keys...); err != nil {
			return 0, err
		}
		to = p.dynamic.toExchange(p.conn.b, table, exchange, key, r, opt)
	}
	if to.matched == 0 {
		if opt.Mandatory {
			return 0, nil
		}
		if exchange == kernel.ExchangeDefault && p.conn.May(kernel.Configure, KindQueue, key) {
			if err := t.provision(strings.Clone(key)); err != nil {
				return 0, err
			}
			to = p.byKey(t.table.Load(), exchange, key)
		}
	}
	return p.send(to, r, token)
}

// Identified is a publish, done by a call to this publisher within the function, of a
// message with an ID as in PublishOptions.
func (p *Publisher) Identified(id kernel.DedupID, publish func() (int, error)) (matched int, err error) {
	p.id = id
	matched, err = publish()
	p.id = kernel.DedupID{}
	return matched, err
}

// ToTopic publishes under a name with levels: to the topic of exactly that
// name, to the filters it matches, to the bindings of amq.topic, and to
// session-less subscribers. matched counts topics and subscribers. It takes the
// right to publish to amq.topic with that key (else CodeAccessRefused), and for
// the topic of that name, unless a subscription made it, the right to write to
// it; else that is left out.
func (p *Publisher) ToTopic(name string, r *kernel.Record, token uint64) (matched int, err error) {
	if p.conn.b.alarms.gathers() {
		return 0, errGathering
	}
	table := p.conn.tenant.table.Load()
	to := p.byName(table, name)
	if to.err != nil {
		return 0, to.err
	}
	if to.dynamic {
		to = p.dynamic.toName(p.conn.b, table, name, r)
	}
	return p.send(to, r, token)
}

// send stores a record in every target of a plan and feeds the live
// subscribers.
func (p *Publisher) send(to *plan, r *kernel.Record, token uint64) (int, error) {
	if p.keeps != nil {
		return p.sendKeyed(to, r, token)
	}
	legs := to.legs
	if to.spread != nil && string(r.Key) != to.key {
		legs = p.conn.b.legs(to.spread, r.Key)
	}
	if err := p.store(legs, r, token); err != nil {
		return 0, err
	}
	p.conn.counters.Received(1, len(r.Value))
	if len(to.live) > 0 {
		p.live = kernel.LiveMessage{Name: to.name, Record: r, Origin: p.conn.id}
		p.conn.feed(to.live, &p.live)
		p.live = kernel.LiveMessage{}
	}
	if len(legs) == 0 {
		done := p.outcome()
		done.Completed(token, kernel.Result{Offset: -1})
		done.Flush()
	}
	p.sent++
	return to.matched, nil
}

// store appends to all legs, or to none if the first refuses.
func (p *Publisher) store(legs []leg, r *kernel.Record, token uint64) error {
	for i := range legs {
		if err := legs[i].group.Wait(p.conn.stop); err != nil {
			return err
		}
	}
	switch {
	case len(legs) == 0:
		return nil
	case len(legs) == 1:
		return p.append(&legs[0], r, p.outcome(), token)
	}
	if err := p.room(legs[1:], r); err != nil {
		return err
	}
	return p.storeMany(legs, r, token)
}

// room looks, for a publish that all targets take or none, whether those have room to
// which it is appended later than the first.
func (p *Publisher) room(later []leg, r *kernel.Record) error {
	if p.uses == nil {
		return nil
	}
	for i := range later {
		if err := later[i].group.Full(later[i].set, r); err != nil {
			return err
		}
	}
	return nil
}

// storeMany appends to several placement groups with one completion for all.
// If the first refuses nothing has happened; if a later one does, the publish
// completes with its error.
func (p *Publisher) storeMany(legs []leg, r *kernel.Record, token uint64) error {
	j := &join{sink: p.outcome(), token: token, left: len(legs)}
	for i := range legs {
		err := p.append(&legs[i], r, j, 0)
		if err != nil && i == 0 {
			return err
		}
		if err != nil {
			for range legs[i:] {
				j.Completed(0, kernel.Result{Err: err})
			}
			j.Flush()
			return nil
		}
	}
	return nil
}

// provision makes the queue that a publish to the default exchange misses, if
// the rules allow it. The publisher waits for it, so that its order holds. An
// error says that it could not be made now: the publish is not one without
// target then.
func (t *tenant) provision(name string) error {
	b := t.b
	if !b.settings.AutoCreateQueues || kernel.CheckNewName("queue", name) != nil {
		return nil
	}
	t.mu.Lock()
	refused := t.waiting >= b.limits.Provisional || t.gone.has(name, b.now())
	t.mu.Unlock()
	if refused {
		return nil
	}
	defer t.names.lock(claim{topicLockKey(false, name), true})()
	t.policies.gate.RLock()
	defer t.policies.gate.RUnlock()
	if _, ok := t.table.Load().Topic(kernel.Plain, name); ok {
		return nil
	}
	kt := &kernel.Topic{
		Name: name, Partitions: 1, Retention: kernel.RetainDay, ExpiresAt: b.now().Add(provisionalLife).Truncate(time.Millisecond),
	}
	ctx, cancel := b.changeContext()
	defer cancel()
	if _, _, err := t.makeTopic(ctx, kt, ownGroup(t.name, name, kernel.Classic)); kernel.CodeOf(err) == kernel.CodeLimit {
		return nil // like the limit of provisional queues
	} else if err != nil {
		return err
	}
	t.expireLater(kt.ID, kt.ExpiresAt)
	return nil
}

// expireLater deletes a provisional topic when its time has come, unless it was
// declared or consumed until then.
func (t *tenant) expireLater(id kernel.TopicID, at time.Time) {
	t.b.after(at.Sub(t.b.now()), func() {
		topic, ok := t.table.Load().TopicByID(id)
		if !ok {
			return
		}
		defer t.lockTopicFor(false, topic.Name)()
		topic, ok = t.table.Load().TopicByID(id)
		if !ok || topic.ExpiresAt.IsZero() {
			return
		}
		ctx, cancel := t.b.changeContext()
		defer cancel()
		if err := t.dropTopic(ctx, topic.Topic); err != nil && t.b.ctx.Err() == nil {
			t.b.log.Error().Err(err).Str("queue", topic.Name).Msg("an expired queue could not be deleted")
		}
	})
}

// logRoute remembers the last topic that batches were appended to.
type logRoute struct {
	table *route.Table
	dir   *auth.Directory
	topic *kernel.Topic
	err   error // it may not be written to
	route *route.Topic
	live  []*route.Live
}

// ToPartition appends one ready RecordBatch v2, checked by the caller with
// record.Validate, to a partition. The batch is copied. CodeNotFound when the
// topic or the partition is not there, CodeAccessRefused when the user may not
// write to the topic.
func (p *Publisher) ToPartition(kt *kernel.Topic, partition int32, batch []byte, token uint64) error {
	c := p.conn
	c.b.gathered(c.stop)
	table, dir := c.tenant.table.Load(), c.b.directory()
	if p.log.table != table || p.log.topic != kt || p.log.dir != dir {
		p.log = logRoute{table: table, dir: dir, topic: kt, err: c.allow(kernel.Write, KindTopic, kt.Name)}
		if rt, ok := table.TopicByID(kt.ID); ok && rt.Visible() && !rt.Volatile && rt.Kind == kernel.Plain {
			p.log.route, p.log.live = rt, table.Log(rt.Name)
		}
	}
	if p.log.err != nil {
		return p.log.err
	}
	rt := p.log.route
	if rt == nil || partition < 0 || int(partition) >= len(rt.Parts) {
		return kernel.Errorf(kernel.CodeNotFound, "topic", kt.Name, "there is no partition %d of it", partition)
	}
	group := c.b.placeOf(rt.Volatile)
	if err := group.Wait(c.stop); err != nil {
		return err
	}
	if err := group.AppendBatch(placement.PartitionID(rt.Parts[partition]), batch, p.sink, token); err != nil {
		return err
	}
	p.sent++
	c.counters.Received(BatchPayload(batch))
	if len(p.log.live) > 0 {
		c.feedBatch(p.log.live, rt.Name, batch)
	}
	return nil
}

// Close ends the publisher: after it returns no Completed call comes. Publishes
// under way still happen.
func (p *Publisher) Close() { p.sink.close() }
