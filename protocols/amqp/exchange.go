package amqp

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// exchangeTypes are the types that work; the kernel calls them the same.
var exchangeTypes = map[string]kernel.ExchangeType{
	"direct": kernel.Direct, "fanout": kernel.Fanout, "topic": kernel.Topics, "headers": kernel.Headers,
	"x-consistent-hash": kernel.ConsistentHash, "x-modulus-hash": kernel.ModulusHash,
	"x-random": kernel.Random, "x-local-random": kernel.LocalRandom,
}

// plannedTypes are known and do not work.
var plannedTypes = map[string]bool{"x-delayed-message": true, "x-recent-history": true}

// cleaned removes line ends from a name that is being declared, as RabbitMQ
// does.
func cleaned(name string) string {
	if !strings.ContainsAny(name, "\r\n") {
		return name
	}
	return strings.NewReplacer("\r", "", "\n", "").Replace(name)
}

// notDefault refuses what cannot be done to the default exchange.
func notDefault(exchange string) error {
	if exchange == kernel.ExchangeDefault {
		return faultf(wire.AccessRefused, "operation not permitted on the default exchange")
	}
	return nil
}

func (ch *channel) onExchangeDeclare(m *wire.ExchangeDeclare) error {
	name := cleaned(m.Exchange)
	if err := notDefault(name); err != nil {
		return err
	}
	if m.Passive {
		if _, err := ch.c.link.Exchange(name); err != nil {
			return ch.c.refused(err)
		}
		ch.answer(m.NoWait, &wire.ExchangeDeclareOk{})
		return nil
	}
	kind, ok := exchangeTypes[m.Type]
	if !ok && plannedTypes[m.Type] {
		return faultf(wire.PreconditionFailed, "exchange type '%s' is not supported yet", m.Type)
	}
	if !ok {
		return faultf(wire.PreconditionFailed, "unknown exchange type '%s'", m.Type)
	}
	err := ch.c.link.DeclareExchange(ch.c.ctx, kernel.Exchange{
		Name: name, Type: kind, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal,
		Arguments: arguments(m.Arguments),
	})
	if err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.ExchangeDeclareOk{})
	return nil
}

func (ch *channel) onExchangeDelete(m *wire.ExchangeDelete) error {
	name := cleaned(m.Exchange)
	if err := notDefault(name); err != nil {
		return err
	}
	if strings.HasPrefix(name, "amq.") {
		return faultf(wire.AccessRefused, "deletion of system exchange '%s' in vhost '%s' not allowed", name, ch.c.vhost)
	}
	if err := ch.c.link.DeleteExchange(ch.c.ctx, name, m.IfUnused); err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.ExchangeDeleteOk{})
	return nil
}

// exchangeBinding is a binding between two exchanges.
func exchangeBinding(source, destination, key string, args wire.Table) (kernel.Binding, error) {
	b := kernel.Binding{Exchange: cleaned(source), Queue: cleaned(destination), Key: key, Arguments: arguments(args), ToExchange: true}
	if err := notDefault(b.Queue); err != nil {
		return b, err
	}
	return b, notDefault(b.Exchange)
}

func (ch *channel) onExchangeBind(m *wire.ExchangeBind) error {
	b, err := exchangeBinding(m.Source, m.Destination, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if err := ch.c.link.Bind(ch.c.ctx, b); err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.ExchangeBindOk{})
	return nil
}

func (ch *channel) onExchangeUnbind(m *wire.ExchangeUnbind) error {
	b, err := exchangeBinding(m.Source, m.Destination, m.RoutingKey, m.Arguments)
	if err != nil {
		return err
	}
	if err := ch.c.link.Unbind(ch.c.ctx, b); err != nil {
		return ch.c.refused(err)
	}
	ch.answer(m.NoWait, &wire.ExchangeUnbindOk{})
	return nil
}
