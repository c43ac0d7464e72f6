package admin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// sections are the members of definitions that are taken, or say only where they
// come from.
var sections = []string{
	"users", "vhosts", "permissions", "topic_permissions", "policies", "parameters", "global_parameters", "queues", "exchanges", "bindings",
	"rabbit_version", "rabbitmq_version", "rabbitmq_definition_format", "product_name", "product_version", "explanation",
	"original_vhost_name", "original_cluster_name", "description", "metadata",
}

// ignored is a value that is not kept.
type ignored struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*ignored) UnmarshalJSON([]byte) error { return nil }

// UnmarshalJSON implements json.Unmarshaler. It refuses sections that mean nothing
// here.
func (d *definitions) UnmarshalJSON(b []byte) error {
	var members map[string]ignored
	if err := json.Unmarshal(b, &members); err != nil {
		return err
	}
	var unknown []string
	for name := range members {
		if !slices.Contains(sections, name) {
			unknown = append(unknown, fmt.Sprintf("'%.40s'", name))
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("not supported in definitions: %s", strings.Join(unknown[:min(len(unknown), 20)], ", "))
	}
	type plain definitions
	return json.Unmarshal(b, (*plain)(d))
}

// place is a name in a tenant.
type place struct{ vhost, name string }

// world is what there will be before something of the definitions is made.
type world struct {
	i         *importer
	vhosts    map[string]bool // in the definitions
	users     map[string]bool
	queues    map[place]bool
	exchanges map[place]kernel.ExchangeType
}

// checkEnds checks names, and that what the definitions refer to is in them or
// there already.
func (i *importer) checkEnds() error {
	w := world{i, map[string]bool{}, map[string]bool{}, map[place]bool{}, map[place]kernel.ExchangeType{}}
	for _, v := range i.d.VHosts {
		if err := kernel.CheckName("tenant", v.Name); err != nil {
			return about("vhost", v.Name, err)
		}
		w.vhosts[v.Name] = true
	}
	for n := range i.users {
		if err := i.users[n].Check(); err != nil {
			return about("user", i.users[n].Name, err)
		}
		w.users[i.users[n].Name] = true
	}
	for _, check := range []func() error{w.permissions, w.policies, w.topology, w.bindings} {
		if err := check(); err != nil {
			if kernel.CodeOf(err) == kernel.CodeAccessRefused { // a reserved name: it is the definitions that are wrong
				return badRequest(err.Error())
			}
			return err
		}
	}
	return nil
}

// vhost checks that a tenant will be there.
func (w *world) vhost(name string) error {
	if w.vhosts[name] || w.i.c.s.node.HasTenant(name) {
		return nil
	}
	return badRequest(fmt.Sprintf("there is no vhost '%s'", name))
}

func (w *world) user(name string) error {
	if w.users[name] {
		return nil
	}
	if _, err := w.i.c.s.node.User(name); err != nil {
		return badRequest(fmt.Sprintf("there is no user '%s'", name))
	}
	return nil
}

// grant checks one permission of either kind.
func (w *world) grant(kind, user, vhost string, patterns ...string) error {
	err := w.user(user)
	if err == nil {
		err = w.vhost(vhost)
	}
	if err == nil {
		err = broker.CheckPatterns(patterns...)
	}
	if err != nil {
		return about(kind, user, err)
	}
	return nil
}

func (w *world) permissions() error {
	for _, p := range w.i.d.Permissions {
		if err := w.grant("permission", p.User, p.VHost, p.Configure, p.Write, p.Read); err != nil {
			return err
		}
	}
	for _, p := range w.i.d.Topics {
		if err := w.grant("topic permission", p.User, p.VHost, p.Write, p.Read); err != nil {
			return err
		}
		if err := kernel.CheckName("exchange", p.Exchange); err != nil {
			return about("topic permission", p.User, err)
		}
	}
	return nil
}

func (w *world) policies() error {
	for n := range w.i.policies {
		p := &w.i.policies[n]
		if err := w.vhost(p.Tenant); err != nil {
			return about("policy", p.Name, err)
		}
	}
	return nil
}

func (w *world) topology() error {
	node := w.i.c.s.node
	for n := range w.i.queues {
		name, vhost := w.i.queues[n].Name, w.i.d.Queues[n].VHost
		if err := w.vhost(vhost); err != nil {
			return about("queue", name, err)
		}
		w.queues[place{vhost, name}] = true
		if _, ok := node.QueueStatus(vhost, name); ok {
			continue
		}
		if err := checkQueueName(vhost, name); err != nil {
			return about("queue", name, err)
		}
	}
	for n := range w.i.exchanges {
		x, vhost := &w.i.exchanges[n], w.i.d.Exchanges[n].VHost
		if err := w.vhost(vhost); err != nil {
			return about("exchange", x.Name, err)
		}
		if _, ok := w.exchange(vhost, x.Name); ok {
			continue
		}
		if err := broker.CheckExchange(x); err != nil {
			return about("exchange", x.Name, err)
		}
		w.exchanges[place{vhost, x.Name}] = x.Type
	}
	return nil
}

func checkQueueName(vhost, name string) error {
	if isShare(name) {
		_, _, err := kernel.ParseShare(vhost, name)
		return err
	}
	return kernel.CheckNewName("queue", name)
}

// exchange returns the type of an exchange that will be there.
func (w *world) exchange(vhost, name string) (kernel.ExchangeType, bool) {
	if kind, ok := w.exchanges[place{vhost, name}]; ok {
		return kind, true
	}
	if x, ok := w.i.c.s.node.Exchange(vhost, name); ok {
		return x.Type, true
	}
	return broker.PredeclaredExchange(name)
}

func (w *world) bindings() error {
	for n := range w.i.bindings {
		b, vhost := &w.i.bindings[n], w.i.d.Bindings[n].VHost
		if err := w.binding(vhost, b); err != nil {
			return about("binding", b.Queue, err)
		}
	}
	return nil
}

func (w *world) binding(vhost string, b *kernel.Binding) error {
	if err := w.vhost(vhost); err != nil {
		return err
	}
	kind, ok := w.exchange(vhost, b.Exchange)
	if !ok {
		return badRequest(fmt.Sprintf("there is no exchange '%s' in vhost '%s'", b.Exchange, vhost))
	}
	if err := broker.CheckBinding(kind, b); err != nil {
		return err
	}
	if b.ToExchange {
		if _, ok := w.exchange(vhost, b.Queue); !ok {
			return badRequest(fmt.Sprintf("there is no exchange '%s' in vhost '%s'", b.Queue, vhost))
		}
		return nil
	}
	if w.queues[place{vhost, b.Queue}] {
		return nil
	}
	if _, _, err := w.i.c.s.node.TopicStatus(vhost, b.Queue, kernel.Plain); err != nil {
		return badRequest(fmt.Sprintf("there is no queue '%s' in vhost '%s'", b.Queue, vhost))
	}
	return nil
}
