package amqp

import (
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// channel is one open channel. Fields belong to the reader goroutine but for
// those guarded by conn.out.mu.
type channel struct {
	c  *conn
	id uint16

	closing   bool // channel.close has been sent: all but its answer is discarded
	content   content
	pub       publisher
	confirms  *confirms // nil unless in confirm mode
	prefetch  int       // of consumers to come, 0 = unlimited
	pool      pool      // what its consumers hold together, nil = unlimited
	lastQueue string    // the last one declared, what "" means
	pullers   map[pullKey]*consumer
	reply     *consumer // of answers, nil = none; see replies

	confirming atomic.Bool           // confirms is set, for listings
	declined   atomic.Pointer[error] // a publish, after all: see decline

	// reused by the handlers of frequent methods
	ack    wire.BasicAck
	nack   wire.BasicNack
	reject wire.BasicReject

	// guarded by out.mu
	consumers map[string]*consumer
	lastTag   uint64
	unacked   unacked
}

// openChannel opens a channel.
func (c *conn) openChannel(fr wire.Frame) error {
	refuse := func(format string, args ...any) error {
		return &fault{code: wire.NotAllowed, text: sprintf(format, args...), id: wire.IDChannelOpen}
	}
	if int(fr.Channel) > c.channelMax {
		return refuse("channel number %d is above the negotiated channel_max (%d)", fr.Channel, c.channelMax)
	}
	if _, err := wire.ReadMethod(fr.Payload); err != nil {
		return asFault(err)
	}
	ch := &channel{c: c, id: fr.Channel, consumers: make(map[string]*consumer)}
	ch.content.ch = ch
	ch.pub = c.link.Publisher(edge.Unheard(ch.decline))
	c.addChannel(ch)
	ch.send(&wire.ChannelOpenOk{})
	return nil
}

func (ch *channel) send(m wire.Method) { ch.c.out.send(ch.id, m) }

// answer sends m unless the client said it does not want to hear.
func (ch *channel) answer(noWait bool, m wire.Method) {
	if !noWait {
		ch.send(m)
	}
}

// fail closes the channel with an error.
func (ch *channel) fail(f *fault) {
	ch.c.log.Info().Str("error", f.Error()).Uint16("channel", ch.id).Stringer("peer", ch.c.nc.RemoteAddr()).
		Str("user", ch.c.user).Msg("AMQP channel closed with an error")
	ch.c.flush() // settles and confirms that came first count
	_ = ch.pub.Settle(ch.c.ctx)
	ch.release()
	ch.closing = true
	ch.send(&wire.ChannelClose{
		ReplyCode: uint16(f.code), ReplyText: f.Error(), ClassID: f.id.Class(), MethodID: f.id.Method(),
	})
}

// release gives back what the channel's consumers hold and ends them and its
// publisher. Idempotent.
func (ch *channel) release() {
	o := ch.c.out
	o.mu.Lock()
	var members []member
	for tag, k := range ch.consumers {
		k.stop()
		members = append(members, k.m)
		delete(ch.consumers, tag)
	}
	for _, k := range ch.pullers {
		members = append(members, k.m)
	}
	// Consumers that were cancelled, but whose deliveries are not all settled.
	for e := range ch.unacked.all() {
		if k := e.consumer; k.over && !k.left {
			k.left = true
			members = append(members, k.m)
		}
	}
	ch.unacked.reset()
	ch.pullers = nil
	o.mu.Unlock()
	for _, m := range members {
		m.Leave()
	}
	if ch.confirms != nil {
		ch.confirms.close()
	}
	ch.pub.Close()
	ch.content.drop()
}

// frame handles one frame on the channel.
func (ch *channel) frame(fr wire.Frame) error {
	if ch.closing {
		return ch.discard(fr)
	}
	switch {
	case fr.Type == wire.FrameMethod && ch.content.state == contentNone:
		return ch.method(fr.Payload)
	case fr.Type == wire.FrameHeader && ch.content.state == contentHeader:
		return ch.content.headerFrame(fr.Payload)
	case fr.Type == wire.FrameBody && ch.content.state == contentBody:
		return ch.content.bodyFrame(fr.Payload)
	}
	return ch.content.unexpected(fr)
}

// discard is all that happens on a channel after the server closed it.
func (ch *channel) discard(fr wire.Frame) error {
	id, err := wire.MethodID(fr.Payload)
	if fr.Type != wire.FrameMethod || err != nil {
		return nil
	}
	switch id {
	case wire.IDChannelClose:
		ch.send(&wire.ChannelCloseOk{})
		ch.c.dropChannel(ch.id)
	case wire.IDChannelCloseOk:
		ch.c.dropChannel(ch.id)
	}
	return nil
}

// method handles one method. The frequent ones are decoded without copying and
// only gather; before any other, what has gathered is handed on and what was
// published is waited for, so that it sees their effects.
func (ch *channel) method(payload []byte) error {
	id, err := wire.MethodID(payload)
	if err != nil {
		return err
	}
	switch id {
	case wire.IDBasicPublish:
		return ch.content.begin(payload)
	case wire.IDBasicAck:
		if err := ch.c.decoder.Decode(&ch.ack, payload); err != nil {
			return err
		}
		return ch.onAck(&ch.ack)
	case wire.IDBasicNack:
		if err := ch.c.decoder.Decode(&ch.nack, payload); err != nil {
			return err
		}
		return ch.onNack(&ch.nack)
	case wire.IDBasicReject:
		if err := ch.c.decoder.Decode(&ch.reject, payload); err != nil {
			return err
		}
		return ch.onReject(&ch.reject)
	}
	m, err := wire.ReadMethod(payload)
	if err != nil {
		return err
	}
	ch.c.flush()
	if err := ch.inOrder(); err != nil {
		return err
	}
	if ch.declined.Load() != nil {
		if err := ch.failDeclined(); err != nil {
			return err
		}
		if ch.closing {
			return ch.discard(wire.Frame{Type: wire.FrameMethod, Channel: ch.id, Payload: payload})
		}
	}
	return ch.dispatch(m)
}

// inOrder waits until what the channel has published is stored, so that the
// method to come finds it: the kernel stores while it does other things.
func (ch *channel) inOrder() error {
	if err := ch.pub.Settle(ch.c.ctx); err != nil {
		return ch.c.refused(err)
	}
	return nil
}

// dispatch calls the handler of a method.
func (ch *channel) dispatch(m wire.Method) error {
	switch m := m.(type) {
	case *wire.ChannelOpen:
		return faultf(wire.ChannelErrorCode, "second 'channel.open' seen")
	case *wire.ChannelClose:
		return ch.onClose()
	case *wire.ChannelFlow:
		return ch.onFlow(m)
	case *wire.ChannelFlowOk, *wire.ChannelCloseOk, *wire.BasicCancelOk:
		return nil // answers to what may have crossed
	case *wire.AccessRequest:
		ch.send(&wire.AccessRequestOk{Ticket: 1}) // only old clients ask
		return nil
	case *wire.ConfirmSelect:
		return ch.onConfirmSelect(m)
	case *wire.TxSelect, *wire.TxCommit, *wire.TxRollback:
		return faultf(wire.NotImplemented, "transactions are not supported yet")
	case *wire.ExchangeDeclare:
		return ch.onExchangeDeclare(m)
	case *wire.ExchangeDelete:
		return ch.onExchangeDelete(m)
	case *wire.ExchangeBind:
		return ch.onExchangeBind(m)
	case *wire.ExchangeUnbind:
		return ch.onExchangeUnbind(m)
	case *wire.QueueDeclare:
		return ch.onQueueDeclare(m)
	case *wire.QueueBind:
		return ch.onQueueBind(m)
	case *wire.QueueUnbind:
		return ch.onQueueUnbind(m)
	case *wire.QueuePurge:
		return ch.onQueuePurge(m)
	case *wire.QueueDelete:
		return ch.onQueueDelete(m)
	case *wire.BasicQos:
		return ch.onQos(m)
	case *wire.BasicConsume:
		return ch.onConsume(m)
	case *wire.BasicCancel:
		return ch.onCancel(m)
	case *wire.BasicGet:
		return ch.onGet(m)
	case *wire.BasicRecover:
		return ch.onRecover(m.Requeue, true)
	case *wire.BasicRecoverAsync:
		return ch.onRecover(m.Requeue, false)
	}
	return faultf(wire.CommandInvalid, "unexpected method %v", m.ID())
}

func (ch *channel) onClose() error {
	ch.release()
	ch.c.dropChannel(ch.id)
	ch.send(&wire.ChannelCloseOk{})
	return nil
}

func (ch *channel) onFlow(m *wire.ChannelFlow) error {
	if !m.Active {
		return faultf(wire.NotImplemented, "active=false")
	}
	ch.send(&wire.ChannelFlowOk{Active: true})
	return nil
}
