package amqp

import (
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
	ch.c.out.waitRoom() // answers may be large, and requests for them are small
	ch.c.out.total.Take(0, pauseTime, ch.c.ctx.Done())
	k, err := ch.puller(pullKey{queue: name, noAck: m.NoAck})
	if err != nil {
		return err
	}
	if k.m.Type() == kernel.Stream {
		ch.dropPuller(pullKey{queue: name, noAck: m.NoAck})
		return ch.notOnStream("basic.get", name)
	}
	found := false
	err = k.m.Acquire(1, func(batch []kernel.Delivery, ready int64) {
		found = k.got(batch, ready)
	})
	if err != nil {
		ch.dropPuller(pullKey{queue: name, noAck: m.NoAck})
		return ch.c.refused(err)
	}
	if !found {
		ch.send(&wire.BasicGetEmpty{})
	}
	return nil
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
	k := &consumer{ch: ch, noAck: key.noAck, stopped: true}
	if err := ch.join(k, key.queue, kernel.MemberOptions{AutoSettle: key.noAck, Pull: true}); err != nil {
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
