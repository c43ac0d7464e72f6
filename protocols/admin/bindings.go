package admin

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// bindingRow is a binding of a tenant.
type bindingRow struct {
	vhost string
	kernel.Binding
}

// bindingInfo is one binding.
type bindingInfo struct {
	Source          string         `json:"source"`
	VHost           string         `json:"vhost"`
	Destination     string         `json:"destination"`
	DestinationType string         `json:"destination_type"`
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
	PropertiesKey   string         `json:"properties_key"`
}

func (s *Server) bindingInfo(b *bindingRow) bindingInfo {
	info := bindingInfo{
		Source: b.Exchange, VHost: b.vhost, Destination: b.Queue, DestinationType: "queue", RoutingKey: b.Key,
		Arguments: s.cfg.Mapper.Values(b.Arguments),
	}
	if b.ToExchange {
		info.DestinationType = "exchange"
	}
	info.PropertiesKey = propertiesKey(b.Key, info.Arguments)
	return info
}

// propertiesKey tells the bindings between one exchange and one queue apart: the
// routing key, and a hash of the arguments if there are any. As in RabbitMQ, but
// for the hash, which is Erlang's there.
func propertiesKey(key string, args map[string]any) string {
	switch {
	case len(args) > 0:
		text, _ := json.Marshal(args) // by name; every value came from JSON's
		h := fnv.New64a()
		_, _ = h.Write(text) // never fails
		return escapeKey(key) + "~" + base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, h.Sum64()))
	case key == "":
		return "~"
	default:
		return escapeKey(key)
	}
}

// escapeKey is a routing key as RabbitMQ writes it there: quoted as in a query,
// without the character that separates a key from its arguments.
func escapeKey(key string) string { return strings.ReplaceAll(url.QueryEscape(key), "~", "%7E") }

// names reports whether a client means the binding with a properties key. As in
// RabbitMQ the routing key may also stand there as it is.
func names(given, propertiesKey string) bool {
	if given == propertiesKey {
		return true
	}
	key, args, more := strings.Cut(given, "~")
	plain, err := url.QueryUnescape(key)
	if err != nil || key == "" {
		return false
	}
	if key = escapeKey(plain); more {
		key += "~" + args
	}
	return key == propertiesKey
}

// bindingsOf lists bindings, sorted.
func (c *call) bindingsOf(rows []bindingRow) error {
	slices.SortFunc(rows, func(a, b bindingRow) int {
		return cmp.Or(cmp.Compare(a.vhost, b.vhost), cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Key, b.Key))
	})
	return list(c, rows, func(b *bindingRow) string { return b.Exchange }, func(b *bindingRow) any { return c.s.bindingInfo(b) })
}

// allBindings are the bindings of a tenant, those of the default exchange
// included.
func (c *call) allBindings(vhost string) []bindingRow {
	rows := c.defaultBindings(vhost)
	for _, x := range c.s.node.Exchanges(vhost) {
		rows = append(rows, c.from(vhost, x.Name)...)
	}
	return rows
}

// from are the bindings from an exchange other than the default one.
func (c *call) from(vhost, exchange string) (rows []bindingRow) {
	for _, b := range c.s.node.BindingsFrom(vhost, exchange) {
		rows = append(rows, bindingRow{vhost, b})
	}
	return rows
}

// defaultBindings are what the default exchange does: every queue by its name.
func (c *call) defaultBindings(vhost string) (rows []bindingRow) {
	for _, q := range c.s.node.QueueStatuses() {
		if q.Address.Tenant == vhost && q.Address.IsOwn() {
			rows = append(rows, defaultBinding(vhost, q.Address.Topic))
		}
	}
	return rows
}

func defaultBinding(vhost, queue string) bindingRow {
	return bindingRow{vhost, kernel.Binding{Queue: queue, Key: queue}}
}

// listBindings is GET /api/bindings.
func listBindings(c *call) error {
	var rows []bindingRow
	for _, vhost := range c.visible() {
		rows = append(rows, c.allBindings(vhost)...)
	}
	return c.bindingsOf(rows)
}

// listVHostBindings is GET /api/bindings/{vhost}.
func listVHostBindings(c *call) error { return c.bindingsOf(c.allBindings(c.args[0])) }

// listSource is GET /api/exchanges/{vhost}/{name}/bindings/source.
func listSource(c *call) error {
	x, err := c.exchange()
	if err != nil {
		return err
	}
	if x.Name == kernel.ExchangeDefault {
		return c.bindingsOf(c.defaultBindings(c.args[0]))
	}
	return c.bindingsOf(c.from(c.args[0], x.Name))
}

// listDestination is GET /api/exchanges/{vhost}/{name}/bindings/destination.
func listDestination(c *call) error {
	x, err := c.exchange()
	if err != nil {
		return err
	}
	var rows []bindingRow
	for _, from := range c.s.node.Exchanges(c.args[0]) {
		for _, b := range c.from(c.args[0], from.Name) {
			if b.ToExchange && b.Queue == x.Name {
				rows = append(rows, b)
			}
		}
	}
	return c.bindingsOf(rows)
}

// listQueueBindings is GET /api/queues/{vhost}/{name}/bindings.
func listQueueBindings(c *call) error {
	if _, err := c.queue(); err != nil {
		return err
	}
	return c.bindingsOf(c.to(c.args[0], c.args[1]))
}

// to are the bindings to a queue.
func (c *call) to(vhost, queue string) (rows []bindingRow) {
	if isShare(queue) {
		return nil // fed by its topic
	}
	rows = append(rows, defaultBinding(vhost, queue))
	for _, b := range c.s.node.BindingsOf(vhost, queue) {
		if !b.ToExchange {
			rows = append(rows, bindingRow{vhost, b})
		}
	}
	return rows
}

// between are the bindings from an exchange to what the path names. Both must
// be there.
func (c *call) between(toExchange bool) (rows []bindingRow, err error) {
	vhost, source, target := c.args[0], pathExchange(c.args[1]), c.args[2]
	if _, ok := c.s.node.Exchange(vhost, source); !ok {
		return nil, errNotFound
	}
	if toExchange {
		target = pathExchange(target)
		if _, ok := c.s.node.Exchange(vhost, target); !ok {
			return nil, errNotFound
		}
		rows = c.from(vhost, source)
	} else {
		if _, ok := c.s.node.QueueStatus(vhost, target); !ok {
			return nil, errNotFound
		}
		rows = c.to(vhost, target)
	}
	return slices.DeleteFunc(rows, func(b bindingRow) bool {
		return b.ToExchange != toExchange || b.Exchange != source || b.Queue != target
	}), nil
}

// listBetween is GET /api/bindings/{vhost}/e/{source}/{q or e}/{target}.
func listBetween(toExchange bool) handler {
	return func(c *call) error {
		rows, err := c.between(toExchange)
		if err != nil {
			return err
		}
		return c.bindingsOf(rows)
	}
}

// postBinding is POST on the same path: it makes a binding.
func postBinding(toExchange bool) handler {
	return func(c *call) error {
		var body struct {
			Key       string `json:"routing_key"`
			Arguments values `json:"arguments"`
		}
		if err := c.read(&body); err != nil {
			return err
		}
		args, err := c.s.cfg.Mapper.Arguments(body.Arguments)
		if err != nil {
			return err
		}
		b := kernel.Binding{
			Exchange: pathExchange(c.args[1]), Queue: c.args[2], Key: body.Key, Arguments: args, ToExchange: toExchange,
		}
		if toExchange {
			b.Queue = pathExchange(b.Queue)
		}
		if err := c.within(c.args[0], func(conn *broker.Conn) error { return conn.Bind(c.r.Context(), b) }); err != nil {
			return err
		}
		kind := "q"
		if toExchange {
			kind = "e"
		}
		c.w.Header().Set("Location", "/api/bindings/"+strings.Join([]string{
			url.PathEscape(c.args[0]), "e", url.PathEscape(c.args[1]), kind, url.PathEscape(c.args[2]),
			url.PathEscape(propertiesKey(b.Key, body.Arguments)),
		}, "/"))
		c.empty(http.StatusCreated)
		return nil
	}
}

// binding is the binding that the path names.
func (c *call) binding(toExchange bool) (*bindingRow, error) {
	rows, err := c.between(toExchange)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if names(c.args[3], c.s.bindingInfo(&rows[i]).PropertiesKey) {
			return &rows[i], nil
		}
	}
	return nil, errNotFound
}

// getBinding is GET /api/bindings/{vhost}/e/{source}/{q or e}/{target}/{key}.
func getBinding(toExchange bool) handler {
	return func(c *call) error {
		b, err := c.binding(toExchange)
		if err != nil {
			return err
		}
		return one(c, c.s.bindingInfo(b))
	}
}

// deleteBinding is DELETE on the same path.
func deleteBinding(toExchange bool) handler {
	return func(c *call) error {
		b, err := c.binding(toExchange)
		if err != nil {
			return err
		}
		err = c.within(c.args[0], func(conn *broker.Conn) error { return conn.Unbind(c.r.Context(), b.Binding) })
		if err != nil {
			return err
		}
		return c.gone()
	}
}
