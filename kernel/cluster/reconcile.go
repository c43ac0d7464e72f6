package cluster

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/metasvc"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

const (
	// observeEvery is how often it is looked who leads.
	observeEvery = 100 * time.Millisecond
	// reconcileEvery is how often members are compared, unless something stirs.
	reconcileEvery = 250 * time.Millisecond
	// changeTime bounds one change of the members of a group.
	changeTime = 10 * time.Second
	// changePause follows a change that has failed.
	changePause = time.Second
	// complainEvery is how often one reason is logged.
	complainEvery = time.Minute
	// markEvery is how far apart the marks are that a learner has to have reached.
	markEvery = 500 * time.Millisecond

	// maxVoters vote in a group; in the catalog's, once there are as many nodes,
	// maxCatalogVoters.
	maxVoters        = 3
	maxCatalogVoters = 5
)

// leader is who leads a group in a term.
type leader struct {
	raft string
	term uint64
}

// leaderOf returns who leads a group as this node sees it, the zero leader if that
// changes just now.
func leaderOf(g *Group) leader {
	_, id := g.Raft.Leader()
	l := leader{id, g.Raft.Term()}
	if _, again := g.Raft.Leader(); again != id {
		return leader{}
	}
	return l
}

// observe notes who leads and what others have promised, keeps the book of addresses, and finds out that this node
// was removed, until the end.
func (n *Node) observe() {
	tick := time.NewTicker(observeEvery)
	defer tick.Stop()
	seen := map[uint32]leader{}
	ledger := ledger{node: n, at: time.Now()}
	defer ledger.write(true)
	for {
		r, self := n.replicas.Load(), n.Self()
		for i := range r.Groups {
			id := r.Groups[i].ID
			l := leaderOf(&r.Groups[i])
			if l.raft != "" && l.raft != self.Raft && l == seen[id] { // the term is that of the leader, and no later one
				n.seen.led(id, l.raft, l.term)
			}
			seen[id] = l
		}
		n.observeSelf(self)
		n.seen.settle(r)
		ledger.write(false)
		if n.keys != nil {
			n.keys.warn(time.Now())
		}
		peers, lone := n.others(), n.lone(r, self)
		if lone {
			peers = nil // whom the book has was removed
		}
		if lone || len(peers) > 0 {
			if err := n.book.set(self.Cluster, peers); err != nil {
				n.log.Warn().Err(err).Msg("the addresses of the other nodes are not written down")
			}
		}
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// lone reports whether this node is the only member, by the catalog and by the groups'
// own configurations: a catalog that is behind may only know of it.
func (n *Node) lone(r *Replicas, self Identity) bool {
	known, others := false, false
	r.Catalog.State().Nodes(func(m *catalog.Node) {
		known = known || m.Raft == self.Raft
		others = others || m.Raft != self.Raft
	})
	for i := range r.Groups {
		if s := r.Groups[i].Raft.Servers(); len(s) != 1 || s[0].ID != self.Raft {
			return false
		}
	}
	return known && !others
}

// observeSelf looks whether this node is still a member. Whether its directory is the
// one that others know is for them to say: a node that is alone may have a new node
// file.
func (n *Node) observeSelf(self Identity) {
	s := n.replicas.Load().Catalog.State()
	if m, ok := s.Node(self.Node); s.Removed(self.Raft) || ok && m.Raft != self.Raft {
		if err := n.belongs(self); err != nil {
			n.expel(asRefusal(err))
		}
	}
}

// reconcile keeps what this node leads in line with the catalog, one change at a time,
// until the end.
func (n *Node) reconcile() {
	tick := time.NewTicker(reconcileEvery)
	defer tick.Stop()
	marks := map[uint32]*mark{}
	said := map[uint32]complaint{}
	for {
		pause := false
		r := n.replicas.Load()
		for i := range r.Groups {
			g := &r.Groups[i]
			if marks[g.ID] == nil {
				marks[g.ID] = &mark{}
			}
			if leads, _ := g.Raft.Leader(); !leads || n.Refused() != nil {
				*marks[g.ID] = mark{}
				continue
			}
			marks[g.ID].note(g.Raft.CommitIndex())
			if err := n.align(g, marks[g.ID]); err != nil && n.ctx.Err() == nil {
				if c := said[g.ID]; c.text != err.Error() || time.Since(c.at) > complainEvery {
					said[g.ID] = complaint{err.Error(), time.Now()}
					n.log.Warn().Err(err).Uint32("group", g.ID).Msg("a change in the cluster has failed; it is tried again")
				}
				pause = true
			}
		}
		if pause {
			select {
			case <-time.After(changePause):
			case <-n.ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-n.wake:
		case <-n.ctx.Done():
			return
		}
	}
}

// complaint is what was logged last about a group.
type complaint struct {
	text string
	at   time.Time
}

// mark is an index that was committed some time ago: a replica that has it lags by no
// more than that time.
type mark struct {
	at, nextAt    time.Time
	index, newest uint64
}

func (m *mark) note(commit uint64) {
	if now := time.Now(); now.Sub(m.nextAt) >= markEvery {
		m.at, m.index = m.nextAt, m.newest
		m.nextAt, m.newest = now, commit
	}
}

// align makes the next change to a group that this node leads, if one is due.
func (n *Node) align(g *Group, m *mark) error {
	ctx, cancel := context.WithTimeout(n.ctx, changeTime)
	defer cancel()
	if g.ID == metasvc.CatalogGroup {
		if err := n.alignCatalog(ctx); err != nil {
			return err
		}
	}
	state := n.replicas.Load().Catalog.State()
	leaving := leavers(state)
	w := wanted{self: n.Self().Raft, maxVoters: maxVoters, removed: func(raftID string) bool { return leaving[raftID] || state.Removed(raftID) }}
	state.Nodes(func(c *catalog.Node) {
		if !c.Leaving {
			w.nodes = append(w.nodes, c)
		}
	})
	w.ready = func(raftID string) bool { return n.caughtUp(raftID, g.ID, m) }
	if g.ID != metasvc.CatalogGroup { // who is to lead all groups has to vote in the catalog
		w.ready = func(raftID string) bool { return n.votesInCatalog(raftID) && n.caughtUp(raftID, g.ID, m) }
	} else if len(w.nodes) >= maxCatalogVoters {
		w.maxVoters = maxCatalogVoters
	}
	c := w.next(g.Raft.Servers())
	if c.act != nothing {
		return n.perform(ctx, g, c, m)
	}
	if self, ok := state.Node(n.Self().Node); ok && self.Draining && n.drains(g) {
		return n.giveAway(ctx, g, m)
	}
	return n.relieve(ctx, g, m)
}

// leavers are the nodes that are to be removed, by Raft name.
func leavers(state *catalog.State) map[string]bool {
	out := map[string]bool{}
	state.Nodes(func(c *catalog.Node) {
		if c.Leaving {
			out[c.Raft] = true
		}
	})
	return out
}

// votesInCatalog reports whether a node votes in the catalog, as far as this one knows.
func (n *Node) votesInCatalog(raftID string) bool {
	for _, s := range n.replicas.Load().group(metasvc.CatalogGroup).Raft.Servers() {
		if s.ID == raftID {
			return !s.Learner
		}
	}
	return false
}

// perform makes a change.
func (n *Node) perform(ctx context.Context, g *Group, c change, m *mark) error {
	log := n.log.Info().Uint32("group", g.ID).Str("node", c.server.ID)
	switch c.act {
	case giveUp:
		return n.giveAway(ctx, g, m)
	case remove:
		log.Msg("a node leaves the group")
		return g.Raft.RemoveServer(ctx, c.server.ID)
	default:
		log.Str("address", c.server.Address).Bool("learner", c.server.Learner).Msg("a node joins the group, or moves in it")
		return g.Raft.AddServer(ctx, c.server)
	}
}

// alignCatalog brings what the catalog knows of the nodes up to date with what they
// tell.
func (n *Node) alignCatalog(ctx context.Context) error {
	r := n.replicas.Load()
	state, self := r.Catalog.State(), n.Self()
	var ops []catalog.Op
	put := func(i Info) {
		now := catalog.Node{ID: i.Node, Raft: i.Raft, Incarnation: i.Incarnation, Address: i.Address, Fronts: i.Fronts, Version: i.Version}
		old, ok := state.Node(i.Node)
		if ok {
			now.Draining, now.Leaving = old.Draining, old.Leaving
		}
		if !ok && i.Raft == self.Raft && !state.Removed(i.Raft) || ok && old.Raft == i.Raft && !equal(*old, now) {
			ops = append(ops, catalog.PutNode{Node: now})
		}
	}
	put(n.info())
	for _, p := range n.others() {
		if i := n.fresh(p.Raft); i != nil {
			put(*i)
		}
	}
	state.Nodes(func(c *catalog.Node) {
		if c.Leaving && !n.inGroups(c.Raft) { // only now it may know: it could not go before the others can do without it
			ops = append(ops, catalog.DropNode{ID: c.ID})
		}
	})
	if len(ops) == 0 {
		return nil
	}
	_, err := r.Catalog.Do(ctx, ops...)
	return err
}

func equal(a, b catalog.Node) bool {
	return a.Raft == b.Raft && a.Incarnation == b.Incarnation && a.Address == b.Address && a.Version == b.Version &&
		a.Draining == b.Draining && a.Leaving == b.Leaving && slices.Equal(a.Fronts, b.Fronts)
}

// caughtUp reports whether a replica has all that was committed as of the mark, and
// lacks no segment. Without a mark it is enough that it lacks none.
func (n *Node) caughtUp(raftID string, group uint32, m *mark) bool {
	i := n.fresh(raftID)
	if i == nil || m != nil && (m.at.IsZero() || n.met.get(raftID).at.Before(m.at)) {
		return false
	}
	for _, g := range i.Groups {
		if g.Group == group {
			return g.Whole && (m == nil || g.Commit >= m.index) // Applied leaves out entries of Raft itself
		}
	}
	return false
}

// drains reports whether it is this group whose leadership a draining node gives away:
// that of the catalog follows the one of the placement group.
func (n *Node) drains(g *Group) bool {
	return g.ID != metasvc.CatalogGroup || len(n.replicas.Load().Groups) == 1
}

// giveAway hands a leadership to the best of the other voters.
func (n *Node) giveAway(ctx context.Context, g *Group, m *mark) error {
	heirs := n.heirs(g, m)
	if len(heirs) == 0 { // under load nobody is seen to be there: Raft waits until one is, or says no
		heirs = n.heirs(g, nil)
	}
	if len(heirs) == 0 {
		return errors.New("no other node that votes can take the leadership over")
	}
	n.log.Info().Uint32("group", g.ID).Str("to", heirs[0]).Msg("the leadership is handed over")
	return g.handOver(ctx, heirs[0])
}

// heirs are the voters that can take a group over, the most advanced first.
func (n *Node) heirs(g *Group, m *mark) []string {
	state := n.replicas.Load().Catalog.State()
	draining := map[string]bool{}
	state.Nodes(func(c *catalog.Node) { draining[c.Raft] = c.Draining || c.Leaving })
	last := map[string]uint64{}
	var out []string
	for _, s := range g.Raft.Servers() {
		if s.ID == n.Self().Raft || s.Learner || draining[s.ID] || state.Removed(s.ID) || !n.caughtUp(s.ID, g.ID, m) {
			continue
		}
		out = append(out, s.ID)
		for _, i := range n.fresh(s.ID).Groups {
			if i.Group == g.ID {
				last[s.ID] = i.Last
			}
		}
	}
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(last[b], last[a]) })
	return out
}

// action is what is to be done to a group's members.
type action int

const (
	nothing action = iota
	remove
	put    // add, move to another address, or promote
	giveUp // the leader itself is to go: another one shall lead first
)

type change struct {
	act    action
	server raftgroup.Server
}

// wanted is what a group's members should be.
type wanted struct {
	self      string // Raft name of the leader
	nodes     []*catalog.Node
	removed   func(raftID string) bool
	ready     func(raftID string) bool // has caught up and is whole
	maxVoters int
}

// next is the change to make now. The last voter is never removed, and nobody votes
// who is not ready.
func (w *wanted) next(have []raftgroup.Server) change {
	voters, known := 0, map[string]raftgroup.Server{}
	for _, s := range have {
		known[s.ID] = s
		if !s.Learner {
			voters++
		}
	}
	for _, s := range have {
		if !w.removed(s.ID) || !s.Learner && voters == 1 {
			continue
		}
		if s.ID == w.self {
			return change{giveUp, s}
		}
		return change{remove, s}
	}
	if len(w.nodes) > 1 { // a node that is alone writes no addresses into its log
		for _, c := range w.nodes {
			if s, ok := known[c.Raft]; ok && s.Address != c.Address {
				s.Address = c.Address
				return change{put, s}
			}
		}
	}
	for _, c := range w.nodes {
		if _, ok := known[c.Raft]; !ok {
			return change{put, raftgroup.Server{ID: c.Raft, Address: c.Address, Learner: true}}
		}
	}
	for _, c := range w.nodes {
		if s := known[c.Raft]; voters < w.maxVoters && s.Learner && w.ready(c.Raft) {
			s.Learner = false
			return change{put, s}
		}
	}
	return change{}
}
