package admin

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// exporter writes definitions: everything that RabbitMQ exports, one element at
// a time. Exclusive queues and what the broker makes by itself are left out.
type exporter struct {
	c   *call
	w   *bufio.Writer
	sep string
	err error
}

// exportDefinitions is GET /api/definitions.
func exportDefinitions(c *call) error {
	e := c.exporter()
	e.versions()
	e.array("users", func(add func(any)) {
		for _, u := range c.s.node.Users() {
			add(describeUser(&u))
		}
	})
	e.array("vhosts", func(add func(any)) {
		for _, t := range c.s.node.Tenants() {
			tags := listed(t.Tags)
			add(vhostDefinition{t.Name, t.Description, tags, vhostMetadata{t.Description, tags}, []any{}})
		}
	})
	e.array("permissions", func(add func(any)) {
		for _, p := range c.s.node.Permissions() {
			add(describePermission(&p))
		}
	})
	e.array("topic_permissions", func(add func(any)) {
		for _, p := range c.s.node.TopicPermissions() {
			add(describeTopicPermission(&p))
		}
	})
	e.array("global_parameters", func(add func(any)) {
		for _, p := range c.s.globalParameters() {
			add(p)
		}
	})
	var vhosts []string
	for _, t := range c.s.node.Tenants() {
		vhosts = append(vhosts, t.Name)
	}
	e.topology(vhosts, true)
	return e.end()
}

// exportVHost is GET /api/definitions/{vhost}: without users and permissions,
// and with names that are good in any tenant.
func exportVHost(c *call) error {
	e := c.exporter()
	e.versions()
	e.topology(c.args[:1], false)
	return e.end()
}

func (c *call) exporter() *exporter {
	header(c.w)
	c.w.Header().Set("Content-Disposition", `attachment; filename="definitions.json"`)
	w := bufio.NewWriterSize(c.w, 32<<10)
	return &exporter{c: c, w: w, sep: "{"}
}

// member begins a member of the object.
func (e *exporter) member(name string) {
	fmt.Fprintf(e.w, "%s%q:", e.sep, name)
	e.sep = ","
}

func (e *exporter) value(name string, v any) {
	e.member(name)
	e.put(v)
}

func (e *exporter) put(v any) {
	b, err := json.Marshal(v)
	if err != nil && e.err == nil {
		e.err = err
	}
	e.w.Write(b)
}

func (e *exporter) array(name string, fill func(add func(any))) {
	e.member(name)
	sep := "["
	fill(func(v any) {
		e.w.WriteString(sep)
		e.put(v)
		sep = ","
	})
	if sep == "[" {
		e.w.WriteString(sep)
	}
	e.w.WriteByte(']')
}

// end finishes the answer. An error comes too late for the client: it sees an
// answer that is cut short.
func (e *exporter) end() error {
	if e.err != nil {
		e.c.s.cfg.Log.Error().Err(e.err).Msg("an export of definitions was cut short")
		return nil
	}
	e.w.WriteByte('}')
	_ = e.w.Flush() // the peer has gone
	return nil
}

func (e *exporter) versions() {
	e.value("rabbit_version", compatible)
	e.value("rabbitmq_version", compatible)
	e.value("product_name", productName)
	e.value("product_version", e.c.s.node.Overview().Version)
}

type vhostDefinition struct {
	Name        string        `json:"name"`
	Description string        `json:"description"`
	Tags        []string      `json:"tags"`
	Metadata    vhostMetadata `json:"metadata"`
	Limits      []any         `json:"limits"`
}

type queueDefinition struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost,omitempty"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"arguments"`
}

type exchangeDefinition struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost,omitempty"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
}

type bindingDefinition struct {
	Source      string         `json:"source"`
	VHost       string         `json:"vhost,omitempty"`
	Destination string         `json:"destination"`
	Type        string         `json:"destination_type"`
	Key         string         `json:"routing_key"`
	Arguments   map[string]any `json:"arguments"`
}

// topology writes what is in some tenants; named says whether elements carry
// the tenant's name.
func (e *exporter) topology(vhosts []string, named bool) {
	tag := func(vhost string) string {
		if named {
			return vhost
		}
		return ""
	}
	within := map[string]bool{}
	for _, v := range vhosts {
		within[v] = true
	}
	s := e.c.s
	e.policies(within, named)
	e.array("queues", func(add func(any)) {
		for _, q := range s.node.QueueStatuses() {
			if within[q.Address.Tenant] && q.Queue != nil && !q.Queue.Exclusive {
				info := s.queueInfo(&q, "")
				add(queueDefinition{info.Name, tag(info.VHost), info.Durable, info.AutoDelete, info.Arguments})
			}
		}
	})
	e.array("exchanges", func(add func(any)) {
		for _, vhost := range vhosts {
			for _, x := range s.node.Exchanges(vhost) {
				if !predeclared(x.Name) {
					info := s.exchangeInfo(&x)
					add(exchangeDefinition{x.Name, tag(vhost), info.Type, x.Durable, x.AutoDelete, x.Internal, info.Arguments})
				}
			}
		}
	})
	e.array("bindings", func(add func(any)) {
		for _, vhost := range vhosts {
			for _, x := range s.node.Exchanges(vhost) {
				for _, b := range e.c.from(vhost, x.Name) {
					if !b.ToExchange && e.exclusive(vhost, b.Queue) {
						continue
					}
					info := s.bindingInfo(&b)
					add(bindingDefinition{b.Exchange, tag(vhost), b.Queue, info.DestinationType, b.Key, info.Arguments})
				}
			}
		}
	})
}

func (e *exporter) exclusive(vhost, queue string) bool {
	q, ok := e.c.s.node.QueueStatus(vhost, queue)
	return !ok || q.Queue != nil && q.Queue.Exclusive
}

// predeclared reports whether every tenant has an exchange by itself.
func predeclared(name string) bool {
	return name == kernel.ExchangeDefault || strings.HasPrefix(name, "amq.")
}
