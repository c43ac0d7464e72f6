package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/cluster"
	"github.com/trivium-mq/trivium/kernel/forward"
	"github.com/trivium-mq/trivium/protocols/admin"
	"github.com/trivium-mq/trivium/protocols/amqp"
)

// clusterName is shown in listings.
const clusterName = "trivium"

// frontEnd is one protocol's server.
type frontEnd interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// node is a running process: the replicas, the listeners, and while it leads the
// service.
type node struct {
	config   *config.Config
	memory   config.Memory // its shares worked out
	log      zerolog.Logger
	replicas *broker.Node
	sockets  *sockets
	fronts   []front
	registry *prometheus.Registry
	gate     *admin.Gate
	there    atomic.Bool   // replicas are
	opened   chan struct{} // closed when clients are accepted

	ctx    context.Context // ends when the node stops
	stop   context.CancelFunc
	wg     sync.WaitGroup
	failed chan error // first failure
	edge   exchange
	relays relays

	door    *door
	links   *forward.Server           // serves clients of other nodes while this one serves
	lasting map[string]*lastingServer // by protocol: their connections outlast a service

	tunnels sync.WaitGroup // acceptCarried, which ends with the replicas
}

// openNode binds every listener, opens the replicas and starts serving. A taken
// port or a locked data directory is a usageError. memory is the limit in bytes, 0
// = none. It returns when clients are served, here or by another node, or when that
// takes long because other nodes are missing. A node that waits to be let into a
// cluster gives up when ctx ends (context.Canceled); ctx means nothing later.
func openNode(ctx context.Context, c *config.Config, memory int64, log zerolog.Logger) (_ *node, err error) {
	n := &node{config: c, memory: c.Memory.Shared(memory), log: log, failed: make(chan error, 1), opened: make(chan struct{})}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.edge.init()
	defer func() {
		if err != nil {
			n.abandon()
		}
	}()
	if err := n.bind(); err != nil {
		return n, usageError{err}
	}
	n.registry = prometheus.NewRegistry()
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&frontMetrics{n.fronts, n.sockets.certificates})
	n.gate = n.newGate()
	n.acceptFronts("http") // a node that waits to be let in is alive, and not ready
	n.replicas, err = broker.OpenNode(ctx, broker.Config{
		Limits:  n.limits(memory),
		DataDir: c.Node.Data, NodeID: strconv.Itoa(c.Node.ID), Version: Version, Logger: log,
		Registerer: n.registry, Cluster: n.cluster(), Settings: c.Settings(), Tables: amqp.Tables{},
		Admin: broker.Admin{User: c.Admin.User, Password: c.Admin.Password, PasswordHash: c.Admin.PasswordHash},
	})
	if err != nil {
		return n, openError(err)
	}
	n.there.Store(true)
	if err := n.openDoor(); err != nil {
		return n, usageError{err}
	}
	n.replicas.OnYield(func(ctx context.Context) { _ = n.endService(ctx, false) })
	if err := n.start(); err != nil {
		if n.replicas.Refused() != nil { // while it was starting
			return n, usageError{err}
		}
		return n, err
	}
	return n, nil
}

// limits are the kernel's share of the memory, and of the disk.
func (n *node) limits(memory int64) broker.Limits {
	l := n.config.Limits()
	l.MemoryBytes, l.CacheBytes, l.RetainedMemory = memory, int64(n.memory.Cache), int64(n.memory.Retained)
	l.Placement.InFlightBytes, l.Placement.VolatileBytes = int64(n.memory.InFlight), int64(n.memory.Volatile)
	l.Placement.VolatilePartitionBytes = max(l.Placement.VolatileBytes/4, 1)
	l.Placement.DiskFloor = int64(n.config.Disk.Low)
	l.Placement.ScrubEvery, l.Placement.ScrubRate = n.config.Storage.ScrubInterval, int64(n.config.Storage.ScrubRate)
	return l
}

// bind binds the listeners that are on; the cluster's is the broker's own.
func (n *node) bind() (err error) {
	if n.sockets, err = newSockets(n.config, n.log); err != nil {
		return err
	}
	for _, s := range n.config.Sockets() {
		if s.Address.Off() || s.Protocol == "cluster" {
			continue
		}
		l, err := n.sockets.bind(s)
		if err != nil {
			return err
		}
		n.fronts = append(n.fronts, front{Socket: s, l: l})
	}
	return nil
}

// startWait is how long a node that does not find the others waits for them before
// it says that it has started.
const startWait = 3 * time.Second

// start begins to serve, and waits until somebody does.
func (n *node) start() error {
	if n.sockets.certificates != nil {
		n.wg.Go(func() { n.renewal().run(n.ctx) })
	}
	first := make(chan error, 1)
	n.wg.Go(func() { n.lead(first) })
	n.wg.Go(n.watchDoor)
	if err := n.await(first); err != nil {
		return err
	}
	close(n.opened)
	n.acceptFronts("amqp", "mqtt", "kafka")
	n.wg.Go(n.watchLeader)
	n.serveLasting()
	n.tunnels.Go(n.acceptCarried)
	return nil
}

// acceptFronts has the listeners of protocols taken from.
func (n *node) acceptFronts(protocols ...string) {
	for i := range n.fronts {
		f := &n.fronts[i]
		if !slices.Contains(protocols, f.Protocol) {
			continue
		}
		n.wg.Go(func() {
			if err := n.accept(f); err != nil {
				n.fail(fmt.Errorf("%s: %w", f.Name, err))
			}
		})
	}
}

// await waits until clients are served.
func (n *node) await(first <-chan error) error {
	var wait <-chan time.Time
	if !n.replicas.Alone() {
		wait = time.After(startWait)
	}
	for {
		here, there := n.edge.change(), n.replicas.Changed()
		if n.ready() == nil {
			return nil
		}
		select {
		case err := <-first:
			if err != nil && n.replicas.Alone() {
				return err
			}
		case err := <-n.failed:
			return err
		case <-here:
		case <-there:
		case <-wait:
			n.log.Warn().Err(n.ready()).Msg("nobody serves yet: waiting for a majority of the nodes")
			return nil
		}
	}
}

// fail notes the first failure, which ends the process.
func (n *node) fail(err error) {
	select {
	case n.failed <- err:
	default:
	}
}

func (n *node) renewal() renewal { return renewal{n.sockets.certificates, n.log} }

// reload takes what may change while the node runs: certificates.
func (n *node) reload() {
	if n.sockets.certificates == nil {
		n.log.Info().Msg("nothing to reload: no listener with TLS")
		return
	}
	n.renewal().now()
}

// openError makes what the user can mend a usage error.
func openError(err error) error {
	for _, mendable := range []error{broker.ErrLocked, broker.ErrFormat, broker.ErrIdentity, broker.ErrCluster, broker.ErrNotEmpty, broker.ErrAlone} {
		if errors.Is(err, mendable) {
			return usageError{err}
		}
	}
	if _, refused := errors.AsType[*cluster.Refusal](err); refused {
		return usageError{err}
	}
	return err
}

// newGate makes the HTTP server of the node.
func (n *node) newGate() *admin.Gate {
	return admin.NewGate(admin.GateConfig{
		Ready: n.ready, Opened: n.opened, Forward: n.forward, Cluster: stewardOf(n), Archive: func() admin.Archive { return n.replicas.Doorman() },
		Local:    func() admin.Local { return n.replicas.Doorman() },
		Gatherer: n.registry, Log: n.log.With().Str("listener", "http").Logger(),
	})
}

// newAdmin makes what answers HTTP while the node leads.
func (n *node) newAdmin(b *broker.Broker, log zerolog.Logger) *admin.Server {
	return admin.NewServer(b, admin.Config{Cluster: clusterName, Peers: n.replicas.Nodes, Mapper: amqp.Mapper{}, Listeners: n.listeners, Gatherer: n.registry, Log: log})
}

// listeners describes the sockets for listings.
func (n *node) listeners() []admin.Listener {
	var out []admin.Listener
	for _, f := range n.fronts {
		out = append(out, admin.Listener{Protocol: f.Name, Address: f.l.Addr()})
	}
	return out
}

// addresses tells where the front-ends listen.
func (n *node) addresses() map[string]string {
	out := map[string]string{}
	for _, f := range n.fronts {
		out[f.Name] = f.l.Addr().String()
	}
	return out
}

// errShutdown is the reason that clients are told, in RabbitMQ's words.
var errShutdown = errors.New("shutdown")

// shutdown has the clients of all protocols go, until ctx ends.
func (n *node) shutdown(ctx context.Context) {
	n.door.Shut(errShutdown) // what waits for a node that serves would hold up the rest
	n.shutLasting(ctx)
}

// abandon undoes a start that failed.
func (n *node) abandon() {
	n.stop()
	for _, f := range n.fronts {
		_ = f.l.Close()
	}
	if n.gate != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = n.gate.Shutdown(now)
	}
	n.wg.Wait()
	if n.links != nil {
		n.links.Close()
	}
	if n.replicas != nil {
		_ = n.replicas.Close()
	}
}

// close drains the clients, hands over to another node if there is one, and closes
// the replicas.
func (n *node) close(ctx context.Context) error {
	drain, cancel := context.WithTimeout(ctx, n.config.Node.DrainTimeout)
	defer cancel()
	for _, f := range n.fronts {
		_ = f.l.Close()
	}
	n.shutdown(drain)
	err := n.endService(drain, true)
	_ = n.gate.Shutdown(drain) // requests under way are cut in the end; that is no failure
	n.stop()
	n.wg.Wait()
	n.links.Close()
	err = errors.Join(err, n.replicas.Close())
	n.tunnels.Wait()
	return err
}
