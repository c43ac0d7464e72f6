package transport

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Memory is a network inside one process, for tests. Nodes are known by their
// id, which is their address, too. A node that joins again, as after a restart,
// takes the place of its former self.
type Memory struct {
	timeout time.Duration

	mu    sync.Mutex
	nodes map[raft.ServerAddress]*raft.InmemTransport
	cut   map[[2]raft.ServerAddress]bool // from, to
}

// NewMemory returns a network without nodes, whose calls fail after timeout.
func NewMemory(timeout time.Duration) *Memory {
	return &Memory{
		timeout: timeout,
		nodes:   map[raft.ServerAddress]*raft.InmemTransport{},
		cut:     map[[2]raft.ServerAddress]bool{},
	}
}

// Join adds a node and returns its transport.
func (m *Memory) Join(id string) raft.Transport {
	addr, t := raft.NewInmemTransportWithTimeout(raft.ServerAddress(id), m.timeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes[addr] = t
	m.connect()
	return &memoryTransport{InmemTransport: t, net: m}
}

// memoryTransport takes itself out of the network when it is closed.
type memoryTransport struct {
	*raft.InmemTransport
	net *Memory
}

// Close implements raft.WithClose.
func (t *memoryTransport) Close() error {
	m := t.net
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr := t.LocalAddr(); m.nodes[addr] == t.InmemTransport {
		delete(m.nodes, addr)
		for _, other := range m.nodes {
			other.Disconnect(addr)
		}
	}
	for {
		select {
		case rpc := <-t.Consumer():
			rpc.Respond(nil, raft.ErrTransportShutdown)
		default:
			return t.InmemTransport.Close()
		}
	}
}

// Cut interrupts the way from one node to another; the way back is another one.
func (m *Memory) Cut(from, to string) { m.set(from, to, true) }

// Heal undoes Cut.
func (m *Memory) Heal(from, to string) { m.set(from, to, false) }

// Isolate cuts a node off from all others, both ways.
func (m *Memory) Isolate(id string) { m.setAll(id, true) }

// Rejoin undoes Isolate.
func (m *Memory) Rejoin(id string) { m.setAll(id, false) }

func (m *Memory) setAll(id string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other := range m.nodes {
		m.cut[[2]raft.ServerAddress{raft.ServerAddress(id), other}] = cut
		m.cut[[2]raft.ServerAddress{other, raft.ServerAddress(id)}] = cut
	}
	m.connect()
}

func (m *Memory) set(from, to string, cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[[2]raft.ServerAddress{raft.ServerAddress(from), raft.ServerAddress(to)}] = cut
	m.connect()
}

// connect makes all connections as they should be.
func (m *Memory) connect() {
	for from, t := range m.nodes {
		for to, peer := range m.nodes {
			if m.cut[[2]raft.ServerAddress{from, to}] && from != to {
				t.Disconnect(to)
			} else {
				t.Connect(to, peer)
			}
		}
	}
}
