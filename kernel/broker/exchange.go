package broker

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// DeclareExchange makes an exchange or checks that the existing one is
// equivalent (CodePrecondition if not): in type, flags and alternate exchange.
// An unknown type or an argument that means nothing to it is CodeInvalid.
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
	x.Arguments = slices.Clone(x.Arguments)
	slices.SortStableFunc(x.Arguments, func(a, b kernel.Argument) int { return strings.Compare(a.Name, b.Name) })
	if err := route.CheckExchange(&x); err != nil {
		return err
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
	if err := c.allowAlternate(&x); err != nil {
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
	t.change(func(tab *route.Table) *route.Table { return t.withAlternate(tab.PutExchange(x), x.Name) })
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

// DeleteExchange deletes an exchange with the bindings from and to it; a
// missing one is no error. With ifUnused it fails with CodePrecondition while
// bindings from it exist.
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
	defer t.lockExchangeFor(name)()
	x, bindings, ok := t.table.Load().Exchange(name)
	if !ok {
		return nil
	}
	if ifUnused && bindings > 0 {
		return kernel.Errorf(kernel.CodePrecondition, "exchange", name, "exchange '%s' in vhost '%s' in use", name, t.name)
	}
	return t.dropExchange(&x)
}

// dropExchange removes an exchange with its bindings, and the auto-delete ones
// that lose their last binding with it. The locks of lockExchangeFor are held.
func (t *tenant) dropExchange(x *kernel.Exchange) error {
	gone, ops := t.unusedExchanges(t.table.Load().DropExchange(x.Name))
	if x.Durable {
		ops = append(ops, catalog.DropExchange{Tenant: t.name, Name: x.Name})
	}
	ctx, cancel := t.b.changeContext()
	defer cancel()
	if err := t.b.commit(ctx, ops...); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.removeExchanges(append(gone, *x))
	return nil
}

// unusedExchanges returns which exchanges go because they, or others that go,
// have lost their last binding, and the ops for the durable ones. after is the
// table without the bindings whose sources are given.
func (t *tenant) unusedExchanges(after *route.Table, sources []string) (gone []kernel.Exchange, ops []catalog.Op) {
	_, gone = after.DropUnused(sources)
	for i := range gone {
		if gone[i].Durable {
			ops = append(ops, catalog.DropExchange{Tenant: t.name, Name: gone[i].Name})
		}
	}
	return gone, ops
}

// dropUnused removes those of the exchanges that are to go with their last binding, and have
// none.
func (t *tenant) dropUnused(names []string) {
	for _, name := range names {
		unlock := t.lockExchangeFor(name)
		x, bindings, ok := t.table.Load().Exchange(name)
		if ok && x.AutoDelete && bindings == 0 {
			if err := t.dropExchange(&x); err != nil && t.b.ctx.Err() == nil {
				t.b.log.Error().Err(err).Str("exchange", name).Msg("an unused exchange could not be deleted")
			}
		}
		unlock()
	}
}

// removeExchanges takes exchanges from the table. tenant.mu is held.
func (t *tenant) removeExchanges(gone []kernel.Exchange) {
	t.change(func(tab *route.Table) *route.Table {
		for i := range gone {
			tab, _ = tab.DropExchange(gone[i].Name)
		}
		return tab
	})
}

// lockExchangeFor locks an exchange for writing together with those that are
// bound to it, which may go with their last binding.
func (t *tenant) lockExchangeFor(name string) (unlock func()) {
	return t.lockAll(func(table *route.Table) []claim {
		claims := sourceClaims(table, table.BindingsTo(name))
		return append(claims, claim{exchangeKey(name), true})
	})
}

// sourceClaims returns the locks of the exchanges that bindings come from: for
// reading, or for writing if they may go with their last binding, and then with
// those of the exchanges bound to them in turn.
func sourceClaims(table *route.Table, bindings []kernel.Binding) (claims []claim) {
	seen := make(map[string]bool)
	for len(bindings) > 0 {
		var next []kernel.Binding
		for i := range bindings {
			name := bindings[i].Exchange
			if seen[name] {
				continue
			}
			seen[name] = true
			x, _, _ := table.Exchange(name)
			claims = append(claims, claim{exchangeKey(name), x.AutoDelete})
			if x.AutoDelete {
				next = append(next, table.BindingsTo(name)...)
			}
		}
		bindings = next
	}
	return claims
}

// lockAll takes the locks that the table asks for, and once more if by then it
// asks for others.
func (t *tenant) lockAll(want func(*route.Table) []claim) (unlock func()) {
	for {
		claims := want(t.table.Load())
		unlock = t.names.lock(slices.Clone(claims)...)
		if covers(claims, want(t.table.Load())) {
			return unlock
		}
		unlock()
	}
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
	a, b := argument(x.Arguments, kernel.ArgAlternate), argument(old.Arguments, kernel.ArgAlternate)
	if !sameArgument(a, b) {
		return kernel.Errorf(kernel.CodePrecondition, "exchange", x.Name,
			"inequivalent arg '%s' for exchange '%s' in vhost '%s': received %s but current is %s", kernel.ArgAlternate, x.Name, x.Tenant, describe(a), describe(b))
	}
	return nil
}

func errDefaultExchange() error {
	return kernel.Errorf(kernel.CodeAccessRefused, "exchange", "", "operation not permitted on the default exchange")
}

func (t *tenant) noExchange(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "exchange", name, "no exchange '%s' in vhost '%s'", name, t.name)
}
