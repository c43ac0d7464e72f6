package admin

import (
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// defaultExchangeName is how a path names the default exchange.
const defaultExchangeName = kernel.DefaultExchangeResource

// exchangeInfo is one exchange.
type exchangeInfo struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
	Policy     *string        `json:"policy,omitempty"`
	By         string         `json:"user_who_performed_action"`
}

func (s *Server) exchangeInfo(x *kernel.Exchange) exchangeInfo {
	return exchangeInfo{
		Name: x.Name, VHost: x.Tenant, Type: string(x.Type), Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal,
		Arguments: s.cfg.Mapper.Values(x.Arguments), Policy: policyName(s.node.ExchangePolicy(x.Tenant, x.Name)),
	}
}

// listExchanges is GET /api/exchanges.
func listExchanges(c *call) error { return exchangesOf(c, c.visible()) }

// listVHostExchanges is GET /api/exchanges/{vhost}.
func listVHostExchanges(c *call) error { return exchangesOf(c, c.args[:1]) }

func exchangesOf(c *call, vhosts []string) error {
	rows := []kernel.Exchange{}
	for _, vhost := range vhosts {
		rows = append(rows, c.s.node.Exchanges(vhost)...)
	}
	return list(c, rows, func(x *kernel.Exchange) string { return x.Name }, func(x *kernel.Exchange) any { return c.s.exchangeInfo(x) })
}

// exchange is the exchange that the path names.
func (c *call) exchange() (kernel.Exchange, error) {
	x, ok := c.s.node.Exchange(c.args[0], pathExchange(c.args[1]))
	if !ok {
		return x, errNotFound
	}
	return x, nil
}

func pathExchange(name string) string {
	if name == defaultExchangeName {
		return kernel.ExchangeDefault
	}
	return name
}

// getExchange is GET /api/exchanges/{vhost}/{name}.
func getExchange(c *call) error {
	x, err := c.exchange()
	if err != nil {
		return err
	}
	return one(c, struct {
		exchangeInfo
		Incoming []struct{} `json:"incoming"`
		Outgoing []struct{} `json:"outgoing"`
	}{c.s.exchangeInfo(&x), []struct{}{}, []struct{}{}})
}

// exchangeBody is what a client may say of an exchange.
type exchangeBody struct {
	Type       string `json:"type"`
	Durable    flag   `json:"durable"`
	AutoDelete flag   `json:"auto_delete"`
	Internal   flag   `json:"internal"`
	Arguments  values `json:"arguments"`
}

func (s *Server) newExchange(name string, b *exchangeBody) (kernel.Exchange, error) {
	args, err := s.cfg.Mapper.Arguments(b.Arguments)
	if err != nil {
		return kernel.Exchange{}, err
	}
	if b.Type == "" {
		b.Type = string(kernel.Direct)
	}
	return kernel.Exchange{
		Name: name, Type: kernel.ExchangeType(b.Type), Durable: bool(b.Durable), AutoDelete: bool(b.AutoDelete),
		Internal: bool(b.Internal), Arguments: args,
	}, nil
}

// putExchange is PUT /api/exchanges/{vhost}/{name}.
func putExchange(c *call) error {
	var body exchangeBody
	if err := c.read(&body); err != nil {
		return err
	}
	x, err := c.s.newExchange(pathExchange(c.args[1]), &body)
	if err != nil {
		return err
	}
	_, present := c.s.node.Exchange(c.args[0], x.Name)
	err = c.within(c.args[0], func(conn *broker.Conn) error { return conn.DeclareExchange(c.r.Context(), x) })
	if err != nil {
		return err
	}
	return c.put(!present)
}

// deleteExchange is DELETE /api/exchanges/{vhost}/{name}.
func deleteExchange(c *call) error {
	x, err := c.exchange()
	if err != nil {
		return err
	}
	unused := c.r.URL.Query().Get("if-unused") == "true"
	err = c.within(c.args[0], func(conn *broker.Conn) error { return conn.DeleteExchange(c.r.Context(), x.Name, unused) })
	if err != nil {
		return err
	}
	return c.gone()
}

// isShare reports whether a queue's name is the address of a share group.
func isShare(name string) bool { return strings.HasPrefix(name, "$share/") }
