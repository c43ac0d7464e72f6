package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// definitions are what can be imported: an export of ours or of RabbitMQ's.
type definitions struct {
	Users       []userBody            `json:"users"`
	VHosts      []vhostImport         `json:"vhosts"`
	Permissions []permissionInfo      `json:"permissions"`
	Topics      []topicPermissionInfo `json:"topic_permissions"`
	Policies    []policyImport        `json:"policies"`
	Parameters  []parameterImport     `json:"parameters"`
	Globals     []globalParameter     `json:"global_parameters"`
	Queues      []queueImport         `json:"queues"`
	Exchanges   []exchangeImport      `json:"exchanges"`
	Bindings    []bindingImport       `json:"bindings"`
}

type vhostImport struct {
	Name string `json:"name"`
	vhostBody
	Metadata vhostBody `json:"metadata"`
	Limits   any       `json:"limits"`
}

type queueImport struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	queueBody
}

type exchangeImport struct {
	Name  string `json:"name"`
	VHost string `json:"vhost"`
	exchangeBody
}

type bindingImport struct {
	Source      string `json:"source"`
	VHost       string `json:"vhost"`
	Destination string `json:"destination"`
	Type        string `json:"destination_type"`
	Key         string `json:"routing_key"`
	Arguments   values `json:"arguments"`
}

// ownGlobals are the global parameters that say who a cluster is: they are not
// taken over.
var ownGlobals = []string{"cluster_name", "internal_cluster_id", "cluster_tags"}

// importDefinitions is POST /api/definitions. Users and permissions are set,
// what else is there already stays as it is. Nothing is changed if something in
// the definitions cannot be had here.
func importDefinitions(c *call) error { return c.importAll("") }

// importVHost is POST /api/definitions/{vhost}.
func importVHost(c *call) error { return c.importAll(c.args[0]) }

func (c *call) importAll(vhost string) error {
	var d definitions
	done, err := c.readLarge(&d)
	if err != nil {
		return err
	}
	defer done()
	if vhost != "" {
		d.settle(vhost)
	}
	i := importer{c: c, d: &d, conns: map[string]*broker.Conn{}}
	defer i.close()
	if err := i.prepare(); err != nil {
		return err
	}
	if err := i.apply(c.r.Context()); err != nil {
		return err
	}
	return c.gone()
}

// settle makes definitions those of one tenant.
func (d *definitions) settle(vhost string) {
	d.Users, d.VHosts, d.Permissions, d.Topics, d.Globals = nil, nil, nil, nil, nil
	for i := range d.Queues {
		d.Queues[i].VHost = vhost
	}
	for i := range d.Exchanges {
		d.Exchanges[i].VHost = vhost
	}
	for i := range d.Bindings {
		d.Bindings[i].VHost = vhost
	}
	for i := range d.Policies {
		d.Policies[i].VHost = vhost
	}
	for i := range d.Parameters {
		d.Parameters[i].VHost = vhost
	}
}

// importer applies definitions, as the user who imports them.
type importer struct {
	c         *call
	d         *definitions
	users     []broker.UserSpec
	policies  []kernel.Policy
	queues    []broker.QueueSpec // by index of d.Queues
	exchanges []kernel.Exchange
	bindings  []kernel.Binding
	conns     map[string]*broker.Conn // by tenant
}

// prepare checks everything that can be checked before the first change.
func (i *importer) prepare() error {
	d := i.d
	for _, g := range d.Globals {
		if !slices.Contains(ownGlobals, g.Name) {
			return badRequest(fmt.Sprintf("the global parameter '%s' is not supported", g.Name))
		}
	}
	for _, u := range d.Users {
		spec, err := u.spec(u.Name)
		if err != nil {
			return about("user", u.Name, err)
		}
		i.users = append(i.users, spec)
	}
	for _, v := range d.VHosts {
		if err := v.check(); err != nil {
			return about("vhost", v.Name, err)
		}
		if err := v.Metadata.check(); err != nil {
			return about("vhost", v.Name, err)
		}
		if list, ok := v.Limits.([]any); v.Limits != nil && (!ok || len(list) > 0) {
			return about("vhost", v.Name, badRequest("limits are not supported"))
		}
	}
	if err := i.preparePolicies(); err != nil {
		return err
	}
	if err := i.prepareTopology(); err != nil {
		return err
	}
	return i.checkEnds()
}

func (i *importer) prepareTopology() error {
	s := i.c.s
	for n := range i.d.Queues {
		q := &i.d.Queues[n]
		spec, err := s.newQueue(q.VHost, q.Name, &q.queueBody)
		if err != nil {
			return about("queue", q.Name, err)
		}
		i.queues = append(i.queues, spec)
	}
	for n := range i.d.Exchanges {
		x, err := s.newExchange(i.d.Exchanges[n].Name, &i.d.Exchanges[n].exchangeBody)
		if err != nil {
			return about("exchange", i.d.Exchanges[n].Name, err)
		}
		i.exchanges = append(i.exchanges, x)
	}
	for _, b := range i.d.Bindings {
		args, err := s.cfg.Mapper.Arguments(b.Arguments)
		if err != nil {
			return about("binding", b.Destination, err)
		}
		if b.Type != "queue" && b.Type != "exchange" {
			return about("binding", b.Destination, badRequest("destination_type is neither queue nor exchange"))
		}
		i.bindings = append(i.bindings, kernel.Binding{
			Exchange: b.Source, Queue: b.Destination, Key: b.Key, Arguments: args, ToExchange: b.Type == "exchange",
		})
	}
	return nil
}

// about names what an error is about.
func about(kind, name string, err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return &refusal{r.status, r.kind, fmt.Sprintf("%s '%s': %s", kind, name, r.reason)}
	}
	if e, ok := errors.AsType[*kernel.Error](err); ok && e.Name != name {
		return kernel.Errorf(e.Code, kind, name, "%s '%s': %s", kind, name, e.Error())
	}
	return err
}

// apply makes everything, in an order in which nothing refers to what is not
// there yet.
func (i *importer) apply(ctx context.Context) error {
	node := i.c.s.node
	for _, u := range i.users {
		if err := node.PutUser(ctx, u); err != nil {
			return about("user", u.Name, err)
		}
	}
	for _, v := range i.d.VHosts {
		if node.HasTenant(v.Name) {
			continue
		}
		t := kernel.Tenant{Name: v.Name, Description: v.Description, Tags: v.Tags}
		if t.Description == "" && len(t.Tags) == 0 {
			t.Description, t.Tags = v.Metadata.Description, v.Metadata.Tags
		}
		if err := node.PutTenant(ctx, t); err != nil {
			return about("vhost", v.Name, err)
		}
	}
	for _, p := range i.d.Permissions {
		if err := node.PutPermission(ctx, kernel.Permission{Tenant: p.VHost, User: p.User, Configure: p.Configure, Write: p.Write, Read: p.Read}); err != nil {
			return about("permission", p.User, err)
		}
	}
	for _, p := range i.d.Topics {
		tp := kernel.TopicPermission{Tenant: p.VHost, User: p.User, Exchange: p.Exchange, Write: p.Write, Read: p.Read}
		if err := node.PutTopicPermission(ctx, tp); err != nil {
			return about("topic permission", p.User, err)
		}
	}
	if err := i.applyPolicies(ctx); err != nil {
		return err
	}
	return i.applyTopology(ctx)
}

func (i *importer) applyTopology(ctx context.Context) error {
	node := i.c.s.node
	for n, spec := range i.queues {
		vhost := i.d.Queues[n].VHost
		if _, ok := node.QueueStatus(vhost, spec.Name); ok {
			continue
		}
		conn, err := i.conn(vhost)
		if err != nil {
			return about("queue", spec.Name, err)
		}
		if _, err := conn.DeclareQueue(ctx, spec); err != nil {
			return about("queue", spec.Name, err)
		}
	}
	for n, x := range i.exchanges {
		vhost := i.d.Exchanges[n].VHost
		if _, ok := node.Exchange(vhost, x.Name); ok {
			continue
		}
		conn, err := i.conn(vhost)
		if err != nil {
			return about("exchange", x.Name, err)
		}
		if err := conn.DeclareExchange(ctx, x); err != nil {
			return about("exchange", x.Name, err)
		}
	}
	for n, b := range i.bindings {
		conn, err := i.conn(i.d.Bindings[n].VHost)
		if err != nil {
			return about("binding", b.Queue, err)
		}
		if err := conn.Bind(ctx, b); err != nil {
			return about("binding", b.Queue, err)
		}
	}
	return nil
}

// conn is a connection to a tenant, kept until the import is over.
func (i *importer) conn(vhost string) (*broker.Conn, error) {
	if conn, ok := i.conns[vhost]; ok {
		return conn, nil
	}
	conn, err := i.c.operate(vhost)
	if err == nil {
		i.conns[vhost] = conn
	}
	return conn, err
}

func (i *importer) close() {
	for _, conn := range i.conns {
		conn.Close()
	}
}
