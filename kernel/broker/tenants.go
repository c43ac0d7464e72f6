package broker

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/retain"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/kernel/session"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// tenants are those of a node: an immutable map behind a pointer. Changes are
// made with Broker.access.mu held.
type tenants struct {
	all atomic.Pointer[map[string]*tenant]
}

// load returns the present map, which nobody may change.
func (s *tenants) load() map[string]*tenant {
	if all := s.all.Load(); all != nil {
		return *all
	}
	return nil
}

func (s *tenants) put(t *tenant) {
	next := maps.Clone(s.load())
	if next == nil {
		next = make(map[string]*tenant)
	}
	next[t.name] = t
	s.all.Store(&next)
}

func (s *tenants) drop(name string) {
	next := maps.Clone(s.load())
	delete(next, name)
	s.all.Store(&next)
}

// tenant returns a tenant by name.
func (b *Broker) tenant(name string) (*tenant, bool) {
	t, ok := b.tenants.load()[name]
	return t, ok
}

// HasTenant reports whether the tenant exists.
func (b *Broker) HasTenant(tenant string) bool {
	_, ok := b.tenant(tenant)
	return ok
}

// Tenants lists the tenants by name.
func (b *Broker) Tenants() []kernel.Tenant {
	var list []kernel.Tenant
	b.catalog.State().Tenants(func(t *kernel.Tenant) { list = append(list, *t) })
	return list
}

// Tenant returns a tenant: CodeNotFound.
func (b *Broker) Tenant(name string) (kernel.Tenant, error) {
	if t, ok := b.catalog.State().Tenant(name); ok {
		return *t, nil
	}
	return kernel.Tenant{}, noTenant(name)
}

func noTenant(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "tenant", name, "vhost '%s' not found", name)
}

// PutTenant makes a tenant, with the predeclared exchanges in it, or changes the
// description and tags of the one of that name. Nobody has access to a new one:
// see PutPermission. It is durable when it returns. CodeInvalidName.
func (b *Broker) PutTenant(ctx context.Context, t kernel.Tenant) error {
	if err := kernel.CheckName("tenant", t.Name); err != nil {
		return err
	}
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	if err := b.commitAccess(ctx, catalog.PutTenant{Tenant: t}); err != nil {
		return err
	}
	if !b.HasTenant(t.Name) {
		b.tenants.put(newTenant(b, t.Name))
	}
	b.publishAccess()
	return nil
}

// dropPatience is how long the connections of a tenant that is dropped may take
// to end by themselves.
const dropPatience = 5 * time.Second

// DropTenant removes a tenant with everything in it: its connections are closed,
// its topics, groups, exchanges, sessions, positions and permissions deleted.
// CodeNotFound. After any other error some of it may be left, and it may be
// dropped again.
func (b *Broker) DropTenant(ctx context.Context, name string) error {
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	t, ok := b.tenant(name)
	if !ok {
		return noTenant(name)
	}
	b.mu.Lock()
	t.setDropped(true) // Connect looks for it under b.mu
	b.mu.Unlock()
	b.emptyTenant(t)
	if err := b.commitAccess(ctx, catalog.DropTenant{Name: name}); err != nil {
		t.setDropped(false)
		return err
	}
	b.tenants.drop(name)
	b.publishAccess()
	return t.clear()
}

func (t *tenant) setDropped(dropped bool) {
	t.mu.Lock()
	t.dropped = dropped
	t.mu.Unlock()
}

// isDropped reports whether the tenant is going or has gone: nothing is made in
// it any more.
func (t *tenant) isDropped() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped
}

// emptyTenant ends the connections of a tenant.
func (b *Broker) emptyTenant(t *tenant) {
	b.mu.Lock()
	var conns []*Conn
	for _, c := range b.connections() {
		if c.tenant == t {
			conns = append(conns, c)
		}
	}
	b.mu.Unlock()
	for _, c := range conns {
		c.askToEnd(kernel.Errorf(kernel.CodeDropped, "tenant", t.name, "vhost '%s' is deleted", t.name))
	}
	limit := time.NewTimer(dropPatience)
	defer limit.Stop()
	for _, c := range conns {
		select {
		case <-c.done:
			continue
		case <-limit.C:
			limit.Reset(0) // nobody else is waited for
		case <-b.ctx.Done():
		}
		c.Close()
	}
}

// tenantKeys begin the keys that a tenant has in the keyed state.
func tenantKeys(tenant string) [][]byte {
	return [][]byte{
		session.SessionKey(tenant, ""), session.SubscriptionKey(tenant, "", "")[:len(session.SessionKey(tenant, ""))],
		[]byte(offsetPrefix + tenant + "\x00"), retain.TenantPrefix(tenant), session.WillKey(tenant, ""), session.EpochKey(tenant, ""),
		[]byte(membershipPrefix + tenant + "\x00"),
	}
}

// clear removes what is in a tenant that the catalog has no more.
func (t *tenant) clear() error {
	t.mu.Lock()
	entries := make([]*sessionEntry, 0, len(t.sessions))
	for _, e := range t.sessions {
		entries = append(entries, e)
	}
	clear(t.sessions)
	t.mu.Unlock()
	for _, e := range entries {
		e.mu.Lock()
		e.disarm()
		e.forgetWill()
		e.forgetOwed()
		e.gone = true
		e.retireOnces()
		e.mu.Unlock()
	}
	var errs []error
	for _, prefix := range tenantKeys(t.name) {
		errs = append(errs, t.b.dropKeys(prefix, func([]byte) bool { return true }))
	}
	return errors.Join(append(errs, t.clearTopics(), t.clearNumbers())...)
}

// clearNumbers forgets the numbers of the sessions, side by side.
func (t *tenant) clearNumbers() error {
	ctx, cancel := t.b.changeContext()
	defer cancel()
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	slots := make(chan struct{}, sessionWidth)
	for _, g := range t.b.places() {
		for _, name := range g.Sessions() {
			if !strings.HasPrefix(name, t.name+"\x00") {
				continue
			}
			slots <- struct{}{}
			wg.Go(func() {
				if err := g.ForgetSession(ctx, name); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
				<-slots
			})
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// clearTopics deletes the topics, side by side, so that they share commits.
func (t *tenant) clearTopics() error {
	var topics []*route.Topic
	t.table.Load().AllTopics(func(rt *route.Topic) { topics = append(topics, rt) })
	t.mu.Lock()
	for _, rt := range topics {
		t.removeTopic(rt.ID)
	}
	t.mu.Unlock()
	ctx, cancel := t.b.changeContext()
	defer cancel()
	errs := make([]error, len(topics))
	var wg sync.WaitGroup
	slots := make(chan struct{}, sessionWidth)
	for i, rt := range topics {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = t.b.placeOf(rt.Volatile).DropTopic(ctx, rt.ID, t.b.catalog.Revision())
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// dropForeignKeys deletes the keys of tenants that there are no more: a crash
// may have come between a drop and its clear. It looks at one key of each tenant.
func (l *loader) dropForeignKeys() error {
	kinds := tenantKeys("")
	for _, key := range kinds {
		prefix := key[:len(key)-1] // without the NUL
		for from := prefix; ; {
			found, err := l.b.durable.FirstKey(prefix, from)
			if err != nil {
				return err
			}
			if found == nil {
				break
			}
			name, _, ok := bytes.Cut(found[len(prefix):], []byte{0})
			if !ok {
				from = append(found, 0) // none of ours
				continue
			}
			full := slices.Concat(prefix, name, []byte{0})
			if !l.b.HasTenant(string(name)) {
				if err := l.b.dropKeys(full, func([]byte) bool { return true }); err != nil {
					return err
				}
			}
			from = slices.Concat(prefix, name, []byte{1}) // behind all of the tenant
		}
	}
	return nil
}
