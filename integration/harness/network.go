package harness

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Link is what becomes of the packets from one host to another. The zero value
// lets them through.
type Link struct {
	Cut   bool          // all are lost
	Loss  float64       // share of packets lost, 0 to 1
	Delay time.Duration // each is held for so long; order is kept
}

// Network connects network namespaces, one a node, by a switch that runs in the
// test's own process: every packet between two hosts passes it, so links can be
// cut one way or both ways, delayed and made lossy with nothing but TUN devices.
// Host 0 is the test itself, whose sockets need no namespace.
type Network struct {
	prefix string // of addresses, with its last dot
	ports  []*port
	lost   atomic.Int64

	mu    sync.RWMutex
	links map[[2]int]Link
}

// port is one host's end of the switch.
type port struct {
	space string // name of the namespace; "" is the test's own
	dev   device
	late  []chan packet // delayed packets by their sender
}

// device is a TUN device: a read returns one IP packet, and a write takes one.
type device interface {
	Read([]byte) (int, error)
	Write([]byte) (int, error)
	Close() error
}

type packet struct {
	due time.Time
	b   []byte
}

// Host returns the address of a host.
func (n *Network) Host(host int) string { return fmt.Sprintf("%s%d", n.prefix, host+1) }

// Set says what becomes of packets from one host to another from now on; what is
// held back already is still delivered.
func (n *Network) Set(from, to int, l Link) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[[2]int{from, to}] = l
}

// Both is Set in both directions.
func (n *Network) Both(a, b int, l Link) {
	n.Set(a, b, l)
	n.Set(b, a, l)
}

// Heal makes all links whole.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.links)
}

// Lost is how many packets did not arrive because of a link.
func (n *Network) Lost() int64 { return n.lost.Load() }

func (n *Network) link(from, to int) Link {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.links[[2]int{from, to}]
}

// maxHeld is how many packets a delayed link holds; further ones are lost.
const maxHeld = 4096

// pump moves packets from a host until its device is closed.
func (n *Network) pump(from int) {
	b := make([]byte, 1<<16)
	for {
		size, err := n.ports[from].dev.Read(b)
		if err != nil {
			return
		}
		n.forward(from, b[:size])
	}
}

func (n *Network) forward(from int, b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 { // IPv4 only: the hosts have no other address
		return
	}
	to := int(b[19]) - 1
	if to < 0 || to >= len(n.ports) || to == from {
		return
	}
	l := n.link(from, to)
	switch {
	case l.Cut, l.Loss > 0 && rand.Float64() < l.Loss:
		n.lost.Add(1)
	case l.Delay > 0:
		select {
		case n.ports[to].late[from] <- packet{time.Now().Add(l.Delay), append([]byte(nil), b...)}:
		default:
			n.lost.Add(1)
		}
	default:
		_, _ = n.ports[to].dev.Write(b) // a full queue or a device that goes loses packets, as networks do
	}
}

// deliver writes delayed packets from one host to another when they are due.
func (n *Network) deliver(from, to int, stop <-chan struct{}) {
	p := n.ports[to]
	for {
		select {
		case <-stop:
			return
		case held := <-p.late[from]:
			timer := time.NewTimer(time.Until(held.due))
			select {
			case <-stop:
				timer.Stop()
				return
			case <-timer.C:
			}
			if n.link(from, to).Cut {
				n.lost.Add(1)
				continue
			}
			_, _ = p.dev.Write(held.b)
		}
	}
}
