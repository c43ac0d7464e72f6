package listener

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// Peer is what a listener knows of a client, for the node that serves it when that
// is another one: it gets the client's bytes and this.
type Peer struct {
	Remote string `json:"remote"` // the client's address
	Local  string `json:"local"`  // that it has connected to
	Secure bool   `json:"secure,omitempty"`
	Named  bool   `json:"named,omitempty"` // see Rebindable
	User   string `json:"user,omitempty"`  // of its certificate
	Node   string `json:"node,omitempty"`  // that it has connected to, as the cluster knows it
}

// PeerOf returns what is known of the client of nc, from a Listener of this node.
func PeerOf(nc net.Conn) Peer {
	p := Peer{Remote: nc.RemoteAddr().String(), Local: nc.LocalAddr().String()}
	if c := socketOf(nc); c != nil {
		p.Secure, p.Named, p.User = c.secure, c.named, c.user
	}
	return p
}

// Append appends the peer to dst, as ReadPeer reads it.
func (p Peer) Append(dst []byte) ([]byte, error) {
	b, err := json.Marshal(p)
	return append(dst, b...), err
}

// ReadPeer reads what Append has written.
func ReadPeer(b []byte) (p Peer, err error) {
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("peer: %w", err)
	}
	return p, nil
}

// Carrier makes connections of clients of other nodes' listeners, within budgets of
// its own.
type Carrier struct {
	Budgets   []*Budget
	Addresses *Addresses
	// Open counts those that are open; it must not be nil.
	Open *atomic.Int64
}

// Carry returns nc, which carries the bytes of a client of another node, as a
// connection of that client. It closes nc if there is no place for it (ErrBudget,
// ErrAddressBudget) or if p makes no sense.
func (r *Carrier) Carry(nc net.Conn, p Peer) (net.Conn, error) {
	c := &carried{Conn: nc, peer: p, carrier: r}
	err := c.enter()
	if err != nil {
		_ = nc.Close()
		return nil, err
	}
	return c, nil
}

// carried is a connection whose client is connected to another node.
type carried struct {
	net.Conn
	peer          Peer
	carrier       *Carrier
	remote, local net.Addr
	client        netip.Addr
	unknown       atomic.Bool
	once          sync.Once
}

func (c *carried) enter() error {
	remote, err := netip.ParseAddrPort(c.peer.Remote)
	if err != nil {
		return fmt.Errorf("client of another node: %w", err)
	}
	local, err := netip.ParseAddrPort(c.peer.Local)
	if err != nil {
		return fmt.Errorf("client of another node: %w", err)
	}
	c.remote, c.local = net.TCPAddrFromAddrPort(remote), net.TCPAddrFromAddrPort(local)
	if !takeAll(c.carrier.Budgets) {
		return ErrBudget
	}
	if a := c.carrier.Addresses; a != nil {
		c.client = clientOf(c.remote)
		if !a.take(c.client) {
			for _, b := range c.carrier.Budgets {
				b.give()
			}
			return ErrAddressBudget
		}
		c.unknown.Store(true)
	}
	c.carrier.Open.Add(1)
	return nil
}

// RemoteAddr is the client's address.
func (c *carried) RemoteAddr() net.Addr { return c.remote }

// LocalAddr is the address of the other node that the client connected to.
func (c *carried) LocalAddr() net.Addr { return c.local }

// Close closes the connection. Idempotent.
func (c *carried) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.known()
		for _, b := range c.carrier.Budgets {
			b.give()
		}
		c.carrier.Open.Add(-1)
	})
	return err
}

// CloseWrite says goodbye: nothing is written any more, and Read goes on.
func (c *carried) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

func (c *carried) known() {
	if c.unknown.CompareAndSwap(true, false) {
		c.carrier.Addresses.give(c.client)
	}
}

// Via returns the node whose listener the client of nc is connected to, "" if it is
// this one.
func Via(nc net.Conn) string {
	if c, ok := nc.(*carried); ok {
		return c.peer.Node
	}
	return ""
}
