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

// Status is what a node says of its cluster.
type Status struct {
	Nodes []StatusNode `json:"nodes"`
}

// StatusNode is one node, as another one sees it.
type StatusNode struct {
	Node     string `json:"node"`
	Serving  bool   `json:"serving"`
	Voter    bool   `json:"voter"`
	Draining bool   `json:"draining"`
	Alive    bool   `json:"reachable"`
	Whole    bool   `json:"whole"`
}

// Checksums are those of a node's replicas, by partition, as of one entry of the log.
type Checksums struct {
	Groups []struct {
		Group      int               `json:"group"`
		Index      uint64            `json:"index"`
		Partitions map[string]string `json:"partitions"`
	} `json:"groups"`
}

var statusClient = &http.Client{Timeout: 3 * time.Second}

// ask is a request to the node's HTTP API; out may be nil.
func (n *Node) ask(method, path string, body []byte, out any) error {
	req, err := http.NewRequest(method, "http://"+n.HTTP+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.SetBasicAuth(ClusterUser, ClusterPassword)
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

// Status asks a node.
func (n *Node) Status() (s Status, err error) {
	err = n.ask(http.MethodGet, "/api/cluster", nil, &s)
	if err != nil && strings.Contains(err.Error(), "404") {
		var o struct {
			Node string `json:"node"`
		}
		if err = n.ask(http.MethodGet, "/api/overview", nil, &o); err == nil {
			_, id, _ := strings.Cut(o.Node, "@")
			for _, other := range n.cluster.Nodes {
				if !other.Removed {
					var one StatusNode
					one.Node, one.Voter, one.Alive, one.Whole = strconv.Itoa(other.ID), true, true, true
					one.Serving = one.Node == id
					s.Nodes = append(s.Nodes, one)
				}
			}
		}
	}
	return s, err
}

// Drain makes the node hand over what it leads.
func (n *Node) Drain() error {
	return n.ask(http.MethodPost, "/api/cluster/nodes/"+strconv.Itoa(n.ID)+"/drain", nil, nil)
}

// Undrain takes Drain back.
func (n *Node) Undrain() error {
	return n.ask(http.MethodDelete, "/api/cluster/nodes/"+strconv.Itoa(n.ID)+"/drain", nil, nil)
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
				if id, _ := strconv.Atoi(m.Node); m.Serving && id > 0 && id <= len(c.Nodes) {
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
		if !m.Alive || !m.Whole || !m.Voter {
			bad = append(bad, fmt.Sprintf("%+v", m))
		}
	}
	if len(bad) > 0 || len(s.Nodes) != want {
		return fmt.Errorf("%d of %d nodes, not whole: %s", len(s.Nodes), want, strings.Join(bad, "; "))
	}
	return nil
}

// SameChecksums waits until all nodes tell the same checksums of all partitions as
// of the same entry: nobody may publish meanwhile.
func (c *Cluster) SameChecksums(patience time.Duration) error {
	if c.config.Nodes == 1 {
		return nil
	}
	return eventually(patience, func() error {
		var first []byte
		for _, n := range c.Nodes {
			if n.Removed {
				continue
			}
			var sums Checksums
			if err := n.ask(http.MethodGet, "/api/cluster/checksums", nil, &sums); err != nil {
				return err
			}
			b, err := json.Marshal(sums)
			if err != nil {
				return err
			}
			if len(sums.Groups) == 0 {
				return fmt.Errorf("node %d has no replicas", n.ID)
			}
			if first != nil && !bytes.Equal(b, first) {
				return fmt.Errorf("node %d has other checksums than the first: %.2000s and %.2000s", n.ID, b, first)
			}
			first = b
		}
		return nil
	})
}
