package amqp

import (
	"math/rand/v2"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// pullKey names a membership through which basic.get takes messages.
type pullKey struct {
	queue string
	noAck bool
}

// maxPullers is how many memberships a channel keeps for basic.get.
const maxPullers = 32

func (ch *channel) onGet(m *wire.BasicGet) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.notReply(name); err != nil {
		return err
	}
	ch.c.out.waitRoom() // answers may be large, and requests for them are small
	k, err := ch.puller(pullKey{queue: name, noAck: m.NoAck})
	if err != nil {
		return err
	}
	if k.m.Type() == kernel.Stream {
		ch.dropPuller(pullKey{queue: name, noAck: m.NoAck})
		return ch.notOnStream("basic.get", name)
	}
	for {
		found := false
		err = k.m.Acquire(1, func(batch []kernel.Delivery, ready int64) {
			found = k.got(batch, ready)
		})
		if err != nil {
			k.giveBack()
			ch.dropPuller(pullKey{queue: name, noAck: m.NoAck})
			return ch.c.refused(err)
		}
		switch more := k.giveBack(); {
		case found:
		case more == 0:
			ch.send(&wire.BasicGetEmpty{})
		case k.await(more):
			continue
		}
		return nil
	}
}

// admitGet books a large answer before it is taken. The caller holds out.mu.
func (k *consumer) admitGet(bytes int) bool {
	o := k.ch.c.out
	if bytes <= k.reserved || o.closing || o.ended {
		return true
	}
	if o.reserve(bytes - k.reserved) {
		k.reserved = bytes
		return true
	}
	k.refused = bytes
	return false
}

// giveBack returns what is booked and was not used, and says how many bytes an
// answer could not book, 0 if there was none.
func (k *consumer) giveBack() (refused int) {
	o := k.ch.c.out
	o.mu.Lock()
	o.reserved -= k.reserved
	refused, k.reserved, k.refused = k.refused, 0, 0
	o.account()
	o.mu.Unlock()
	return refused
}

// await books bytes for the answer as soon as not too much waits for all clients
// together. It returns false if the connection ends before.
func (k *consumer) await(bytes int) bool {
	o := k.ch.c.out
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.ch.c.ctx.Done():
			return false
		case <-timer.C:
		}
		o.mu.Lock()
		if o.reserve(bytes) {
			k.reserved = bytes
			o.mu.Unlock()
			return true
		}
		o.mu.Unlock()
		timer.Reset(pollTime + rand.N(pollTime)) // not all at once
	}
}

// got encodes the message, if there is one. It runs on a kernel goroutine.
func (k *consumer) got(batch []kernel.Delivery, ready int64) bool {
	if len(batch) == 0 {
		return false
	}
	c := k.ch.c
	o := c.out
	o.mu.Lock()
	before := len(o.buf)
	o.reserved -= k.reserved // the bytes come now
	k.reserved = 0
	if !o.closing && !o.ended {
		o.makeRoom(&batch[0], c.frameMax)
		o.buf = c.enc.appendGetOk(o.buf, k, k.number(&batch[0]), &batch[0], ready)
	}
	o.done(before)
	return true
}

// puller returns the membership for gets from a queue, joining if needed.
func (ch *channel) puller(key pullKey) (*consumer, error) {
	if k := ch.pullers[key]; k != nil {
		ch.c.out.mu.Lock()
		ended := k.ended
		ch.c.out.mu.Unlock()
		if !ended {
			return k, nil
		}
		ch.dropPuller(key)
	}
	ch.trimPullers()
	k := &consumer{ch: ch, noAck: key.noAck, stopped: true, pull: true}
	if err := ch.join(k, key.queue, kernel.MemberOptions{AutoSettle: key.noAck, Pull: true}, nil); err != nil {
		return nil, err
	}
	if ch.pullers == nil {
		ch.pullers = make(map[pullKey]*consumer)
	}
	ch.pullers[key] = k
	return k, nil
}

// dropPuller forgets a membership; it ends when nothing is held through it.
func (ch *channel) dropPuller(key pullKey) {
	k := ch.pullers[key]
	delete(ch.pullers, key)
	ch.c.out.mu.Lock()
	leave := k.finish()
	ch.c.out.mu.Unlock()
	if leave {
		k.m.Leave()
	}
}

// trimPullers makes room for one more.
func (ch *channel) trimPullers() {
	if len(ch.pullers) < maxPullers {
		return
	}
	for key := range ch.pullers {
		ch.dropPuller(key)
		return
	}
}
