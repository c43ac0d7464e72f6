package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// relayBuffer is how many bytes of a connection are on their way through a node,
	// each way.
	relayBuffer = 32 << 10
	// leaderless is how long nobody may lead before the clients of this node are cut
	// off: another node may know more.
	leaderless = 3 * time.Second
	// farewell is how long a client may take to go when the node that served it has
	// ended the connection: until then it can read the last words.
	farewell = 2 * time.Second
	// stalled is how long a client may take nothing at all of what waits for it. It is
	// longer than servers bear; that they have closed such a connection is not seen here
	// while its bytes are in the way.
	stalled = 2 * time.Minute
)

var relayBuffers = sync.Pool{New: func() any { b := make([]byte, relayBuffer); return &b }}

// relay is a client of this node whose bytes are carried to another one.
type relay struct {
	client, tunnel net.Conn
	to             string // the node that led when the tunnel was made
}

func (r *relay) close() {
	_ = r.client.Close()
	_ = r.tunnel.Close()
}

// relays are those that are open. A node that no longer leads, because it hangs or
// cannot be reached, would keep its clients for ever: they are cut off.
type relays struct {
	mu   sync.Mutex
	open map[*relay]struct{}
}

// run copies both ways until the other node has ended, one has failed, or another node
// leads.
func (all *relays) run(n *node, r *relay) {
	all.mu.Lock()
	if all.open == nil {
		all.open = make(map[*relay]struct{})
	}
	all.open[r] = struct{}{}
	all.mu.Unlock()
	stop := context.AfterFunc(n.ctx, r.close)
	if leader := n.replicas.Leader(); leader != r.to && leader != "" {
		r.close() // it has changed before the relay was in the list
	}
	var other sync.WaitGroup
	other.Go(r.deliver)
	r.bring()
	other.Wait()
	stop()
	r.close()
	all.mu.Lock()
	delete(all.open, r)
	all.mu.Unlock()
}

// cut closes the relays to all nodes but one.
func (all *relays) cut(but string) (n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for r := range all.open {
		if r.to != but {
			r.close()
			n++
		}
	}
	return n
}

// watchLeader cuts relays off when another node leads, until the node stops.
func (n *node) watchLeader() {
	for {
		changed, leader := n.replicas.Changed(), n.replicas.Leader()
		var wait <-chan time.Time
		if leader == "" {
			wait = time.After(leaderless)
		} else if cut := n.relays.cut(leader); cut > 0 {
			n.log.Info().Int("clients", cut).Str("leader", leader).Msg("clients of a node that no longer leads are cut off")
		}
		select {
		case <-changed:
		case <-wait:
			if cut := n.relays.cut(""); cut > 0 {
				n.log.Warn().Int("clients", cut).Msg("nobody leads: clients are cut off")
			}
			select {
			case <-changed:
			case <-n.ctx.Done():
				return
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// bring carries what the client sends until it ends. When the other node takes no more,
// what comes is thrown away: the client may still be reading why.
func (r *relay) bring() {
	if pour(r.tunnel, r.client) == nil {
		if closeWrite(r.tunnel) != nil {
			r.close()
		}
		return
	}
	if r.client.SetReadDeadline(time.Now().Add(farewell)) == nil {
		_ = pour(io.Discard, r.client)
	}
	r.close()
}

// deliver carries what the client gets until that ends. A client that then stays is cut
// off: it would hold a place here for ever.
func (r *relay) deliver() {
	_ = pour(patient{r.client, stalled}, r.tunnel)
	if closeWrite(r.client) != nil || r.client.SetReadDeadline(time.Now().Add(farewell)) != nil {
		r.close()
	}
}

// patient writes for as long as some of it goes.
type patient struct {
	net.Conn
	patience time.Duration
}

// Write implements io.Writer.
func (p patient) Write(b []byte) (n int, err error) {
	for n < len(b) {
		if err := p.SetWriteDeadline(time.Now().Add(p.patience)); err != nil {
			return n, err
		}
		m, err := p.Conn.Write(b[n:])
		n += m
		if err != nil && (m == 0 || !errors.Is(err, os.ErrDeadlineExceeded)) {
			return n, err
		}
	}
	return n, nil
}

// pour copies all that comes. While little does, it needs no more memory than a small
// buffer: most connections are idle most of the time.
func pour(to io.Writer, from io.Reader) error {
	var small [512]byte
	for {
		n, err := pass(to, from, small[:])
		if n == len(small) && err == nil {
			err = pourMuch(to, from)
		}
		switch err {
		case nil:
		case io.EOF:
			return nil
		default:
			return err
		}
	}
}

// pourMuch copies with a large buffer until less comes.
func pourMuch(to io.Writer, from io.Reader) error {
	buf := relayBuffers.Get().(*[]byte)
	defer relayBuffers.Put(buf)
	for {
		if n, err := pass(to, from, *buf); err != nil || n < len(*buf)/8 {
			return err
		}
	}
}

// pass copies what one read brings.
func pass(to io.Writer, from io.Reader, buf []byte) (n int, err error) {
	n, err = from.Read(buf)
	if n > 0 {
		if _, wrong := to.Write(buf[:n]); wrong != nil {
			return n, wrong
		}
	}
	return n, err
}

// closeWrite tells the other end of c that nothing more comes.
func closeWrite(c net.Conn) error {
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return errors.ErrUnsupported
	}
	return half.CloseWrite()
}
