package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The user whom every node of a cluster knows. In a network of its own guest
// would be refused, as guest comes from the loopback only.
const (
	ClusterUser     = "operator"
	ClusterPassword = "chaos"
)

// ClusterConfig says what cluster a test wants.
type ClusterConfig struct {
	Nodes   int
	Network bool     // each node in a namespace of its own, so that links can be cut; needs root
	Faults  bool     // FaultyBinary
	Lose    bool     // with Faults: what is not synced is lost with a kill
	Guest   bool     // guest is the administrator, not ClusterUser; not with Network
	Args    []string // further arguments of every node
	Binary  string   // that nodes begin with; "" = that of the other tests
}

// Cluster is some nodes that form a cluster, each a process of its own.
type Cluster struct {
	Nodes []*Node  // Nodes[i] has the id i+1
	Net   *Network // nil without ClusterConfig.Network; a node's host is its id

	t         testing.TB
	sockets   string // folder of the sockets for faults: short, as such names must be
	config    ClusterConfig
	binary    string
	authority *Authority
}

// Node is one process of a cluster, running, paused, killed or stopped.
type Node struct {
	Addresses
	ID      int
	Peers   string // where other nodes reach it, host:port
	Dir     string // data directory
	Removed bool   // from the cluster, for good
	Binary  string // that it runs, from the next Run on
	Logs    string // file with all that it has written, of all its lives

	cluster *Cluster
	began   atomic.Bool // it has run once
	mu      sync.Mutex
	process
}

// SpareNodes is how many nodes can be added to a network of its own.
const SpareNodes = 3

// StartCluster starts a cluster, waits until every node says that it is ready,
// and ends it with the test.
func StartCluster(t testing.TB, config ClusterConfig) *Cluster {
	t.Helper()
	c := &Cluster{t: t, config: config}
	switch {
	case config.Faults:
		c.binary = FaultyBinary(t)
	case config.Binary != "":
		c.binary = config.Binary
	default:
		c.binary = Binary(t)
	}
	var err error
	c.sockets, err = os.MkdirTemp("", "tvf")
	Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(c.sockets) })
	if config.Network {
		c.Net = NewNetwork(t, config.Nodes+SpareNodes)
		c.authority = NewAuthority(t)
	}
	for range config.Nodes {
		c.add()
	}
	t.Cleanup(c.end)
	Must(t, c.Nodes[0].Run()) // founds the cluster that the others join
	Must(t, c.each(c.Nodes[1:], (*Node).Run))
	return c
}

// Add starts a further node, which joins.
func (c *Cluster) Add() *Node {
	c.t.Helper()
	n := c.add()
	Must(c.t, n.Run())
	return n
}

// Twin makes a node with the id of another one and places of its own, which does
// not count as one of the cluster; Run starts it.
func (c *Cluster) Twin(n *Node) *Node {
	c.t.Helper()
	twin := &Node{ID: n.ID, Dir: c.t.TempDir(), Binary: n.Binary, Logs: filepath.Join(c.logs(), fmt.Sprintf("twin-%d.log", n.ID)), cluster: c}
	Must(c.t, twin.place())
	c.t.Cleanup(twin.Kill)
	return twin
}

func (c *Cluster) add() *Node {
	n := &Node{ID: len(c.Nodes) + 1, Dir: c.t.TempDir(), Binary: c.binary, cluster: c}
	n.Logs = filepath.Join(c.logs(), fmt.Sprintf("node-%d.log", n.ID))
	Must(c.t, n.place())
	c.Nodes = append(c.Nodes, n)
	return n
}

// logs is a folder for logs: TRIVIUM_LOGS, kept after the test, or one
// that goes with it.
func (c *Cluster) logs() string {
	dir := os.Getenv("TRIVIUM_LOGS")
	if dir == "" {
		return c.t.TempDir()
	}
	dir = filepath.Join(dir, strings.ReplaceAll(c.t.Name(), "/", "_"))
	Must(c.t, os.MkdirAll(dir, 0o755))
	return dir
}

// place gives the node its addresses.
func (n *Node) place() error {
	if net := n.cluster.Net; net != nil {
		host := net.Host(n.ID) + ":"
		n.Addresses = Addresses{AMQP: host + "5672", MQTT: host + "1883", Kafka: host + "9092", HTTP: host + "15672"}
		n.Peers = host + "7420"
		return nil
	}
	for _, addr := range []*string{&n.AMQP, &n.MQTT, &n.Kafka, &n.HTTP, &n.Peers} {
		var err error
		if *addr, err = freeAddress(); err != nil {
			return err
		}
	}
	return nil
}

// Run starts the node (again) on the same data directory and addresses and
// waits until it is ready.
func (n *Node) Run() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	argv := append(serveArguments(n.Addresses, n.Dir), "--node-id", strconv.Itoa(n.ID))
	argv = append(argv, n.peerArguments()...)
	argv = append(append([]string{n.Binary}, argv...), n.cluster.config.Args...)
	if n.cluster.Net != nil {
		argv = n.cluster.Net.Command(n.ID, argv...)
	}
	n.bin, n.args = argv[0], argv[1:]
	n.env = slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "TRIVIUM_") }) // the tests' own
	user, password := n.login()
	n.env = append(n.env, "TRIVIUM_ADMIN_USER="+user, "TRIVIUM_ADMIN_PASSWORD="+password)
	if n.cluster.config.Faults {
		n.env = append(n.env, FaultsVariable+"="+n.faults())
	}
	if n.cluster.config.Lose {
		n.env = append(n.env, LoseVariable+"=1")
	}
	log, err := os.OpenFile(n.Logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	n.tee = log
	n.began.Store(true)
	if err := n.start(); err != nil {
		return fmt.Errorf("node %d: %w", n.ID, err)
	}
	return nil
}

// login is the administrator of the cluster.
func (n *Node) login() (user, password string) {
	if n.cluster.config.Guest {
		return "guest", "guest"
	}
	return ClusterUser, ClusterPassword
}

// peerArguments are those that make the node one of a cluster; the last --cluster
// counts.
func (n *Node) peerArguments() (argv []string) {
	if n.cluster.config.Nodes == 1 {
		return nil
	}
	argv = append(argv, "--cluster", n.Peers)
	if a := n.cluster.authority; a != nil {
		cert, key := a.Node(strconv.Itoa(n.ID), n.cluster.Net.Host(n.ID))
		argv = append(argv, "--cluster-ca", a.CA, "--cluster-cert", cert, "--cluster-key", key)
	}
	var seeds []string
	for _, other := range n.cluster.Nodes {
		if other != n && other.began.Load() && !other.Removed {
			seeds = append(seeds, other.Peers)
		}
	}
	if len(seeds) > 0 {
		argv = append(argv, "--join", strings.Join(seeds, ","))
	}
	return argv
}

// Kill ends the process with SIGKILL, paused or not, and waits for it.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kill()
}

// Stop ends the process with SIGTERM and returns its exit code.
func (n *Node) Stop() (code int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.terminate()
}

// Pause stops the process as it stands (SIGSTOP), until Continue.
func (n *Node) Pause() error { return n.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue lets a paused process go on.
func (n *Node) Continue() error { return n.cmd.Process.Signal(syscall.SIGCONT) }

// Ended is closed when the present process has ended.
func (n *Node) Ended() <-chan struct{} { return n.done }

// each does something with several nodes at once and joins the errors.
func (c *Cluster) each(nodes []*Node, do func(*Node) error) error {
	errs := make([]error, len(nodes))
	var all sync.WaitGroup
	for i, n := range nodes {
		all.Go(func() { errs[i] = do(n) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// RunAll starts the nodes side by side.
func (c *Cluster) RunAll(nodes ...*Node) error { return c.each(nodes, (*Node).Run) }

// end kills all nodes and shows what they wrote if the test has failed.
func (c *Cluster) end() {
	for _, n := range c.Nodes {
		n.Kill()
		if c.t.Failed() && n.cmd != nil {
			c.t.Logf("node %d wrote (end):\n%s", n.ID, n.Output())
		}
	}
}
