package amqp

import (
	"crypto/rand"
	"encoding/base64"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

const (
	maxConsumers = 4096    // per channel
	maxUnacked   = 1 << 20 // deliveries of a consumer without prefetch that wait for their ack

	creditBytes  = 1 << 20  // what may be under way to the buffers of one connection
	maxCredit    = 512      // and of one consumer, in messages
	assumedBytes = 64 << 10 // size of messages before any was seen
)

// consumer is one member of a share group: a basic.consume, or what basic.get
// pulls through. It implements kernel.Consumer.
type consumer struct {
	ch    *channel
	tag   string
	topic string // name of the topic it reads
	noAck bool
	m     member

	// the reader's: settles gathered and not handed on
	gathered kernel.Outcome
	part     int32
	first    int64
	last     int64
	waiting  bool // first..last is set
	listed   bool // in conn.settling
	pooled   bool // under the channel's pool
	freed    int  // units to put back there

	// guarded by out.mu
	prefetch int  // 0 = no limit
	credit   int  // granted and not delivered
	held     int  // delivered and not settled
	reserved int  // bytes booked for the next Deliver, or answer of a basic.get
	refused  int  // bytes that a basic.get could not book
	pull     bool // what basic.get takes from
	average  int  // bytes of a delivery in the buffer
	hungry   bool // listed in conn.hungry
	started  bool // counted in conn.consuming until stopped
	stopped  bool // nothing more is delivered
	over     bool // leaves as soon as nothing is held
	left     bool // has left
	ended    bool // the kernel has ended the membership
}

// stop marks the consumer as over. The caller holds out.mu.
func (k *consumer) stop() {
	if k.started && !k.stopped {
		k.ch.c.consuming--
	}
	k.stopped = true
}

// finish marks the consumer as one to leave, and reports whether the caller has
// to make it leave now. The caller holds out.mu.
func (k *consumer) finish() bool {
	k.over = true
	return k.idle()
}

// idle reports whether the caller has to make k leave, once. The caller holds
// out.mu.
func (k *consumer) idle() bool {
	leave := k.over && !k.left && k.held == 0
	k.left = k.left || leave
	return leave
}

// want is how much credit to grant now: never more than the prefetch leaves
// room for, and so much at a time that what may arrive at once fits the
// connection's share of buffers. The caller holds out.mu.
func (k *consumer) want() int {
	if k.stopped {
		return 0
	}
	chunk := k.chunk()
	if k.credit > chunk/2 {
		return 0
	}
	room := chunk - k.credit
	switch {
	case k.noAck:
	case k.prefetch > 0:
		room = min(room, k.prefetch-k.held-k.credit)
	default:
		room = min(room, maxUnacked-k.held-k.credit)
	}
	return max(room, 0)
}

// chunk is the most credit that the consumer is given. The caller holds out.mu.
func (k *consumer) chunk() int {
	c := k.ch.c
	bytes := creditBytes
	if c.out.total.Over() {
		bytes = tightBuffer
	}
	return min(max(bytes/(k.average*max(c.consuming, 1)), 1), maxCredit)
}

// excess is how much of the credit to take back: messages are much larger than
// they were, or memory is short and the client does not read. The caller holds
// out.mu.
func (k *consumer) excess() int {
	o := k.ch.c.out
	if o.total.Over() && o.full() {
		return max(k.credit, 0)
	}
	if chunk := k.chunk(); k.credit > 2*chunk {
		return k.credit - chunk
	}
	return 0
}

// grant counts credit that the caller will give, or lists the consumer to get
// it when the buffer has drained. The caller holds out.mu.
func (k *consumer) grant() int {
	n := k.want()
	if n == 0 {
		return 0
	}
	c := k.ch.c
	if c.out.full() || k.shutOut() {
		k.starve()
		return 0
	}
	k.credit += n
	return n
}

// shutOut reports that messages as large as the consumer's have to wait until
// less waits for all clients together; the writer looks for that from time to
// time. A client that has shown that it reads gets them one by one meanwhile; a
// consumer that has had no message yet is not held up, as Admit sees their size.
// The caller holds out.mu.
func (k *consumer) shutOut() bool {
	o := k.ch.c.out
	if k.average <= assumedBytes || o.total.Open(o.overdraft(k.average)) {
		return false
	}
	o.look()
	return true
}

// Admit implements kernel.Admitter: what is large is booked before it is encoded,
// and if too much waits for all clients it stays in the queue.
func (k *consumer) Admit(records, bytes int) bool {
	o := k.ch.c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if k.pull {
		return k.admitGet(bytes)
	}
	if k.stopped || o.closing || o.ended { // Deliver drops it
		return true
	}
	if o.reserve(bytes) {
		k.reserved = bytes
		return true
	}
	k.average = max(k.average, bytes/records, assumedBytes+1)
	n := max(k.credit, records)
	k.credit -= n
	k.m.Credit(-n)
	k.starve()
	o.look()
	return false
}

// starve lists the consumer for the writer to feed. The caller holds out.mu.
func (k *consumer) starve() {
	if !k.hungry {
		k.hungry = true
		k.ch.c.hungry = append(k.ch.c.hungry, k)
	}
}

// feed grants credit to those who wait for it. The writer calls it after each
// write with out.mu held; feed releases it.
func (c *conn) feed() {
	o := c.out
	hungry := c.hungry
	c.hungry = c.feeding[:0]
	c.feeding = nil // in use until the end
	o.shut = false
	for i, k := range hungry {
		k.hungry = false
		n := k.grant()
		if n == 0 {
			continue
		}
		m := k.m
		o.mu.Unlock()
		m.Credit(n)
		o.mu.Lock()
		hungry[i] = nil
	}
	clear(hungry)
	c.feeding = hungry[:0]
	o.poll = o.shut
	o.mu.Unlock()
}

// Deliver implements kernel.Consumer: it encodes into the connection's buffer.
func (k *consumer) Deliver(batch []kernel.Delivery) {
	c := k.ch.c
	o := c.out
	o.mu.Lock()
	before := len(o.buf)
	k.credit -= len(batch)
	o.reserved -= k.reserved // the bytes come now
	k.reserved = 0
	if !k.stopped && !o.closing && !o.ended {
		for i := range batch {
			o.makeRoom(&batch[i], c.frameMax)
			o.buf = c.enc.appendDelivery(o.buf, k, k.number(&batch[i]), &batch[i])
		}
		k.measure((len(o.buf) - before) / len(batch))
		if n := k.excess(); n > 0 {
			k.credit -= n
			k.m.Credit(-n)
		}
		if k.want() > 0 {
			k.starve()
		}
	}
	o.done(before)
}

// number gives a delivery its tag. The caller holds out.mu.
func (k *consumer) number(d *kernel.Delivery) uint64 {
	ch := k.ch
	ch.lastTag++
	if !k.noAck {
		k.held++
		ch.unacked.push(unackedEntry{tag: ch.lastTag, consumer: k, partition: d.Partition, offset: d.Offset})
	}
	return ch.lastTag
}

// measure follows the size of messages: up at once, down slowly.
func (k *consumer) measure(bytes int) {
	k.average = max(bytes, k.average-k.average/4, 1)
}

// Ended implements kernel.Consumer: the queue has gone. The client is told if
// it can understand.
func (k *consumer) Ended(error) {
	c := k.ch.c
	o := c.out
	o.mu.Lock()
	before := len(o.buf)
	k.ended = true
	if k.started && !k.stopped {
		k.stop()
		delete(k.ch.consumers, k.tag)
		if c.cancelNote && !o.closing && !o.ended {
			o.buf = wire.AppendMethod(o.buf, k.ch.id, &wire.BasicCancel{ConsumerTag: k.tag, NoWait: true})
		}
	}
	o.done(before)
}

func (ch *channel) onQos(m *wire.BasicQos) error {
	if m.PrefetchSize != 0 {
		return faultf(wire.NotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	if m.Global {
		ch.share(int(m.PrefetchCount))
	} else {
		ch.prefetch = int(m.PrefetchCount)
	}
	ch.send(&wire.BasicQosOk{})
	return nil
}

// share bounds what the consumers of the channel hold together, those that are
// there included; 0 lifts the bound.
func (ch *channel) share(limit int) {
	if ch.pool != nil {
		ch.pool.SetLimit(limit)
		return
	}
	if limit == 0 {
		return
	}
	ch.pool = ch.c.link.NewPool(limit)
	o := ch.c.out
	o.mu.Lock()
	var all []*consumer
	for _, k := range ch.consumers {
		if !k.noAck {
			all = append(all, k)
		}
	}
	o.mu.Unlock()
	for _, k := range all {
		k.m.Pool(ch.pool, func() int {
			o.mu.Lock()
			defer o.mu.Unlock()
			k.pooled = true // this goroutine waits meanwhile
			return k.held
		})
	}
}

// consumeArguments refuses what does not work.
func consumeArguments(args wire.Table) error {
	for _, a := range args {
		if a.Name == "x-cancel-on-ha-failover" { // nothing it could mean here
			continue
		}
		return faultf(wire.PreconditionFailed, "consumer argument '%s' is not supported yet", a.Name)
	}
	return nil
}

func (ch *channel) onConsume(m *wire.BasicConsume) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if name == replyToQueue {
		return ch.onConsumeReplies(m)
	}
	if err := ch.notReply(name); err != nil {
		return err
	}
	if err := consumeArguments(m.Arguments); err != nil {
		return err
	}
	tag := m.ConsumerTag
	if tag == "" {
		tag = newTag()
	}
	if err := ch.checkTag(tag); err != nil {
		return err
	}
	k := &consumer{ch: ch, tag: tag, noAck: m.NoAck, prefetch: ch.prefetch, average: assumedBytes}
	opt := kernel.MemberOptions{AutoSettle: m.NoAck, Exclusive: m.Exclusive, Tag: tag, Channel: int(ch.id), Prefetch: ch.prefetch}
	var under pool
	if !m.NoAck {
		under, k.pooled = ch.pool, ch.pool != nil
	}
	if err := ch.join(k, name, opt, under); err != nil {
		return err
	}
	if err := ch.streamConsume(m, k, name); err != nil {
		k.m.Leave()
		return err
	}
	ch.answer(m.NoWait, &wire.BasicConsumeOk{ConsumerTag: tag}) // before any delivery: there is no credit yet
	ch.start(k)
	return nil
}

// streamConsume refuses the ways to consume that a stream does not have in
// RabbitMQ.
func (ch *channel) streamConsume(m *wire.BasicConsume, k *consumer, name string) error {
	switch {
	case k.m.Type() != kernel.Stream:
	case m.NoAck:
		return ch.notOnStream("automatic acknowledgement", name)
	case k.prefetch == 0:
		return faultf(wire.PreconditionFailed, "consumer prefetch count is not set for 'queue '%s' in vhost '%s''", name, ch.c.vhost)
	}
	return nil
}

func (ch *channel) notOnStream(what, name string) error {
	return faultf(wire.NotImplemented, "%s not supported by stream queues queue '%s' in vhost '%s'", what, name, ch.c.vhost)
}

// join makes k a member of a queue's group.
func (ch *channel) join(k *consumer, queue string, opt kernel.MemberOptions, under pool) error {
	addr, err := ch.c.link.Address(queue)
	if err != nil {
		return ch.c.refused(err)
	}
	opt.Create = creates(queue)
	k.topic = addr.Topic
	k.m, err = ch.c.link.Join(ch.c.ctx, addr, opt, under, k)
	if err != nil {
		return ch.c.refused(err)
	}
	return nil
}

// creates reports whether the name is an address that makes its group.
func creates(queue string) bool {
	if !kernel.IsShare(queue) {
		return false
	}
	_, create, err := kernel.ParseShare("", queue)
	return err == nil && create
}

// start lists the consumer and gives it its first credit.
func (ch *channel) start(k *consumer) {
	o := ch.c.out
	o.mu.Lock()
	if k.ended { // already
		before := len(o.buf)
		if ch.c.cancelNote {
			o.buf = wire.AppendMethod(o.buf, ch.id, &wire.BasicCancel{ConsumerTag: k.tag, NoWait: true})
		}
		o.done(before)
		return
	}
	k.started = true
	ch.c.consuming++
	ch.consumers[k.tag] = k
	n := k.grant()
	o.mu.Unlock()
	if n > 0 {
		k.m.Credit(n)
	}
}

// checkTag refuses a tag in use and too many consumers.
func (ch *channel) checkTag(tag string) error {
	ch.c.out.mu.Lock()
	defer ch.c.out.mu.Unlock()
	if _, used := ch.consumers[tag]; used {
		return faultf(wire.NotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	if len(ch.consumers) >= maxConsumers {
		return faultf(wire.NotAllowed, "reached maximum (%d) of consumers per channel", maxConsumers)
	}
	return nil
}

// newTag makes a consumer tag that nobody else has.
func newTag() string {
	var b [16]byte
	rand.Read(b[:])
	return "amq.ctag-" + base64.RawURLEncoding.EncodeToString(b[:])
}

func (ch *channel) onCancel(m *wire.BasicCancel) error {
	o := ch.c.out
	o.mu.Lock()
	k := ch.consumers[m.ConsumerTag]
	delete(ch.consumers, m.ConsumerTag)
	o.mu.Unlock()
	if k != nil {
		if k == ch.reply {
			ch.reply = nil
		}
		k.m.Stop() // what it delivers until this returns goes out before cancel-ok
		o.mu.Lock()
		k.stop()
		leave := k.finish()
		o.mu.Unlock()
		if leave {
			k.m.Leave()
		}
	}
	ch.answer(m.NoWait, &wire.BasicCancelOk{ConsumerTag: m.ConsumerTag})
	return nil
}
