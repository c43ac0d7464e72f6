package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

const (
	// tunnelChunk is how many bytes of a tunnel are encrypted at once.
	tunnelChunk = 16 << 10
	// maxTunnelDials bounds the tunnels to one node that are being made.
	maxTunnelDials = 16
	// partingTime is how long the last bytes of a closed tunnel may take.
	partingTime = 5 * time.Second
)

// DialTunnel connects to the node of that Raft name, for bytes of a client. The node
// gets meta, at most transport.MaxMeta bytes, with the connection. An error that the
// node does not want it is a [*Refusal].
func (n *Node) DialTunnel(ctx context.Context, raftID string, meta []byte) (net.Conn, error) {
	addr, err := n.resolve(raftID)
	if err != nil {
		return nil, err
	}
	end, err := n.tunnels.begin(ctx, raftID)
	if err != nil {
		return nil, err
	}
	defer end()
	c, _, err := n.mux.Dial(ctx, addr, transport.Hello{Kind: transport.KindTunnel, To: raftID, Meta: meta})
	if err != nil {
		return nil, err
	}
	return n.tunnels.open(c)
}

// AcceptTunnel waits for the next connection that a node has made with DialTunnel, and
// returns it with what came along. After Close the error is net.ErrClosed.
func (n *Node) AcceptTunnel() (net.Conn, []byte, error) {
	c, err := n.mux.Listener(transport.KindTunnel).Accept()
	if err != nil {
		return nil, nil, err
	}
	in := c.(*transport.Conn)
	t, err := n.tunnels.open(in.NetConn())
	return t, in.Hello.Meta, err
}

// tunnels are the ones that are open.
type tunnels struct {
	mu     sync.Mutex
	list   map[*tunnel]struct{}
	dials  map[string]chan struct{} // places, by Raft name
	closed bool
	work   sync.WaitGroup
}

func newTunnels() *tunnels {
	return &tunnels{list: map[*tunnel]struct{}{}, dials: map[string]chan struct{}{}}
}

// begin waits until a tunnel to a node may be dialled, which calls end when that is over.
// A crowd of clients goes through in turns, and leaves the processors to others; those
// who wait for a node that does not answer are not in the way of those to another one.
func (all *tunnels) begin(ctx context.Context, raftID string) (end func(), err error) {
	all.mu.Lock()
	places := all.dials[raftID]
	if places == nil {
		if len(all.dials) > maxAcquaintances {
			clear(all.dials) // of nodes long gone
		}
		places = make(chan struct{}, maxTunnelDials)
		all.dials[raftID] = places
	}
	all.mu.Unlock()
	select {
	case places <- struct{}{}:
		return func() { <-places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// open makes a tunnel of a connection, which it closes if it cannot.
func (all *tunnels) open(c net.Conn) (net.Conn, error) {
	t := &tunnel{Conn: c, all: all, done: make(chan struct{})}
	patient(t.socket())
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	all.list[t] = struct{}{}
	if _, secured := c.(*tls.Conn); secured {
		var out net.Conn
		t.pipe, out = net.Pipe()
		all.work.Go(func() { t.carry(out) })
	}
	return t, nil
}

// close ends all tunnels and waits for what carries their bytes.
func (all *tunnels) close() {
	all.mu.Lock()
	all.closed = true
	list := make([]*tunnel, 0, len(all.list))
	for t := range all.list {
		list = append(list, t)
	}
	all.mu.Unlock()
	for _, t := range list {
		_ = t.Close()
		_ = t.socket().Close()
	}
	all.work.Wait()
}

// tunnel is one end of a tunnel. With TLS a Write passes a pipe: so one that runs into
// its deadline can be gone on with, as on a socket; tls.Conn could not.
type tunnel struct {
	net.Conn // a socket, or a TLS connection
	all      *tunnels
	pipe     net.Conn      // nil without TLS
	half     atomic.Bool   // CloseWrite
	done     chan struct{} // closed by Close
	once     sync.Once
}

// carry writes what comes out of the pipe, and says goodbye at its end.
func (t *tunnel) carry(out net.Conn) {
	_, err := io.CopyBuffer(struct{ io.Writer }{t.Conn}, struct{ io.Reader }{out}, make([]byte, tunnelChunk))
	_ = out.Close() // whoever writes learns that nothing is carried any more
	if err == nil && t.half.Load() && t.Conn.(*tls.Conn).CloseWrite() == nil {
		<-t.done // Read goes on until then
	}
	_ = t.Conn.Close()
}

func (t *tunnel) socket() net.Conn {
	c := t.Conn
	for {
		below, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = below.NetConn()
	}
}

// Write implements net.Conn.
func (t *tunnel) Write(b []byte) (int, error) {
	if t.pipe != nil {
		return t.pipe.Write(b)
	}
	return t.Conn.Write(b)
}

// SetWriteDeadline implements net.Conn.
func (t *tunnel) SetWriteDeadline(at time.Time) error {
	if t.pipe != nil {
		return t.pipe.SetWriteDeadline(at)
	}
	return t.Conn.SetWriteDeadline(at)
}

// SetDeadline implements net.Conn.
func (t *tunnel) SetDeadline(at time.Time) error {
	if err := t.SetWriteDeadline(at); err != nil {
		return err
	}
	return t.Conn.SetReadDeadline(at)
}

// CloseWrite says that nothing more comes: the other side reads all, and then io.EOF.
func (t *tunnel) CloseWrite() error {
	if t.pipe != nil {
		t.half.Store(true)
		return t.pipe.Close()
	}
	half, ok := t.Conn.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}

// Close implements net.Conn. What was written before still goes out, if the other side
// takes it.
func (t *tunnel) Close() error {
	err := net.ErrClosed
	t.once.Do(func() {
		t.all.mu.Lock()
		delete(t.all.list, t)
		t.all.mu.Unlock()
		defer close(t.done)
		if t.pipe == nil {
			err = t.Conn.Close()
			return
		}
		_ = t.Conn.SetReadDeadline(time.Unix(1, 0))
		_ = t.socket().SetWriteDeadline(time.Now().Add(partingTime))
		err = t.pipe.Close() // carry closes the connection
	})
	return err
}
