package broker

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/policy"
	"github.com/trivium-mq/trivium/kernel/route"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// maxPolicies is how many policies, operator policies included, a tenant may
// have: each of its queues is compared with all of them.
const maxPolicies = 1000

// policyWidth is how many queues take in a changed policy at a time, so that
// they share commits.
const policyWidth = 256

// policies are those of one tenant. What a queue got from its policies is what
// the placement group has as its limits, so that a start finds out what a crash
// has cut short.
type policies struct {
	change sync.Mutex // one change at a time, from its commit until it holds
	// gate is held for reading while a queue is declared, so that a change finds
	// all queues that were made by what held before. It comes after name locks.
	gate sync.RWMutex
	set  atomic.Pointer[policy.Set] // stored with gate and tenant.mu held
}

// Policies lists the policies and operator policies of all tenants, by tenant
// and name, policies first.
func (b *Broker) Policies() []kernel.Policy {
	var list []kernel.Policy
	b.catalog.State().Policies(func(p *kernel.Policy) { list = append(list, *p) })
	slices.SortStableFunc(list, func(x, y kernel.Policy) int {
		order := func(p *kernel.Policy) int {
			if p.Operator {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(x.Tenant, y.Tenant), order(&x)-order(&y), cmp.Compare(x.Name, y.Name))
	})
	return list
}

// Policy returns a policy, or operator policy: CodeNotFound.
func (b *Broker) Policy(tenant string, operator bool, name string) (kernel.Policy, error) {
	if p, ok := b.catalog.State().Policy(tenant, operator, name); ok {
		return *p, nil
	}
	return kernel.Policy{}, noPolicy(tenant, name)
}

func noPolicy(tenant, name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "policy", name, "there is no policy '%s' in vhost '%s'", name, tenant)
}

// PutPolicy makes a policy or replaces the one of its name and sort. When it
// returns the policy is durable and holds for all queues and exchanges that it
// matches. CodeInvalid, CodeInvalidName, CodeNotFound (tenant), CodeLimit. After
// another error some queues may not follow it yet: it may be put again, and the
// next start sees to it too.
func (b *Broker) PutPolicy(ctx context.Context, p kernel.Policy) error {
	p.Definition = slices.Clone(p.Definition)
	policy.Sort(p.Definition)
	if err := policy.Check(&p); err != nil {
		return err
	}
	t, ok := b.tenant(p.Tenant)
	if !ok {
		return noTenant(p.Tenant)
	}
	return t.changePolicies(ctx, catalog.PutPolicy{Policy: p}, func(state *catalog.State) error {
		n := 0
		if _, known := state.Policy(p.Tenant, p.Operator, p.Name); known {
			n--
		}
		state.Policies(func(other *kernel.Policy) {
			if other.Tenant == p.Tenant {
				n++
			}
		})
		if n >= maxPolicies {
			return kernel.Errorf(kernel.CodeLimit, "policy", p.Name, "the tenant has %d policies already", maxPolicies)
		}
		return nil
	})
}

// DropPolicy removes a policy, or operator policy; what it matched follows, as
// with PutPolicy. CodeNotFound.
func (b *Broker) DropPolicy(ctx context.Context, tenant string, operator bool, name string) error {
	t, ok := b.tenant(tenant)
	if !ok {
		return noTenant(tenant)
	}
	return t.changePolicies(ctx, catalog.DropPolicy{Tenant: tenant, Operator: operator, Name: name}, func(state *catalog.State) error {
		if _, ok := state.Policy(tenant, operator, name); !ok {
			return noPolicy(tenant, name)
		}
		return nil
	})
}

// changePolicies commits a change that the present state allows, and brings it
// about. It is finished even when ctx ends.
func (t *tenant) changePolicies(ctx context.Context, op catalog.Op, allowed func(*catalog.State) error) error {
	t.policies.change.Lock()
	defer t.policies.change.Unlock()
	if err := allowed(t.b.catalog.State()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	cctx, cancel := t.b.changeContext()
	defer cancel()
	if err := t.b.commit(cctx, op); err != nil {
		return err
	}
	t.loadPolicies(t.b.catalog.State())
	return t.followPolicies()
}

// loadPolicies takes the policies from the catalog, and gives the exchanges their
// alternates by them.
func (t *tenant) loadPolicies(state *catalog.State) {
	var list []*kernel.Policy
	state.Policies(func(p *kernel.Policy) {
		if p.Tenant == t.name {
			list = append(list, p)
		}
	})
	t.policies.gate.Lock()
	defer t.policies.gate.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.policies.set.Store(policy.New(list))
	t.change(func(tab *route.Table) *route.Table {
		tab.Exchanges(func(x kernel.Exchange) { tab = t.withAlternate(tab, x.Name) })
		return tab
	})
}

// withAlternate gives an exchange of the table the alternate that a policy says.
// tenant.mu is held.
func (t *tenant) withAlternate(tab *route.Table, exchange string) *route.Table {
	v, _ := policy.Value(t.policies.set.Load().Exchange(exchange), policy.AlternateExchange)
	alternate, _ := v.(string)
	return tab.SetAlternate(exchange, alternate)
}

// followPolicies gives all queues what the policies say now.
func (t *tenant) followPolicies() error {
	t.mu.Lock()
	groups := make([]*group, 0, len(t.groups))
	for _, g := range t.groups {
		if t.strays(g) {
			groups = append(groups, g)
		}
	}
	t.mu.Unlock()
	slices.SortFunc(groups, func(x, y *group) int { return cmp.Compare(x.id, y.id) })
	errs := make([]error, len(groups))
	var wg sync.WaitGroup
	slots := make(chan struct{}, policyWidth)
	for i, g := range groups {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = t.follow(g)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// strays reports whether a group has not what its declaration and the policies
// say. tenant.mu is held.
func (t *tenant) strays(g *group) bool {
	rt, ok := t.table.Load().TopicByID(g.spec.Topic)
	if !ok {
		return false
	}
	has, _ := g.place.Limits(g.id)
	if !sameLimits(&has, t.b.limitsOf(rt.Topic, &g.spec)) {
		return true
	}
	return g.spec.Address.IsOwn() && t.topics[rt.ID].retention != t.b.retentionOf(rt.Topic)
}

// follow brings one group up to date, with its name locked against a declaration.
func (t *tenant) follow(g *group) error {
	t.mu.Lock()
	addr := g.spec.Address
	t.mu.Unlock()
	defer t.names.lock(claim{topicLockKey(addr.Kind == kernel.Filter, addr.Topic), false})()
	t.mu.Lock()
	spec := g.spec
	there := t.groups[addr] == g && t.strays(g)
	t.mu.Unlock()
	rt, ok := t.table.Load().TopicByID(spec.Topic)
	if !there || !ok {
		return nil
	}
	ctx, cancel := t.b.changeContext()
	defer cancel()
	err := t.setLimits(ctx, g, t.b.limitsOf(rt.Topic, &spec))
	if err == nil && addr.IsOwn() {
		err = t.setRetention(ctx, rt.Topic)
	}
	return err
}

// CheckPolicy returns CodeInvalid, or CodeInvalidName, unless p can be put.
func CheckPolicy(p *kernel.Policy) error { return policy.Check(p) }

// QueuePolicies are the policies that apply to a queue.
type QueuePolicies = policy.Effective

// QueuePolicies returns the policies that apply to a listed queue, none for a
// group that is no queue.
func (b *Broker) QueuePolicies(q *QueueStatus) QueuePolicies {
	t, ok := b.tenant(q.Address.Tenant)
	if !ok {
		return policy.Effective{}
	}
	kq := q.Queue
	if kq == nil { // a publish may have made it
		t.mu.Lock()
		g, there := t.groups[q.Address]
		if there {
			kq = queueOf(&kernel.Topic{}, &g.spec)
		}
		t.mu.Unlock()
	}
	if kq == nil {
		return policy.Effective{}
	}
	return t.policies.set.Load().Queue(queueName(q.Address), kq.Type)
}

// ExchangePolicy returns the policy that applies to an exchange, or nil.
func (b *Broker) ExchangePolicy(tenant, name string) *kernel.Policy {
	t, ok := b.tenant(tenant)
	if !ok || name == kernel.ExchangeDefault {
		return nil
	}
	return t.policies.set.Load().Exchange(name)
}

// loadPolicies brings in the policies of all tenants, before their queues.
func (l *loader) loadPolicies() error {
	for _, t := range l.b.tenants.load() {
		t.loadPolicies(l.state)
	}
	return nil
}
