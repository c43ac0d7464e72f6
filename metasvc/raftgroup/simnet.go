package raftgroup

import (
	"cmp"
	"math/rand"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// SimNet is several replicas of a group without the Raft library: no goroutine, no
// socket, no timer. Time passes in Advance and nowhere else, all chance comes from one
// source, so that a test can replay a history from a seed. What the replicas keep is
// in the write-ahead log and the checkpoint stores that they are given.
//
// It has the guarantees of Raft, and no more: at most one leader in a term, who has all
// that was committed; an entry is committed when a majority has synced it; messages
// are lost, delayed, and overtake each other; and the end of a log that was not
// committed may go or stay. What metasvc/raftgroup promises beyond that is as there:
// the outcomes of Propose, Watch, the lease, Install, checkpoints to those who lag.
// Members do not change.
//
// It is not safe for concurrent use.
type SimNet struct {
	rng   *rand.Rand
	ids   []string
	nodes []*SimNode // nil: not running
	now   time.Duration
	links [][]SimLink // from, to
	queue []simMessage
	count uint64 // of messages sent, for their order

	// Seen, if set, is told of each entry that is committed, once.
	Seen      func(*raft.Log)
	committed uint64
	leaders   map[uint64]int // by term, to see that there is never a second one
	// Broken is what a simulation of Raft must never come to.
	Broken string

	Elections, Truncations, Installs, Transfers int
}

// SimLink is one direction between two nodes.
type SimLink struct {
	Cut   bool
	Loss  int           // messages lost of a hundred
	Delay time.Duration // at most
}

// Timing of the simulated groups: fractions of what is usual, so that more happens.
const (
	SimHeartbeat = 100 * time.Millisecond // without a word before an election
	SimLease     = 80 * time.Millisecond
	simBeat      = 20 * time.Millisecond
	simQuantum   = 5 * time.Millisecond // between two looks at the timers
	simBatch     = 16                   // in a message
)

// NewSimNet returns a net of nodes of these names, none of which runs.
func NewSimNet(rng *rand.Rand, ids ...string) *SimNet {
	n := &SimNet{rng: rng, ids: ids, nodes: make([]*SimNode, len(ids)), leaders: make(map[uint64]int)}
	for range ids {
		n.links = append(n.links, make([]SimLink, len(ids)))
	}
	n.Heal()
	return n
}

// Now is the time that has passed.
func (n *SimNet) Now() time.Duration { return n.now }

// Link returns a direction between two nodes, to be changed.
func (n *SimNet) Link(from, to int) *SimLink { return &n.links[from][to] }

// Heal makes all links good ones.
func (n *SimNet) Heal() {
	for _, row := range n.links {
		for i := range row {
			row[i] = SimLink{Delay: 3 * time.Millisecond}
		}
	}
}

// Connected says whether bytes go both ways.
func (n *SimNet) Connected(a, b int) bool { return a == b || !n.links[a][b].Cut && !n.links[b][a].Cut }

// Drop ends a node, as when its process is killed.
func (n *SimNet) Drop(i int) { n.nodes[i] = nil }

// Advance lets time pass: messages arrive, elections begin.
func (n *SimNet) Advance(d time.Duration) {
	for end := n.now + d; n.now < end; {
		n.now = min(end, n.now+simQuantum)
		for len(n.queue) > 0 && n.queue[0].due <= n.now {
			m := n.queue[0]
			n.queue = n.queue[1:]
			n.deliver(m)
		}
		for _, node := range n.nodes {
			if node != nil && node.awake() {
				node.tick()
			}
		}
	}
}

func (n *SimNet) send(m simMessage) {
	link := n.links[m.from][m.to]
	if link.Cut || n.rng.Intn(100) < link.Loss {
		return
	}
	m.due = n.now + time.Duration(n.rng.Int63n(int64(link.Delay)+1))
	n.enqueue(m)
}

func (n *SimNet) enqueue(m simMessage) {
	n.count++
	m.order = n.count
	at, _ := slices.BinarySearchFunc(n.queue, m, func(a, b simMessage) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.order, b.order))
	})
	n.queue = slices.Insert(n.queue, at, m)
}

func (n *SimNet) deliver(m simMessage) {
	node := n.nodes[m.to]
	switch {
	case node == nil || n.links[m.from][m.to].Cut:
	case !node.awake():
		m.due = node.asleep
		n.enqueue(m)
	default:
		node.receive(&m)
	}
}

// commit takes note of what is committed: nobody ever has another entry there.
func (n *SimNet) commit(node *SimNode, to uint64) {
	for n.committed < to {
		var l raft.Log
		if !node.ok(node.cfg.Log.GetLog(n.committed+1, &l)) {
			return
		}
		n.committed++
		if n.Seen != nil {
			n.Seen(&l)
		}
	}
}

// lead takes note of a leader.
func (n *SimNet) lead(term uint64, node int) {
	if old, ok := n.leaders[term]; ok && old != node {
		n.Broken = "two leaders in a term"
	}
	n.leaders[term] = node
	n.Elections++
}

// configuration is that of the group.
func (n *SimNet) configuration() []byte {
	var c raft.Configuration
	for _, id := range n.ids {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(id), Address: raft.ServerAddress(id)})
	}
	return raft.EncodeConfiguration(c)
}

func (n *SimNet) servers() (list []Server) {
	for _, id := range n.ids {
		list = append(list, Server{ID: id, Address: id})
	}
	return list
}
