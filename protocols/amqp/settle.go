package amqp

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

func (ch *channel) onAck(m *wire.BasicAck) error {
	return ch.settle(m.DeliveryTag, m.Multiple, kernel.Accept)
}

func (ch *channel) onNack(m *wire.BasicNack) error {
	return ch.settle(m.DeliveryTag, m.Multiple, giveBack(m.Requeue))
}

func (ch *channel) onReject(m *wire.BasicReject) error {
	return ch.settle(m.DeliveryTag, false, giveBack(m.Requeue))
}

func giveBack(requeue bool) kernel.Outcome {
	if requeue {
		return kernel.Release
	}
	return kernel.Refuse
}

// settle settles one delivery, or with multiple all up to it.
func (ch *channel) settle(tag uint64, multiple bool, how kernel.Outcome) error {
	if !multiple {
		o := ch.c.out
		o.mu.Lock()
		e, ok := ch.unacked.remove(tag)
		if ok {
			e.consumer.held--
		}
		o.mu.Unlock()
		if !ok {
			return faultf(wire.PreconditionFailed, "unknown delivery tag %d", tag)
		}
		ch.c.gather(&e, how)
		return nil
	}
	if !ch.settleTo(tag, how) {
		return faultf(wire.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	return nil
}

// settleTo settles everything up to a tag, with 0 everything.
func (ch *channel) settleTo(tag uint64, how kernel.Outcome) bool {
	c := ch.c
	c.out.mu.Lock()
	entries, ok := ch.unacked.removeTo(tag, c.entries[:0])
	for i := range entries {
		entries[i].consumer.held--
	}
	c.out.mu.Unlock()
	for i := range entries {
		c.gather(&entries[i], how)
	}
	clear(entries)
	c.entries = entries[:0]
	if cap(entries) > keepBuffer/32 {
		c.entries = nil
	}
	return ok
}

// gather adds a settle to what is waiting to be handed on: runs of offsets
// become one call.
func (c *conn) gather(e *unackedEntry, how kernel.Outcome) {
	k := e.consumer
	if k.pooled {
		k.freed++
	}
	if !k.listed {
		k.listed = true
		c.settling = append(c.settling, k)
	}
	if k.waiting && k.gathered == how && k.part == e.partition && k.last+1 == e.offset {
		k.last++
		return
	}
	k.handOn()
	k.waiting, k.gathered, k.part, k.first, k.last = true, how, e.partition, e.offset, e.offset
}

func (k *consumer) handOn() {
	if k.waiting {
		k.waiting = false
		k.m.Settle(k.gathered, k.part, k.first, k.last)
	}
}

// flushSettles hands on what has gathered, grants the credit that it frees and
// ends cancelled consumers that hold nothing any more.
func (c *conn) flushSettles() {
	if len(c.settling) == 0 {
		return
	}
	for i, k := range c.settling {
		k.listed = false
		k.handOn()
		if k.freed > 0 {
			k.ch.pool.Put(k.freed)
			k.freed = 0
		}
		o := c.out
		o.mu.Lock()
		n := k.grant()
		leave := k.idle()
		o.mu.Unlock()
		if n > 0 {
			k.m.Credit(n)
		}
		if leave {
			k.m.Leave()
		}
		c.settling[i] = nil
	}
	c.settling = c.settling[:0]
}

func (ch *channel) onRecover(requeue, answer bool) error {
	if !requeue {
		return faultf(wire.NotImplemented, "requeue=false")
	}
	ch.settleTo(0, kernel.Release)
	ch.c.flushSettles()
	if answer {
		ch.send(&wire.BasicRecoverOk{})
	}
	return nil
}
