package amqp

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// Direct reply-to (https://www.rabbitmq.com/docs/direct-reply-to): who consumes from
// replyToQueue gets the answers to what he publishes on the same channel with that
// reply_to, which is replaced by a name that nobody can guess. Here that is the name of a
// queue in memory only, exclusive to the connection, with the channel's consumer as the
// only one: it is declared again at another node that serves, and goes with its consumer.
// Texts and order of the refusals are those of RabbitMQ (rabbit_channel.erl).

// replyToQueue is the name that stands for the channel's reply queue.
const replyToQueue = "amq.rabbitmq.reply-to"

// onConsumeReplies begins to consume answers. Flags and arguments other than no_ack mean
// nothing: there is nobody to exclude.
func (ch *channel) onConsumeReplies(m *wire.BasicConsume) error {
	tag := m.ConsumerTag
	if tag == "" {
		tag = newTag()
	}
	if err := ch.checkTag(tag); err != nil {
		return err
	}
	switch {
	case !m.NoAck:
		return faultf(wire.PreconditionFailed, "reply consumer cannot acknowledge")
	case ch.replies():
		return faultf(wire.PreconditionFailed, "reply consumer already set")
	}
	// Again: the name is a reserved one, and nobody else's.
	spec := broker.QueueSpec{Name: kernel.ReplyName(), Exclusive: true, AutoDelete: true, Again: true}
	if _, err := ch.c.link.DeclareQueue(ch.c.ctx, spec); err != nil {
		return ch.c.refused(err)
	}
	k := &consumer{ch: ch, tag: tag, noAck: true, average: assumedBytes}
	opt := kernel.MemberOptions{AutoSettle: true, Tag: tag, Channel: int(ch.id)}
	if err := ch.join(k, spec.Name, opt, nil); err != nil {
		_, _ = ch.c.link.DeleteQueue(ch.c.ctx, spec.Name, false, false)
		return err
	}
	ch.reply = k
	ch.answer(m.NoWait, &wire.BasicConsumeOk{ConsumerTag: tag}) // before any delivery, as in onConsume
	ch.start(k)
	return nil
}

// replies reports whether the channel has a consumer of answers.
func (ch *channel) replies() bool {
	if ch.reply == nil {
		return false
	}
	ch.c.out.mu.Lock()
	defer ch.c.out.mu.Unlock()
	return !ch.reply.stopped && !ch.reply.ended
}

// replyTo is what takes the place of a message's reply_to: nil if it stays, or names
// replyToQueue and there is no consumer, which is a fault that check finds.
func (ch *channel) replyTo(p *wire.Properties) []byte {
	if !p.Has(wire.HasReplyTo) || string(p.ReplyTo) != replyToQueue || !ch.replies() {
		return nil
	}
	return bytesOf(ch.reply.topic)
}

// onDeclareReplies answers a declaration of any kind as to whether a reply queue is
// there. Whose it is does not matter, and the number of messages says nothing: they are
// handed out as they come.
func (ch *channel) onDeclareReplies(m *wire.QueueDeclare, name string) error {
	switch {
	case name == replyToQueue: // it is for everybody
	case !kernel.IsReply(name):
		return ch.notReply(name)
	default:
		if _, err := ch.c.link.Queue(name); err != nil && kernel.CodeOf(err) != kernel.CodeLocked {
			return ch.c.refused(err)
		}
	}
	ch.declared(m.NoWait, name, broker.QueueInfo{Members: 1})
	return nil
}

// isReplies reports whether a name is one that onDeclareReplies answers for.
func isReplies(name string) bool { return strings.HasPrefix(name, replyToQueue) }

// notReply says that a reply queue is no queue to all other methods.
func (ch *channel) notReply(name string) error {
	if !isReplies(name) {
		return nil
	}
	return faultf(wire.NotFound, "no queue '%s' in vhost '%s'", name, ch.c.vhost)
}
