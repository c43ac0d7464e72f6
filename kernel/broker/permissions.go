package broker

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// Permissions lists all permissions by tenant and user.
func (b *Broker) Permissions() []kernel.Permission {
	var list []kernel.Permission
	b.catalog.State().Permissions(func(p *kernel.Permission) { list = append(list, *p) })
	return list
}

// Permission returns a user's permissions in a tenant: CodeNotFound.
func (b *Broker) Permission(tenant, user string) (kernel.Permission, error) {
	if p, ok := b.catalog.State().Permission(tenant, user); ok {
		return *p, nil
	}
	return kernel.Permission{}, kernel.Errorf(kernel.CodeNotFound, "permission", user, "user '%s' has no permissions in vhost '%s'", user, tenant)
}

// PutPermission gives a user access to a tenant, or changes what he may do in
// it. It is durable when it returns; open connections follow at once.
// CodeNotFound (tenant or user), CodeInvalid (pattern).
func (b *Broker) PutPermission(ctx context.Context, p kernel.Permission) error {
	for _, text := range []string{p.Configure, p.Write, p.Read} {
		if err := auth.CheckPattern(text); err != nil {
			return err
		}
	}
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	return b.changeAccess(ctx, catalog.PutPermission{Permission: p})
}

// DropPermission takes a user's access to a tenant; his connections to it are
// closed. CodeNotFound.
func (b *Broker) DropPermission(ctx context.Context, tenant, user string) error {
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	if _, err := b.Permission(tenant, user); err != nil {
		return err
	}
	return b.changeAccess(ctx, catalog.DropPermission{Tenant: tenant, User: user})
}

// TopicPermissions lists all topic permissions by tenant, user and exchange.
func (b *Broker) TopicPermissions() []kernel.TopicPermission {
	var list []kernel.TopicPermission
	b.catalog.State().TopicPermissions(func(p *kernel.TopicPermission) { list = append(list, *p) })
	return list
}

// PutTopicPermission restricts the keys that a user may use with an exchange,
// which need not exist. Durable and at once, as PutPermission. CodeNotFound
// (tenant or user), CodeInvalid (pattern), CodeInvalidName (exchange).
func (b *Broker) PutTopicPermission(ctx context.Context, p kernel.TopicPermission) error {
	if err := kernel.CheckName("exchange", p.Exchange); err != nil {
		return err
	}
	for _, text := range []string{p.Write, p.Read} {
		if err := auth.CheckPattern(text); err != nil {
			return err
		}
	}
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	return b.changeAccess(ctx, catalog.PutTopicPermission{Permission: p})
}

// DropTopicPermission lifts a user's restriction at an exchange, "" = at all.
// CodeNotFound if there is none.
func (b *Broker) DropTopicPermission(ctx context.Context, tenant, user, exchange string) error {
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	var ops []catalog.Op
	b.catalog.State().TopicPermissions(func(p *kernel.TopicPermission) {
		if p.Tenant == tenant && p.User == user && (exchange == "" || p.Exchange == exchange) {
			ops = append(ops, catalog.DropTopicPermission{Tenant: tenant, User: user, Exchange: p.Exchange})
		}
	})
	if len(ops) == 0 {
		return kernel.Errorf(kernel.CodeNotFound, "permission", user, "user '%s' has no topic permissions in vhost '%s'", user, tenant)
	}
	return b.changeAccess(ctx, ops...)
}
