package cluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/transport"
)

// Member is a node of the cluster, as this one sees it.
type Member struct {
	Node, Raft, Incarnation string
	Address                 string            // where nodes reach it
	Fronts                  map[string]string // where clients do, by listener
	Version                 string
	Learner                 bool // it has no vote in a group of which this node has a replica
	Draining                bool
	Self                    bool
	Reachable               bool // within the last seconds; true for Self
	Low                     bool // on disk, as it has told
	Behind                  bool // it lacks much of a log, as the leader of that has told
	// Protocols are those whose clients it takes streams of (OpenClient), as it has told;
	// nil: it has not, within the last seconds.
	Protocols []kernel.Protocol
}

// Takes reports whether the node takes streams of clients of a protocol (OpenClient), for
// all that is known. What it does not take is carried to it as bytes (DialTunnel).
func (m *Member) Takes(p kernel.Protocol) bool {
	return m.Protocols == nil || slices.Contains(m.Protocols, p)
}

// taken are the protocols whose clients a node takes streams of. Earlier versions do
// not say which.
func (i *Info) taken() []kernel.Protocol {
	switch {
	case !i.Clients:
		return []kernel.Protocol{}
	case len(i.Protocols) == 0:
		return []kernel.Protocol{"amqp"}
	}
	return i.Protocols
}

// fronts are addresses in a fixed order.
func fronts(of map[string]string) []catalog.Front {
	var out []catalog.Front
	for _, name := range slices.Sorted(maps.Keys(of)) {
		out = append(out, catalog.Front{Name: name, Address: of[name]})
	}
	return out
}

// Members are the nodes of the cluster, by id; none before Attach.
func (n *Node) Members() []Member {
	r := n.replicas.Load()
	if r == nil {
		return nil
	}
	self := n.Self()
	votes := map[string]int{}
	for i := range r.Groups {
		for _, s := range r.Groups[i].Raft.Servers() {
			if !s.Learner {
				votes[s.ID]++
			}
		}
	}
	var out []Member
	r.Catalog.State().Nodes(func(c *catalog.Node) {
		m := Member{Node: c.ID, Raft: c.Raft, Incarnation: c.Incarnation, Address: c.Address, Version: c.Version, Draining: c.Draining || c.Leaving,
			Fronts: map[string]string{}, Learner: votes[c.Raft] < len(r.Groups), Self: c.Raft == self.Raft}
		for _, f := range c.Fronts {
			m.Fronts[f.Name] = f.Address
		}
		told := n.fresh(c.Raft)
		m.Reachable, m.Low = m.Self || told != nil, told != nil && told.Low
		if told != nil {
			m.Protocols = told.taken()
		}
		m.Behind = n.behind(c.Raft)
		out = append(out, m)
	})
	return out
}

// fresh returns what a node has told within the last seconds, nil if it has not.
func (n *Node) fresh(raftID string) *Info {
	return n.heard(raftID, time.Now().Add(-freshTime))
}

// heard returns what a member that is not refused has told of itself since then, nil if
// nothing.
func (n *Node) heard(raftID string, since time.Time) *Info {
	if a := n.met.get(raftID); a.info != nil && a.refused == nil && !a.at.Before(since) {
		return a.info
	}
	return nil
}

func (n *Node) sharedSecret() []byte {
	if s := n.secret.Load(); s != nil {
		return *s
	}
	return n.cfg.Secret
}

// meetAll exchanges with all members how they are, over and over. One that does not
// answer holds up nobody.
func (n *Node) meetAll() {
	tick := time.NewTicker(meetEvery)
	defer tick.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	var busy sync.Map // Raft names
	for {
		for _, p := range n.others() {
			address, err := n.resolve(p.Raft)
			if err != nil {
				continue
			}
			if _, asked := busy.LoadOrStore(p.Raft, true); asked {
				continue
			}
			work.Go(func() {
				defer busy.Delete(p.Raft)
				n.meetOne(p, address)
			})
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// meetOne exchanges with another member how they are.
func (n *Node) meetOne(p peer, address string) {
	err := n.exchange(n.ctx, p.Raft, address)
	r, refused := errors.AsType[*Refusal](err)
	if refused && r.From != "" && expelled(r) {
		n.expel(r)
	}
	if n.ctx.Err() == nil {
		// No answer in time may be a busy machine (see freshTime), and one that starts is there.
		starting := refused && r.Code == transport.CodeStarting
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !starting {
			n.met.missed(p.Raft)
		}
		if !starting {
			n.complain(p, address, err)
		}
	}
	n.stir()
}

// complain logs that a member is not reached, and that it is again.
func (n *Node) complain(p peer, address string, err error) {
	key := p.Raft
	before, down := n.complaints.Load(key)
	switch {
	case err == nil && down:
		n.complaints.Delete(key)
		n.log.Info().Str("peer", p.Node).Msg("the node is reached again")
	case err != nil && (!down || time.Since(before.(time.Time)) > complainEvery):
		n.complaints.Store(key, time.Now())
		n.log.Warn().Err(err).Str("peer", p.Node).Str("address", address).Msg("a node is not reached")
	}
}

// others are the other members, by the catalog, or by the book until that knows some.
func (n *Node) others() []peer {
	var out []peer
	self := n.Self()
	if r := n.replicas.Load(); r != nil {
		r.Catalog.State().Nodes(func(m *catalog.Node) {
			if m.Raft != self.Raft {
				out = append(out, peer{Node: m.ID, Raft: m.Raft, Incarnation: m.Incarnation, Address: m.Address})
			}
		})
	}
	if len(out) == 0 {
		return n.book.list()
	}
	return out
}

// answerMeet answers a node that tells how it is.
func (n *Node) answerMeet(_ context.Context, from Identity, req *meetRequest) (*meetReply, error) {
	err := n.belongs(from) // it may have been removed since it has said hello
	if err == nil {
		err = n.told(from, req.Info)
	}
	if err != nil {
		return &meetReply{Refused: asRefusal(err)}, nil
	}
	return &meetReply{Info: n.info()}, nil
}

// stir wakes the reconciler.
func (n *Node) stir() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}
