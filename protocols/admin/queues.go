package admin

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
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
	EffectivePol struct{}       `json:"effective_policy_definition"`
	SingleActive *string        `json:"single_active_consumer_tag"`
	ExclusiveTag *string        `json:"exclusive_consumer_tag"`
	depth
	MessageStats messageStats `json:"message_stats"`
}

// queueDetails is GET /api/queues/{vhost}/{name}.
type queueDetails struct {
	queueInfo
	Consumers  []struct{} `json:"consumer_details"`
	Deliveries []struct{} `json:"deliveries"`
	Incoming   []struct{} `json:"incoming"`
}

// queues is GET /api/queues.
func (s *Server) queues(w http.ResponseWriter, r *http.Request) {
	s.listing(w, r, func(*broker.QueueStatus) bool { return true })
}

// queuesBelow is GET /api/queues/{vhost} and /api/queues/{vhost}/{name}. The
// path is taken apart by hand: ServeMux takes a segment %2F for a closing slash.
func (s *Server) queuesBelow(w http.ResponseWriter, r *http.Request) {
	rawHost, rawName, named := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/api/queues/"), "/")
	vhost, err := url.PathUnescape(rawHost)
	name, err2 := url.PathUnescape(rawName)
	if err != nil || err2 != nil || !s.node.HasTenant(vhost) {
		notFound(w, r)
		return
	}
	if !named || name == "" {
		s.listing(w, r, func(q *broker.QueueStatus) bool { return q.Address.Tenant == vhost })
		return
	}
	list := s.list(func(q *broker.QueueStatus) bool { return q.Address.Tenant == vhost && queueName(q) == name })
	if len(list) == 0 {
		notFound(w, r)
		return
	}
	none := []struct{}{}
	answer(w, http.StatusOK, queueDetails{queueInfo: list[0], Consumers: none, Deliveries: none, Incoming: none})
}

func (s *Server) listing(w http.ResponseWriter, r *http.Request, want func(*broker.QueueStatus) bool) {
	body, err := query(r.URL.Query(), s.list(want))
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	answer(w, http.StatusOK, body)
}

// list describes the queues that want admits, by vhost and name.
func (s *Server) list(want func(*broker.QueueStatus) bool) []queueInfo {
	now, o, statuses := time.Now(), s.node.Overview(), s.node.QueueStatuses()
	all, _, _ := totals(&o)
	from := s.rates.update(now, all, statuses)
	per := from.since(now)
	node := s.nodeName(o.NodeID)
	list := []queueInfo{}
	for i := range statuses {
		q := &statuses[i]
		if !want(q) {
			continue
		}
		to := countsOf(q)
		was, seen := from.queues[q.Address]
		if !seen {
			was = to // new: no rate yet
		}
		info := describe(q, node)
		info.depth, info.MessageStats = depthOf(was, to, per), statsOf(was, to, per)
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b queueInfo) int {
		return cmp.Or(cmp.Compare(a.VHost, b.VHost), cmp.Compare(a.Name, b.Name))
	})
	return list
}

func describe(q *broker.QueueStatus, node string) queueInfo {
	info := queueInfo{
		Name: queueName(q), VHost: q.Address.Tenant, Type: "classic", Node: node, State: "running",
		Durable: !q.Volatile, Consumers: q.Info.Members, Arguments: map[string]any{},
	}
	if d := q.Queue; d != nil {
		info.Type = [...]string{"classic", "quorum", "stream"}[min(d.Type, kernel.Stream)]
		info.Durable, info.AutoDelete, info.Exclusive = d.Durable, d.AutoDelete, d.Exclusive
		for _, a := range d.Arguments {
			info.Arguments[a.Name] = argument(a.Value)
		}
	}
	return info
}

// queueName is a queue's name, or the share address of a group that is none.
func queueName(q *broker.QueueStatus) string {
	if q.Address.IsOwn() {
		return q.Address.Group
	}
	return q.Address.String()
}

// argument makes an argument's value fit for JSON.
func argument(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case kernel.Raw:
		return string(v)
	default:
		return v
	}
}
