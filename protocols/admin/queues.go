package admin

import (
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// queueInfo is one element of GET /api/queues. Share groups that are not
// declared queues are listed under their share address.
type queueInfo struct {
	Name         string         `json:"name"`
	VHost        string         `json:"vhost"`
	Type         string         `json:"type"`
	Node         string         `json:"node"`
	State        string         `json:"state"`
	Durable      bool           `json:"durable"`
	AutoDelete   bool           `json:"auto_delete"`
	Exclusive    bool           `json:"exclusive"`
	Arguments    map[string]any `json:"arguments"`
	Consumers    int            `json:"consumers"`
	Policy       *string        `json:"policy"`
	OperatorPol  *string        `json:"operator_policy"`
	EffectivePol map[string]any `json:"effective_policy_definition"`
	SingleActive *string        `json:"single_active_consumer_tag"`
	ExclusiveTag *string        `json:"exclusive_consumer_tag"`
	depth
	MessageStats messageStats `json:"message_stats"`
}

// queueDetails is GET /api/queues/{vhost}/{name}.
type queueDetails struct {
	queueInfo
	Owner      *ownerInfo     `json:"owner_pid_details,omitempty"`
	Consumers  []consumerInfo `json:"consumer_details"`
	Deliveries []struct{}     `json:"deliveries"`
	Incoming   []struct{}     `json:"incoming"`
}

// ownerInfo is the connection that an exclusive queue belongs to.
type ownerInfo struct {
	Name string `json:"name"`
	Host string `json:"peer_host"`
	Port int    `json:"peer_port"`
}

// listQueues is GET /api/queues.
func listQueues(c *call) error {
	seen := map[string]bool{}
	for _, vhost := range c.visible() {
		seen[vhost] = true
	}
	return queuesOf(c, func(vhost string) bool { return seen[vhost] })
}

// listVHostQueues is GET /api/queues/{vhost}.
func listVHostQueues(c *call) error {
	return queuesOf(c, func(vhost string) bool { return vhost == c.args[0] })
}

func queuesOf(c *call, want func(vhost string) bool) error {
	statuses := c.s.node.QueueStatuses()
	d := c.s.describer(statuses)
	rows := slices.DeleteFunc(statuses, func(q broker.QueueStatus) bool { return !want(q.Address.Tenant) })
	return list(c, rows, queueName, func(q *broker.QueueStatus) any { return d.describe(q) })
}

// queue is the queue that the path names.
func (c *call) queue() (broker.QueueStatus, error) {
	q, ok := c.s.node.QueueStatus(c.args[0], c.args[1])
	if !ok {
		return q, errNotFound
	}
	return q, nil
}

// getQueue is GET /api/queues/{vhost}/{name}.
func getQueue(c *call) error {
	q, err := c.queue()
	if err != nil {
		return err
	}
	d := c.s.describer(nil)
	out := queueDetails{queueInfo: d.describe(&q), Consumers: []consumerInfo{}, Deliveries: []struct{}{}, Incoming: []struct{}{}}
	for _, m := range c.s.node.Members() {
		if m.Address == q.Address {
			out.Consumers = append(out.Consumers, c.s.consumerInfo(&m))
		}
	}
	if q.Queue != nil && q.Queue.Exclusive {
		if conn, err := c.s.node.Connection(q.Queue.Owner); err == nil {
			o := ownerInfo{Name: connectionName(&conn.Info)}
			o.Host, o.Port = hostPort(conn.Info.Remote)
			out.Owner = &o
		}
	}
	return one(c, out)
}

// queueBody is what a client may say of a queue.
type queueBody struct {
	Durable    flag   `json:"durable"`
	AutoDelete flag   `json:"auto_delete"`
	Exclusive  flag   `json:"exclusive"`
	Arguments  values `json:"arguments"`
}

func (s *Server) newQueue(vhost, name string, b *queueBody) (broker.QueueSpec, error) {
	spec := broker.QueueSpec{Name: name, Durable: bool(b.Durable), AutoDelete: bool(b.AutoDelete)}
	if b.Exclusive {
		return spec, badRequest("an exclusive queue would go with the request")
	}
	return spec, s.cfg.Mapper.Queue(&spec, vhost, b.Arguments)
}

// putQueue is PUT /api/queues/{vhost}/{name}.
func putQueue(c *call) error {
	var body queueBody
	if err := c.read(&body); err != nil {
		return err
	}
	spec, err := c.s.newQueue(c.args[0], c.args[1], &body)
	if err != nil {
		return err
	}
	_, present := c.s.node.QueueStatus(c.args[0], spec.Name)
	err = c.within(c.args[0], func(conn *broker.Conn) error {
		_, err := conn.DeclareQueue(c.r.Context(), spec)
		return err
	})
	if err != nil {
		return err
	}
	return c.put(!present)
}

// deleteQueue is DELETE /api/queues/{vhost}/{name}.
func deleteQueue(c *call) error {
	if _, err := c.queue(); err != nil {
		return err
	}
	q := c.r.URL.Query()
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		_, err := conn.DeleteQueue(c.r.Context(), c.args[1], q.Get("if-unused") == "true", q.Get("if-empty") == "true")
		return err
	})
	if err != nil {
		return err
	}
	return c.gone()
}

// purgeQueue is DELETE /api/queues/{vhost}/{name}/contents.
func purgeQueue(c *call) error {
	if _, err := c.queue(); err != nil {
		return err
	}
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		_, err := conn.PurgeQueue(c.r.Context(), c.args[1])
		return err
	})
	if err != nil {
		return err
	}
	return c.gone()
}

// describer describes queues as of one moment.
type describer struct {
	s    *Server
	from sample
	per  func(from, to int64) rate
	node string
}

// describer takes the queues as a new sample for rates, unless they are nil.
func (s *Server) describer(statuses []broker.QueueStatus) describer {
	now, o := time.Now(), s.node.Overview()
	from := s.rates.last()
	if statuses != nil {
		all, _, _ := totals(&o)
		from = s.rates.update(now, all, statuses)
	}
	return describer{s: s, from: from, per: from.since(now), node: s.nodeName(o.NodeID)}
}

func (d *describer) describe(q *broker.QueueStatus) queueInfo {
	to := countsOf(q)
	was, seen := d.from.queues[q.Address]
	if !seen {
		was = to // new: no rate yet
	}
	info := d.s.queueInfo(q, d.node)
	info.depth, info.MessageStats = depthOf(was, to, d.per), statsOf(was, to, d.per)
	return info
}

func (s *Server) queueInfo(q *broker.QueueStatus, node string) queueInfo {
	info := queueInfo{
		Name: queueName(q), VHost: q.Address.Tenant, Type: "classic", Node: node, State: "running",
		Durable: !q.Volatile, Consumers: q.Info.Members, Arguments: map[string]any{},
	}
	p := s.node.QueuePolicies(q)
	info.Policy, info.OperatorPol = policyName(p.Policy), policyName(p.Operator)
	info.EffectivePol = s.cfg.Mapper.Values(p.Definition())
	if d := q.Queue; d != nil {
		info.Type = [...]string{"classic", "quorum", "stream"}[min(d.Type, kernel.Stream)]
		info.Durable, info.AutoDelete, info.Exclusive = d.Durable, d.AutoDelete, d.Exclusive
		info.Arguments = s.cfg.Mapper.Values(d.Arguments)
		if d.Type != kernel.Classic {
			info.Arguments["x-queue-type"] = info.Type
		}
	}
	return info
}

func policyName(p *kernel.Policy) *string {
	if p == nil {
		return nil
	}
	return &p.Name
}

// queueName is a queue's name, or the share address of a group that is none.
func queueName(q *broker.QueueStatus) string {
	if q.Address.IsOwn() {
		return q.Address.Group
	}
	return q.Address.String()
}
