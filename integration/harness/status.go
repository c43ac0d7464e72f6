package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Status is what a node says of its cluster: GET /api/cluster.
type Status struct {
	Nodes []StatusNode `json:"nodes"`
}

// StatusNode is one node, as another one sees it.
type StatusNode struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	Draining bool   `json:"draining"`
	Version  string `json:"version"`
	Replicas []struct {
		Group uint32 `json:"group"`
		Leads bool   `json:"leads"`
		Votes bool   `json:"votes"`
		Whole bool   `json:"whole"`
	} `json:"replicas"`
}

// Checksum is of a partition at one node, of the rest of its placement group, or of the
// catalog: GET /api/cluster/checksums.
type Checksum struct {
	Catalog   bool   `json:"catalog"`
	Vhost     string `json:"vhost"`
	Topic     string `json:"topic"`
	Partition uint64 `json:"partition"`
	Index     uint64 `json:"index"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Records   string `json:"records"`
	Windows   string `json:"windows"`
}

// States of nodes.
const (
	serving = "serving"
	standby = "standby"
)

var statusClient = &http.Client{Timeout: 10 * time.Second}

// ask is a request to the node's HTTP API; out may be nil.
func (n *Node) ask(method, path string, body []byte, out any) error {
	req, err := http.NewRequest(method, "http://"+n.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.SetBasicAuth(n.login())
	resp, err := statusClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<24))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s %s of node %d: %s: %s", method, path, n.ID, resp.Status, b)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}

// Get asks the node's HTTP API.
func (n *Node) Get(path string, out any) error { return n.ask(http.MethodGet, path, nil, out) }

// Status asks a node.
func (n *Node) Status() (s Status, err error) {
	err = n.ask(http.MethodGet, "/api/cluster", nil, &s)
	return s, err
}

// Drain makes the node hand over what it leads, when another one is asked.
func (n *Node) Drain() error {
	return n.ask(http.MethodPut, "/api/cluster/nodes/"+strconv.Itoa(n.ID)+"/drain", nil, nil)
}

// Undrain takes Drain back.
func (n *Node) Undrain() error {
	return n.ask(http.MethodDelete, "/api/cluster/nodes/"+strconv.Itoa(n.ID)+"/drain", nil, nil)
}

// Lead has the node take over what another one leads.
func (n *Node) Lead() error {
	return n.ask(http.MethodPut, "/api/cluster/groups/1/leader", fmt.Appendf(nil, `{"node": "%d"}`, n.ID), nil)
}

// Forget removes a node from the cluster, asked of this one.
func (n *Node) Forget(gone *Node) error {
	return n.ask(http.MethodDelete, "/api/cluster/nodes/"+strconv.Itoa(gone.ID), nil, nil)
}

// eventually tries again until there is no error, and returns the last one.
func eventually(patience time.Duration, try func() error) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", patience, err)
		}
		<-tick.C
	}
}

// Leader waits until the nodes that can be asked agree who serves.
func (c *Cluster) Leader(patience time.Duration) (leader *Node, err error) {
	if c.config.Nodes == 1 {
		return c.Nodes[0], nil
	}
	err = eventually(patience, func() error {
		leader = nil
		for _, n := range c.Nodes {
			s, err := n.Status()
			if err != nil {
				continue // it may be the one that is broken
			}
			for _, m := range s.Nodes {
				if id, _ := strconv.Atoi(m.Name); m.State == serving && id > 0 && id <= len(c.Nodes) {
					if leader != nil && leader != c.Nodes[id-1] {
						return fmt.Errorf("nodes disagree: %d or %d serves", leader.ID, id)
					}
					leader = c.Nodes[id-1]
				}
			}
		}
		if leader == nil {
			return errors.New("nobody serves")
		}
		return nil
	})
	return leader, err
}

// NextLeader waits until another node than the last one serves.
func (c *Cluster) NextLeader(last *Node, patience time.Duration) (leader *Node, err error) {
	err = eventually(patience, func() error {
		if leader, err = c.Leader(0); err == nil && leader == last {
			err = fmt.Errorf("node %d still serves", last.ID)
		}
		return err
	})
	return leader, err
}

// Whole waits until every node that runs says that all nodes that run are voters,
// reachable and whole, and that one serves.
func (c *Cluster) Whole(patience time.Duration) error {
	if c.config.Nodes == 1 {
		return nil // ready is all there is
	}
	return eventually(patience, func() error {
		for _, n := range c.Nodes {
			if n.Removed {
				continue
			}
			s, err := n.Status()
			if err != nil {
				return err
			}
			if err := c.wholeBy(s); err != nil {
				return fmt.Errorf("node %d says: %w", n.ID, err)
			}
		}
		_, err := c.Leader(0)
		return err
	})
}

func (c *Cluster) wholeBy(s Status) error {
	var bad []string
	want := 0
	for _, n := range c.Nodes {
		if !n.Removed {
			want++
		}
	}
	for _, m := range s.Nodes {
		good := len(m.Replicas) == 2 && (m.State == serving || m.State == standby)
		for _, r := range m.Replicas {
			good = good && r.Votes && r.Whole
		}
		if !good {
			bad = append(bad, fmt.Sprintf("%+v", m))
		}
	}
	if len(bad) > 0 || len(s.Nodes) != want {
		return fmt.Errorf("%d of %d nodes, not whole: %s", len(s.Nodes), want, strings.Join(bad, "; "))
	}
	return nil
}

// same reports whether two nodes agree: of the catalog as of the same place in its log.
// That of partitions goes on without changing them.
func (s Checksum) same(other Checksum) bool {
	if !s.Catalog {
		s.Index, other.Index = 0, 0
	}
	return s == other
}

// SameChecksums waits until all nodes tell the same checksums of the catalog and of all
// partitions: nobody may publish or declare meanwhile.
func (c *Cluster) SameChecksums(patience time.Duration) error {
	if c.config.Nodes == 1 {
		return nil
	}
	return eventually(patience, func() error {
		var first []Checksum
		for _, n := range c.Nodes {
			if n.Removed {
				continue
			}
			var sums struct {
				Checksums []Checksum `json:"checksums"`
			}
			if err := n.ask(http.MethodGet, "/api/cluster/checksums", nil, &sums); err != nil {
				return err
			}
			if first == nil {
				first = sums.Checksums
			}
			if len(sums.Checksums) != len(first) {
				return fmt.Errorf("node %d has %d partitions, another one has %d", n.ID, len(sums.Checksums), len(first))
			}
			for i, s := range sums.Checksums {
				if !s.same(first[i]) {
					return fmt.Errorf("node %d: %+v, another one: %+v", n.ID, s, first[i])
				}
			}
		}
		if len(first) < 3 || !first[0].Catalog || first[0].Index == 0 {
			return errors.New("there is no catalog, or there are no partitions")
		}
		return nil
	})
}
