package broker

import (
	"context"
	"strconv"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// DeclareExchange makes an exchange or checks that the existing one is
// equivalent (CodePrecondition if not).
func (c *Conn) DeclareExchange(ctx context.Context, x kernel.Exchange) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	t := c.tenant
	x.Tenant = t.name
	if x.Name == kernel.ExchangeDefault {
		return errDefaultExchange()
	}
	switch x.Type {
	case kernel.Direct, kernel.Fanout, kernel.Topics:
	default:
		return kernel.Errorf(kernel.CodeInvalid, "exchange", x.Name, "unknown exchange type '%s'", x.Type)
	}
	if err := c.allow(kernel.Configure, KindExchange, x.Name); err != nil {
		return err
	}
	if old, _, ok := t.table.Load().Exchange(x.Name); ok {
		return sameExchange(&old, &x)
	}
	if err := kernel.CheckNewName("exchange", x.Name); err != nil {
		return err
	}
	defer t.names.lock(claim{exchangeKey(x.Name), true})()
	if old, _, ok := t.table.Load().Exchange(x.Name); ok {
		return sameExchange(&old, &x)
	}
	if t.table.Load().ExchangeCount() >= c.b.limits.Exchanges {
		return kernel.Errorf(kernel.CodeLimit, "exchange", x.Name, "the tenant has %d exchanges already", c.b.limits.Exchanges)
	}
	if x.Durable {
		cctx, cancel := c.b.changeContext()
		defer cancel()
		if err := c.b.commit(cctx, catalog.PutExchange{Exchange: x}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(func(tab *route.Table) *route.Table { return tab.PutExchange(x) })
	return nil
}

// Exchange returns an exchange: CodeNotFound, CodeAccessRefused unless the user
// may do anything with it.
func (c *Conn) Exchange(name string) (kernel.Exchange, error) {
	if err := c.allowAny(KindExchange, name); err != nil {
		return kernel.Exchange{}, err
	}
	if name == kernel.ExchangeDefault {
		return kernel.Exchange{Tenant: c.tenant.name, Type: kernel.Direct, Durable: true}, nil
	}
	x, _, ok := c.tenant.table.Load().Exchange(name)
	if !ok {
		return x, c.tenant.noExchange(name)
	}
	return x, nil
}

// DeleteExchange deletes an exchange; a missing one is no error. With ifUnused
// it fails with CodePrecondition while bindings exist.
func (c *Conn) DeleteExchange(ctx context.Context, name string, ifUnused bool) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	t := c.tenant
	if name == kernel.ExchangeDefault {
		return errDefaultExchange()
	}
	if kernel.Reserved(name) {
		return kernel.Errorf(kernel.CodeAccessRefused, "exchange", name, "exchange name '%s' contains reserved prefix 'amq.*'", name)
	}
	if err := c.allow(kernel.Configure, KindExchange, name); err != nil {
		return err
	}
	defer t.names.lock(claim{exchangeKey(name), true})()
	x, bindings, ok := t.table.Load().Exchange(name)
	if !ok {
		return nil
	}
	if ifUnused && bindings > 0 {
		return kernel.Errorf(kernel.CodePrecondition, "exchange", name, "exchange '%s' in vhost '%s' in use", name, t.name)
	}
	return t.dropExchange(&x)
}

// dropExchange removes an exchange with its bindings; its lock is held.
func (t *tenant) dropExchange(x *kernel.Exchange) error {
	if x.Durable {
		ctx, cancel := t.b.changeContext()
		defer cancel()
		if err := t.b.commit(ctx, catalog.DropExchange{Tenant: t.name, Name: x.Name}); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change(func(tab *route.Table) *route.Table { return tab.DropExchange(x.Name) })
	return nil
}

// Bind adds a binding; an equal one is no error. Missing ends are CodeNotFound.
func (c *Conn) Bind(ctx context.Context, b kernel.Binding) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	t := c.tenant
	if err := c.checkBinding(&b); err != nil {
		return err
	}
	defer t.lockBinding(&b, false)()
	x, topic, err := c.bindingEnds(&b)
	if err != nil {
		return err
	}
	table := t.table.Load()
	if table.HasBinding(b) {
		return nil
	}
	if table.Bindings() >= c.b.limits.Bindings {
		return kernel.Errorf(kernel.CodeLimit, "exchange", b.Exchange, "the tenant has %d bindings already", c.b.limits.Bindings)
	}
	if x.Durable && !topic.Volatile {
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
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	t := c.tenant
	if err := c.checkBinding(&b); err != nil {
		return err
	}
	defer t.lockBinding(&b, true)()
	x, topic, err := c.bindingEnds(&b)
	if kernel.CodeOf(err) == kernel.CodeNotFound {
		return nil
	} else if err != nil {
		return err
	}
	after, ok := t.table.Load().Unbind(b)
	if !ok {
		return nil
	}
	var ops []catalog.Op
	if x.Durable && !topic.Volatile {
		ops = append(ops, catalog.DropBinding{Binding: catalog.Binding{Tenant: t.name, Binding: b}})
	}
	_, left, _ := after.Exchange(b.Exchange)
	last := x.AutoDelete && left == 0
	if last && x.Durable {
		ops = append(ops, catalog.DropExchange{Tenant: t.name, Name: x.Name})
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
		if last {
			tab = tab.DropExchange(b.Exchange)
		}
		return tab
	})
	return nil
}

// lockBinding locks a binding with its ends, which may not go meanwhile. If it is
// about to go, an auto-delete exchange may go with it.
func (t *tenant) lockBinding(b *kernel.Binding, goes bool) (unlock func()) {
	autoDelete := func() bool {
		x, _, _ := t.table.Load().Exchange(b.Exchange)
		return goes && x.AutoDelete
	}
	for {
		whole := autoDelete()
		unlock = t.names.lock(claim{exchangeKey(b.Exchange), whole}, claim{topicLockKey(false, b.Queue), false}, claim{bindingKey(b), true})
		if whole || !autoDelete() {
			return unlock
		}
		unlock() // another exchange has taken the name meanwhile
	}
}

func (c *Conn) checkBinding(b *kernel.Binding) error {
	if b.Exchange == kernel.ExchangeDefault {
		return errDefaultExchange()
	}
	if kernel.IsShare(b.Queue) {
		return kernel.Errorf(kernel.CodeNotAllowed, "queue", b.Queue, "a share address is fed by its topic and cannot be bound")
	}
	if len(b.Key) > kernel.MaxName {
		return kernel.Errorf(kernel.CodeInvalid, "exchange", b.Exchange, "the routing key is longer than %d bytes", kernel.MaxName)
	}
	return c.allowBinding(b)
}

// bindingEnds finds what a binding joins.
func (c *Conn) bindingEnds(b *kernel.Binding) (x kernel.Exchange, topic *route.Topic, err error) {
	x, _, ok := c.tenant.table.Load().Exchange(b.Exchange)
	if !ok {
		return x, nil, c.tenant.noExchange(b.Exchange)
	}
	topic, err = c.plainTopic(b.Queue)
	return x, topic, err
}

// sameExchange checks a declaration against what is there.
func sameExchange(old, x *kernel.Exchange) error {
	differ := func(what, received, current string) error {
		return kernel.Errorf(kernel.CodePrecondition, "exchange", x.Name,
			"inequivalent arg '%s' for exchange '%s' in vhost '%s': received '%s' but current is '%s'", what, x.Name, x.Tenant, received, current)
	}
	flag := strconv.FormatBool
	switch {
	case old.Type != x.Type:
		return differ("type", string(x.Type), string(old.Type))
	case old.Durable != x.Durable:
		return differ("durable", flag(x.Durable), flag(old.Durable))
	case old.AutoDelete != x.AutoDelete:
		return differ("auto_delete", flag(x.AutoDelete), flag(old.AutoDelete))
	case old.Internal != x.Internal:
		return differ("internal", flag(x.Internal), flag(old.Internal))
	}
	return nil
}

func errDefaultExchange() error {
	return kernel.Errorf(kernel.CodeAccessRefused, "exchange", "", "operation not permitted on the default exchange")
}

func (t *tenant) noExchange(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "exchange", name, "no exchange '%s' in vhost '%s'", name, t.name)
}
