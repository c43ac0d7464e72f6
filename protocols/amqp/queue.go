package amqp

import (
	"math"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// queueName resolves "", which means the queue declared last on the channel.
func (ch *channel) queueName(name string) (string, error) {
	name = cleaned(name)
	if name != "" {
		return name, nil
	}
	if ch.lastQueue == "" {
		return "", faultf(wire.NotFound, "no previously declared queue")
	}
	return ch.lastQueue, nil
}

func (ch *channel) onQueueDeclare(m *wire.QueueDeclare) error {
	name := cleaned(m.Queue)
	if isReplies(name) {
		return ch.onDeclareReplies(m, name)
	}
	if m.Passive {
		info, err := ch.c.link.Queue(name)
		if err != nil {
			return ch.c.refused(err)
		}
		ch.declared(m.NoWait, name, info)
		return nil
	}
	spec := broker.QueueSpec{Name: name, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete}
	err := queueArguments(m.Arguments, &spec, ch.c.vhost)
	if err == nil {
		err = checkType(&spec, ch.c.vhost)
	}
	if err != nil { // who may not declare it, or has declared it otherwise, hears of that
		spec.Arguments = arguments(m.Arguments)
		if other := ch.c.link.SameQueue(spec); other != nil {
			return ch.c.refused(other)
		}
		return err
	}
	info, err := ch.c.link.DeclareQueue(ch.c.ctx, spec)
	if err != nil {
		return ch.c.refused(err)
	}
	ch.declared(m.NoWait, info.Name, info)
	return nil
}

// declared remembers the queue and answers.
func (ch *channel) declared(noWait bool, name string, info broker.QueueInfo) {
	ch.lastQueue = name
	ch.answer(noWait, &wire.QueueDeclareOk{
		Queue: name, MessageCount: count32(info.Ready), ConsumerCount: uint32(info.Members),
	})
}

// count32 fits a count into the 32 bits that the protocol has for it.
func count32(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func (ch *channel) binding(queue, exchange, key string, args wire.Table) (kernel.Binding, error) {
	shortcut := queue == "" && key == "" // the key, too, is then the queue's name
	name, err := ch.queueName(queue)
	if err != nil {
		return kernel.Binding{}, err
	}
	if err := notDefault(exchange); err != nil {
		return kernel.Binding{}, err
	}
	if shortcut {
		key = name
	}
	return kernel.Binding{Exchange: exchange, Queue: name, Key: key, Arguments: arguments(args)}, nil
}

func (ch *channel) onQueueBind(m *wire.QueueBind) error {
	b, err := ch.binding(m.Queue, cleaned(m.Exchange), m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if kernel.IsReply(b.Queue) {
		if _, err := ch.c.link.Exchange(b.Exchange); err != nil {
			return ch.c.refused(err)
		}
		return ch.notReply(b.Queue)
	}
	if err := ch.c.link.Bind(ch.c.ctx, b); err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.QueueBindOk{})
	return nil
}

func (ch *channel) onQueueUnbind(m *wire.QueueUnbind) error {
	b, err := ch.binding(m.Queue, cleaned(m.Exchange), m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if kernel.IsReply(b.Queue) { // it has no binding, which is no error
		ch.send(&wire.QueueUnbindOk{})
		return nil
	}
	if err := ch.c.link.Unbind(ch.c.ctx, b); err != nil {
		return ch.c.refused(err)
	}
	ch.send(&wire.QueueUnbindOk{})
	return nil
}

func (ch *channel) onQueuePurge(m *wire.QueuePurge) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if err := ch.notReply(name); err != nil {
		return err
	}
	if info, err := ch.c.link.Queue(name); err == nil && info.Type == kernel.Stream {
		return ch.notOnStream("queue.purge", name)
	}
	n, err := ch.c.link.PurgeQueue(ch.c.ctx, name)
	if err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.QueuePurgeOk{MessageCount: count32(n)})
	return nil
}

func (ch *channel) onQueueDelete(m *wire.QueueDelete) error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if kernel.IsReply(name) { // it goes with its consumer; a missing queue is no error
		ch.answer(m.NoWait, &wire.QueueDeleteOk{})
		return nil
	}
	n, err := ch.c.link.DeleteQueue(ch.c.ctx, name, m.IfUnused, m.IfEmpty)
	if err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.QueueDeleteOk{MessageCount: count32(n)})
	return nil
}
