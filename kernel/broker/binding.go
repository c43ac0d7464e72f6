package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// Bind adds a binding; an equal one is no error. Missing ends are CodeNotFound,
// a key or arguments that mean nothing to the exchange CodeInvalid.
func (c *Conn) Bind(ctx context.Context, b kernel.Binding) error {
	t := c.tenant
	unlock, err := c.lockBinding(&b, false)
	if err != nil {
		return err
	}
	defer unlock()
	x, durable, err := c.bindingEnds(&b)
	if err != nil {
		return err
	}
	if err := route.CheckBinding(x.Type, &b); err != nil {
		return err
	}
	table := t.table.Load()
	if table.HasBinding(b) {
		return nil
	}
	if table.Bindings() >= c.b.limits.Bindings {
		return kernel.Errorf(kernel.CodeLimit, "exchange", b.Exchange, "the tenant has %d bindings already", c.b.limits.Bindings)
	}
	if durable {
		cctx, cancel := c.b.changeContext()
		defer cancel()
		if err := c.b.commit(cctx, catalog.PutBinding{Binding: catalog.Binding{Tenant: t.name, Binding: b}}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(func(tab *route.Table) *route.Table {
		tab, _ = tab.Bind(b)
		return tab
	})
	return nil
}

// Unbind removes a binding; an absent one, also because one of its ends is
// missing, is no error.
func (c *Conn) Unbind(ctx context.Context, b kernel.Binding) error {
	t := c.tenant
	unlock, err := c.lockBinding(&b, true)
	if err != nil {
		return err
	}
	defer unlock()
	after, ok := t.table.Load().Unbind(b)
	if !ok {
		return nil
	}
	_, durable, err := c.bindingEnds(&b)
	if err != nil {
		return err
	}
	gone, ops := t.unusedExchanges(after, []string{b.Exchange})
	if durable {
		ops = append(ops, catalog.DropBinding{Binding: catalog.Binding{Tenant: t.name, Binding: b}})
	}
	cctx, cancel := c.b.changeContext()
	defer cancel()
	if err := c.b.commit(cctx, ops...); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(func(tab *route.Table) *route.Table {
		tab, _ = tab.Unbind(b)
		return tab
	})
	t.removeExchanges(gone)
	return nil
}

// lockBinding begins a change of a binding: it checks that it may be made and
// locks the binding with its ends, which may not go meanwhile. If it is about to
// go, auto-delete exchanges may go with it.
func (c *Conn) lockBinding(b *kernel.Binding, goes bool) (unlock func(), _ error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	err := checkBinding(b)
	if err == nil {
		err = c.allowBinding(b)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	locked := c.tenant.lockAll(func(table *route.Table) []claim {
		claims := []claim{{exchangeKey(b.Exchange), false}, {topicLockKey(false, b.Queue), false}, {bindingKey(b), true}}
		if b.ToExchange {
			claims[1].key = exchangeKey(b.Queue)
		}
		if goes {
			claims = append(claims, sourceClaims(table, []kernel.Binding{*b})...)
		}
		return claims
	})
	return func() {
		locked()
		c.end()
	}, nil
}

func checkBinding(b *kernel.Binding) error {
	if b.Exchange == kernel.ExchangeDefault || (b.ToExchange && b.Queue == kernel.ExchangeDefault) {
		return errDefaultExchange()
	}
	if kernel.IsShare(b.Queue) && !b.ToExchange {
		return kernel.Errorf(kernel.CodeNotAllowed, "queue", b.Queue, "a share address is fed by its topic and cannot be bound")
	}
	if len(b.Key) > kernel.MaxName {
		return kernel.Errorf(kernel.CodeInvalid, "exchange", b.Exchange, "the routing key is longer than %d bytes", kernel.MaxName)
	}
	return nil
}

// bindingEnds finds what a binding joins, and whether that makes it durable:
// CodeNotFound, CodeLocked.
func (c *Conn) bindingEnds(b *kernel.Binding) (x kernel.Exchange, durable bool, err error) {
	table := c.tenant.table.Load()
	x, _, ok := table.Exchange(b.Exchange)
	if !ok {
		return x, false, c.tenant.noExchange(b.Exchange)
	}
	if b.ToExchange {
		to, _, ok := table.Exchange(b.Queue)
		if !ok {
			return x, false, c.tenant.noExchange(b.Queue)
		}
		return x, x.Durable && to.Durable, nil
	}
	topic, err := c.plainTopic(b.Queue)
	if err != nil {
		return x, false, err
	}
	return x, x.Durable && !topic.Volatile, nil
}

// Bindings lists the bindings of a tenant: those to exchanges, then those to
// queues, each by target, exchange and key.
func (b *Broker) Bindings(tenant string) []kernel.Binding {
	t, ok := b.tenant(tenant)
	if !ok {
		return nil
	}
	table := t.table.Load()
	list := make([]kernel.Binding, 0, table.Bindings())
	table.AllBindings(func(bd kernel.Binding) { list = append(list, bd) })
	return list
}

// BindingsTo lists the bindings to an exchange, by the one they come from.
func (b *Broker) BindingsTo(tenant, exchange string) []kernel.Binding {
	if t, ok := b.tenant(tenant); ok {
		return t.table.Load().BindingsTo(exchange)
	}
	return nil
}
