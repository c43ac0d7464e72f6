package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/trivium-mq/trivium/kernel"
)

// Cluster is what operators ask of any node, whether it serves or not: a cluster that
// has no leader must not be silent.
type Cluster interface {
	Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error)
	Status() kernel.ClusterStatus
	// Checksums are of all that the node's own replicas hold.
	Checksums(ctx context.Context) ([]kernel.ReplicaChecksum, error)
	// Remove removes a node for good; see force in package cluster.
	Remove(ctx context.Context, node string, force bool) error
	// Drain has a node lead nothing, or undoes that.
	Drain(ctx context.Context, node string, undo bool) error
	// Move hands the leadership of a group to a node.
	Move(ctx context.Context, group uint32, node string) error
	// Rebalance brings the leaderships to where they belong, and says who leads.
	Rebalance(ctx context.Context) (string, error)
}

// clusterCall is a request about the cluster on its way.
type clusterCall struct {
	cluster Cluster
	w       http.ResponseWriter
	r       *http.Request
	args    []string
}

// clusterRoute is one row of the table of paths below /api/cluster.
type clusterRoute struct {
	method, path string
	change       bool // needs an administrator
	do           func(*clusterCall) error
}

var clusterRoutes = []clusterRoute{
	{onGet, "cluster", false, clusterStatus},
	{onGet, "cluster/checksums", true, clusterChecksums},
	{onDelete, "cluster/nodes/{node}", true, clusterRemove},
	{onPut, "cluster/nodes/{node}/drain", true, clusterDrain(false)},
	{onDelete, "cluster/nodes/{node}/drain", true, clusterDrain(true)},
	{onPut, "cluster/groups/{group}/leader", true, clusterMove},
	{onPost, "cluster/rebalance", true, clusterRebalance},
}

var clusterTable = func() (t table) {
	for _, r := range clusterRoutes {
		t = append(t, newTable([]resource{{path: r.path, methods: methods{r.method: nil}}})...)
	}
	return t
}()

// isCluster reports whether a request is about the cluster, and so for the node that
// was asked.
func isCluster(r *http.Request) bool {
	path, ok := split(r.URL)
	return ok && path[0] == "cluster"
}

// clusterAPI answers what is about the cluster.
func (g *Gate) clusterAPI(w http.ResponseWriter, r *http.Request, of Cluster) {
	g.answerError(w, r, serveCluster(&clusterCall{cluster: of, w: w, r: r}))
}

// answerError answers a request that the gate itself could not do; nil: it has been
// answered.
func (g *Gate) answerError(w http.ResponseWriter, r *http.Request, err error) {
	if err == nil {
		return
	}
	if said, ok := errors.AsType[*refusal](err); ok {
		fail(w, said.status, said.kind, said.reason)
		return
	}
	said := codes[kernel.CodeOf(err)]
	if kernel.CodeOf(err) == kernel.CodeInternal {
		g.cfg.Log.Error().Err(err).Str("method", r.Method).Str("path", r.URL.Path).Msg("a request failed")
		fail(w, said.status, said.kind, "the node's log says more")
		return
	}
	fail(w, said.status, said.kind, err.Error())
}

func serveCluster(c *clusterCall) error {
	path, _ := split(c.r.URL)
	var found *clusterRoute
	known := false
	for i := range clusterRoutes {
		e, args := clusterTable[i : i+1].find(path)
		if e == nil {
			continue
		}
		if known = true; clusterRoutes[i].method == c.r.Method {
			found, c.args = &clusterRoutes[i], args
		}
	}
	switch {
	case !known:
		return errNotFound
	case found == nil:
		return &refusal{http.StatusMethodNotAllowed, "method_not_allowed", c.r.Method + " does not work here"}
	}
	if err := c.login(found.change); err != nil {
		return err
	}
	return found.do(c)
}

// login finds out who asks, and whether he may.
func (c *clusterCall) login(change bool) error { return letIn(c.r, c.cluster, change) }

// door tells who somebody is.
type door interface {
	Login(ctx context.Context, user, password string, remote net.Addr) (*kernel.User, error)
}

// letIn finds out who sends a request, and whether he may. Changes are for administrators.
func letIn(r *http.Request, door door, change bool) error {
	name, password, ok := r.BasicAuth()
	if !ok {
		return &refusal{http.StatusUnauthorized, "not_authorized", "Not_Authorized"}
	}
	remote, _ := r.Context().Value(remoteKey{}).(net.Addr)
	u, err := door.Login(r.Context(), name, password, remote)
	switch {
	case kernel.CodeOf(err) == kernel.CodeLimit && err != nil:
		return &refusal{http.StatusTooManyRequests, "too_many_requests", "Too many failed logins from this address"}
	case kernel.CodeOf(err) == kernel.CodeUnavailable && err != nil: // it is not known who he is
		return err
	case err != nil:
		return &refusal{http.StatusUnauthorized, "not_authorized", "Login failed"}
	case !u.HasTag(kernel.TagAdministrator) && (change || !u.HasTag(kernel.TagMonitoring)):
		return unauthorised("Not management user: this is for administrators, and monitors may look")
	}
	if v, ok := r.Context().Value(callerKey{}).(*caller); ok {
		v.loggedIn()
	}
	return nil
}

// done answers a change.
func (c *clusterCall) done() error {
	header(c.w)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func clusterRemove(c *clusterCall) error {
	force := c.r.URL.Query().Get("force")
	if force != "" && force != "true" && force != "false" {
		return badRequest("force is true or false")
	}
	if err := c.cluster.Remove(c.r.Context(), c.args[0], force == "true"); err != nil {
		return err
	}
	return c.done()
}

func clusterDrain(undo bool) func(*clusterCall) error {
	return func(c *clusterCall) error {
		if err := c.cluster.Drain(c.r.Context(), c.args[0], undo); err != nil {
			return err
		}
		return c.done()
	}
}

func clusterMove(c *clusterCall) error {
	group, err := strconv.ParseUint(c.args[0], 10, 32)
	if err != nil {
		return badRequest("a group is a number")
	}
	var body struct {
		Node string `json:"node"`
	}
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, smallBody))
	if err != nil {
		return unread(err, smallBody)
	}
	if err := json.Unmarshal(raw, &body); err != nil || body.Node == "" {
		return badRequest(`the body is {"node": "..."}`)
	}
	if err := c.cluster.Move(c.r.Context(), uint32(group), body.Node); err != nil {
		return err
	}
	return c.done()
}

func clusterRebalance(c *clusterCall) error {
	leader, err := c.cluster.Rebalance(c.r.Context())
	if err != nil {
		return err
	}
	answer(c.w, http.StatusOK, map[string]string{"leader": leader})
	return nil
}

// clusterInfo is a cluster in JSON.
type clusterInfo struct {
	Cluster string             `json:"cluster"`
	Node    string             `json:"node"`
	Refused string             `json:"refused,omitempty"`
	Nodes   []clusterNodeInfo  `json:"nodes"`
	Groups  []clusterGroupInfo `json:"groups"`
}

type clusterNodeInfo struct {
	Name     string               `json:"name"`
	State    kernel.NodeState     `json:"state"`
	Address  string               `json:"address"`
	Draining bool                 `json:"draining"`
	Low      bool                 `json:"disk_low"`
	Slow     bool                 `json:"disk_slow"`
	Version  string               `json:"version"`
	Fronts   map[string]string    `json:"listeners"`
	Leads    []uint32             `json:"leads"`
	Replicas []clusterReplicaInfo `json:"replicas"`
}

type clusterReplicaInfo struct {
	Group   uint32 `json:"group"`
	Leads   bool   `json:"leads"`
	Votes   bool   `json:"votes"`
	Whole   bool   `json:"whole"`
	Applied uint64 `json:"applied"`
}

type clusterGroupInfo struct {
	Group    uint32   `json:"group"`
	Leader   string   `json:"leader"`
	Term     uint64   `json:"term"`
	Commit   uint64   `json:"commit"`
	Voters   []string `json:"voters"`
	Learners []string `json:"learners"`
}

func clusterStatus(c *clusterCall) error {
	s := c.cluster.Status()
	out := clusterInfo{Cluster: s.Cluster, Node: s.Node, Refused: s.Refused, Nodes: []clusterNodeInfo{}, Groups: []clusterGroupInfo{}}
	for _, n := range s.Nodes {
		info := clusterNodeInfo{Name: n.Name, State: n.State, Address: n.Address, Draining: n.Draining, Low: n.Low, Slow: n.Slow, Version: n.Version,
			Fronts: n.Fronts, Leads: []uint32{}, Replicas: []clusterReplicaInfo{}}
		for _, r := range n.Replicas {
			info.Replicas = append(info.Replicas, clusterReplicaInfo(r))
			if r.Leads {
				info.Leads = append(info.Leads, r.Group)
			}
		}
		out.Nodes = append(out.Nodes, info)
	}
	for _, g := range s.Groups {
		out.Groups = append(out.Groups, clusterGroupInfo{Group: g.Group, Leader: g.Leader, Term: g.Term, Commit: g.Commit,
			Voters: append([]string{}, g.Voters...), Learners: append([]string{}, g.Learners...)})
	}
	answer(c.w, http.StatusOK, out)
	return nil
}
