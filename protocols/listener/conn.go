package listener

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// conn is a connection's socket. It gives its places in the budgets back when
// it is closed. It embeds the concrete type, so that net.Buffers still reaches
// writev.
type conn struct {
	*net.TCPConn
	opt  *Options
	open *atomic.Int64 // of the listener's Stats

	// Written before the connection is handed out.
	remote, local net.Addr // as a PROXY header says; nil = the socket's
	head          []byte   // read ahead when there might have been a PROXY header
	secure        bool
	named         bool // see Rebindable
	user          string
	client        netip.Addr

	unknown atomic.Bool // counted in opt.Addresses
	once    sync.Once
}

// Read reads from the socket, after what was read ahead of it.
func (c *conn) Read(b []byte) (int, error) {
	if len(c.head) > 0 {
		n := copy(b, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// WriteTo keeps io.Copy from reading the socket past what was read ahead.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

// RemoteAddr is the client's address, not that of a proxy that tells.
func (c *conn) RemoteAddr() net.Addr {
	if c.remote != nil {
		return c.remote
	}
	return c.TCPConn.RemoteAddr()
}

// LocalAddr is the address that the client connected to, which may be that of
// a proxy that tells.
func (c *conn) LocalAddr() net.Addr {
	if c.local != nil {
		return c.local
	}
	return c.TCPConn.LocalAddr()
}

// Close closes the socket. Idempotent.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		c.known()
		for _, b := range c.opt.Budgets {
			b.give()
		}
		c.open.Add(-1)
	})
	return err
}

// count books the connection as one of its client that has not logged in.
func (c *conn) count() bool {
	if c.opt.Addresses == nil {
		return true
	}
	c.client = clientOf(c.RemoteAddr())
	if !c.opt.Addresses.take(c.client) {
		return false
	}
	c.unknown.Store(true)
	return true
}

func (c *conn) known() {
	if c.unknown.CompareAndSwap(true, false) {
		c.opt.Addresses.give(c.client)
	}
}

func (c *conn) socket() *conn { return c }

// socketOf returns the socket below a connection of this package; nil if it is
// of another.
func socketOf(nc net.Conn) *conn {
	if s, ok := nc.(interface{ socket() *conn }); ok {
		return s.socket()
	}
	return nil
}

// Secure reports whether nc, from a Listener or a Carrier, is encrypted on its way from
// the client.
func Secure(nc net.Conn) bool {
	if c, ok := nc.(*carried); ok {
		return c.peer.Secure
	}
	c := socketOf(nc)
	return c != nil && c.secure
}

// Rebindable reports whether nc, from a Listener, was opened by a web page by a host
// name that may have been pointed here by its owner: that it comes from the
// loopback says nothing about who asks for it. The page knows no password, so one
// who shows it is who he says.
func Rebindable(nc net.Conn) bool {
	if c, ok := nc.(*carried); ok {
		return c.peer.Named
	}
	c := socketOf(nc)
	return c != nil && c.named
}

// PeerUser returns the name in the client's certificate, as TLSOptions.PeerName
// chooses it. ok is false unless the client has shown a certificate that was
// verified and has such a name.
func PeerUser(nc net.Conn) (user string, ok bool) {
	if c, ok := nc.(*carried); ok {
		return c.peer.User, c.peer.User != ""
	}
	c := socketOf(nc)
	if c == nil || c.user == "" {
		return "", false
	}
	return c.user, true
}

// Authenticated tells that the client of nc has logged in: it no longer counts
// in Options.Addresses. Idempotent; for connections of other kinds it does
// nothing.
func Authenticated(nc net.Conn) {
	if c, ok := nc.(*carried); ok {
		c.known()
	} else if c := socketOf(nc); c != nil {
		c.known()
	}
}
