package main

import (
	"context"
	"io"
	"net"
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

// run copies both ways until both have ended, one has failed, or another node leads.
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
	other.Go(func() { pour(r.client, r.tunnel) })
	pour(r.tunnel, r.client)
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

// pour copies from one end to the other, and passes on that it has ended.
func pour(to, from net.Conn) {
	buf := relayBuffers.Get().(*[]byte)
	defer relayBuffers.Put(buf)
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buf)
	half, ok := to.(interface{ CloseWrite() error })
	if err == nil && ok && half.CloseWrite() == nil {
		return
	}
	_ = to.Close()
	_ = from.Close()
}
