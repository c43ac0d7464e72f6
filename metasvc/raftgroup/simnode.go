package raftgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// SimConfig is what a SimNode is made of.
type SimConfig struct {
	Log         *wal.Group
	Checkpoints *checkpoint.Store
	Machine     Machine         // holds the state as of Restored
	Restored    checkpoint.Meta // the newest one of Checkpoints; zero for none
	KeepBytes   int64           // of log, before a checkpoint
	Mono        func() int64    // the node's clock: ns since its start
	Watch       func(Leadership)
	OnLease     func()
}

// SimNode is one replica of a SimNet, with what [Group] has of use to a machine. Each
// of Step and Call does a little of what the goroutines of a Group do.
type SimNode struct {
	net    *SimNet
	self   int
	cfg    SimConfig
	asleep time.Duration // until then nothing moves
	// Err is what the disk has said: the node does nothing any more.
	Err error

	term    uint64
	voted   int    // in this term; -1: for nobody
	stood   uint64 // the last term in which it voted for itself
	state   simState
	leader  int   // -1: unknown
	contact int64 // when there was a leader, or a candidate worth a vote
	patience,
	beat int64
	commit, handed uint64
	base           checkpoint.Meta // the log goes on behind it

	votes    []bool
	peers    []simPeer
	first    uint64 // index of the first entry of this leadership
	transfer int    // to whom it is given away; -1: to nobody
	until    int64
	lease    *lease

	pending    []simProposal
	calls      []func()
	news       []simNews
	leadership Leadership
}

type simState uint8

const (
	simFollower simState = iota
	simCandidate
	simLeader
)

// simNews is what Watch is yet to be told.
type simNews uint8

const (
	simWon simNews = iota
	simLost
	simOther // somebody else leads
)

// simPeer is what a leader knows of another node.
type simPeer struct {
	next, match uint64
	busy        bool  // something was sent; the next heartbeat does not mind
	heard       int64 // when
}

type simProposal struct {
	index  uint64
	failed func(error)
}

// Start runs a node on what it has stored.
func (n *SimNet) Start(i int, cfg SimConfig) (*SimNode, error) {
	s := &SimNode{net: n, self: i, cfg: cfg, voted: -1, leader: -1, transfer: -1, peers: make([]simPeer, len(n.ids)), base: cfg.Restored,
		commit: cfg.Restored.Index, handed: cfg.Restored.Index}
	s.lease = newLease(&Config{Mono: cfg.Mono, NodeID: n.ids[i], Timing: Timing{Lease: SimLease}, OnLease: cfg.OnLease})
	if err := errors.Join(reconcile(cfg.Log, cfg.Restored), bootstrap(&store{Group: cfg.Log}, cfg.Restored, n.servers())); err != nil {
		return nil, err
	}
	var err error
	if s.term, err = cfg.Log.GetUint64([]byte(keyCurrentTerm)); err != nil && !errors.Is(err, wal.ErrKeyNotFound) {
		return nil, err
	}
	term, err := cfg.Log.GetUint64([]byte("LastVoteTerm"))
	if err != nil && !errors.Is(err, wal.ErrKeyNotFound) {
		return nil, err
	}
	if err == nil && term == s.term {
		id, err := cfg.Log.Get([]byte("LastVoteCand"))
		if err != nil {
			return nil, err
		}
		for k := range n.ids {
			if n.ids[k] == string(id) {
				s.voted = k
			}
		}
	}
	s.rest()
	n.nodes[i] = s
	return s, nil
}

func (n *SimNode) awake() bool { return n.net.now >= n.asleep }

// Sleep stops the process for a while, and its clock goes on.
func (n *SimNode) Sleep(d time.Duration) { n.asleep = n.net.now + d }

// Awake says whether the process runs.
func (n *SimNode) Awake() bool { return n.awake() }

// ok notes that the disk has failed.
func (n *SimNode) ok(err error) bool {
	if err != nil && n.Err == nil {
		n.Err = err
		n.stepDown()
	}
	return n.Err == nil
}

// rest waits anew for a leader.
func (n *SimNode) rest() {
	n.contact = n.cfg.Mono()
	n.patience = int64(SimHeartbeat) + n.net.rng.Int63n(int64(SimHeartbeat))
}

func (n *SimNode) setTerm(term uint64) bool {
	if !n.ok(n.cfg.Log.SetUint64([]byte(keyCurrentTerm), term)) {
		return false
	}
	n.stepDown()
	n.term, n.voted, n.leader = term, -1, -1
	return true
}

func (n *SimNode) setVote(candidate int) bool {
	if !n.ok(errors.Join(n.cfg.Log.SetUint64([]byte("LastVoteTerm"), n.term), n.cfg.Log.Set([]byte("LastVoteCand"), []byte(n.net.ids[candidate])))) {
		return false
	}
	if n.voted = candidate; candidate == n.self {
		n.stood = n.term
	}
	return true
}

// follow takes note of the leader of this term.
func (n *SimNode) follow(leader int) {
	n.state = simFollower
	if n.leader != leader {
		n.leader = leader
		n.news = append(n.news, simOther)
	}
	n.rest()
}

// stepDown ends a leadership. What was not committed may be, by somebody else.
func (n *SimNode) stepDown() {
	if n.state == simLeader {
		n.news = append(n.news, simLost)
		n.endTransfer()
		n.leader = -1
		n.rest()
	}
	n.state = simFollower
	for _, p := range n.pending {
		if p.index > n.commit {
			n.calls = append(n.calls, func() { p.failed(ErrUnknown) })
		}
	}
	n.pending = nil
}

// tick looks at the clock.
func (n *SimNode) tick() {
	now := n.cfg.Mono()
	switch {
	case n.Err != nil:
	case n.state != simLeader:
		if now-n.contact > n.patience {
			n.stand(false)
		}
	default:
		if n.transfer >= 0 && now > n.until {
			n.endTransfer()
		}
		heard := 1
		for i := range n.peers {
			if i != n.self && now-n.peers[i].heard <= int64(SimLease) {
				heard++
			}
		}
		if heard <= len(n.peers)/2 {
			n.stepDown() // others may have elected another one
			return
		}
		if now-n.beat >= int64(simBeat) {
			n.beat = now
			for i := range n.peers {
				n.replicate(i)
			}
		}
	}
}

func (n *SimNode) toAll(m simMessage) {
	m.from = n.self
	for m.to = range n.peers {
		if m.to != n.self {
			n.net.send(m)
		}
	}
}

// termAt returns the term of an entry; false if it is not known any more, or not yet.
func (n *SimNode) termAt(index uint64) (uint64, bool) {
	switch index {
	case 0:
		return 0, true
	case n.base.Index:
		return n.base.Term, true
	}
	term, err := n.cfg.Log.Term(index)
	return term, err == nil
}

// LastIndex returns the index of the newest entry.
func (n *SimNode) LastIndex() uint64 {
	last, err := n.cfg.Log.LastIndex()
	n.ok(err)
	return max(last, n.base.Index)
}

// AppliedIndex returns up to where the machine has come.
func (n *SimNode) AppliedIndex() uint64 { return n.handed }

// Leads says whether this node takes itself for the leader.
func (n *SimNode) Leads() bool { return n.state == simLeader && n.Err == nil }

// Candidacy is as Group's.
func (n *SimNode) Candidacy() uint64 { return n.stood }

// Term is as Group's.
func (n *SimNode) Term() uint64 { return n.term }

// Lease is as Group's.
func (n *SimNode) Lease() int64 { return n.lease.until.Load() }

// Propose is as Group's.
func (n *SimNode) Propose(data []byte, failed func(error)) {
	if n.state != simLeader || n.Err != nil || n.transfer >= 0 {
		n.calls = append(n.calls, func() { failed(ErrNotApplied) })
		return
	}
	if err := n.store(&raft.Log{Type: raft.LogCommand, Data: data}); err != nil {
		err = classify(err)
		n.calls = append(n.calls, func() { failed(err) })
		return
	}
	n.pending = append(n.pending, simProposal{n.LastIndex(), failed})
	for len(n.pending) > 0 && n.pending[0].index <= n.commit {
		n.pending = n.pending[1:]
	}
}

// Transfer gives the leadership to another node, or tries to for a while.
func (n *SimNode) Transfer(to int) {
	if n.state != simLeader || to == n.self || n.transfer >= 0 {
		return
	}
	n.net.Transfers++
	n.lease.suspend()
	n.transfer, n.until = to, n.cfg.Mono()+int64(SimHeartbeat)
	n.replicate(to)
}

// Transferring says whether the leadership is being given away.
func (n *SimNode) Transferring() bool { return n.transfer >= 0 }

func (n *SimNode) endTransfer() {
	if n.transfer >= 0 {
		n.transfer = -1
		n.lease.resume()
	}
}

// Call tells the owner one thing that it is to know: that a proposal has failed, or who
// leads. It returns false if there is nothing.
func (n *SimNode) Call() bool {
	if n.net.rng.Intn(2) == 0 && n.tell() {
		return true
	}
	if len(n.calls) == 0 {
		return n.tell()
	}
	fn := n.calls[0]
	n.calls = n.calls[1:]
	fn()
	return true
}

// tell is what Group.supervise does.
func (n *SimNode) tell() bool {
	if len(n.news) == 0 {
		return false
	}
	news := n.news[0]
	if news == simWon && n.state == simLeader && n.handed < n.first {
		return false // what was committed before is to be applied first
	}
	n.news = n.news[1:]
	switch {
	case news == simWon:
		if n.state == simLeader {
			n.lease.begin(n.term, raft.DecodeConfiguration(n.net.configuration()))
			n.announce(Leadership{Leader: true, LeaderID: n.net.ids[n.self], Term: n.term})
		}
	case n.state == simLeader, news == simOther && n.leadership.Leader:
	default:
		n.lease.begin(0, raft.Configuration{})
		l := Leadership{Term: n.term}
		if n.leader >= 0 {
			l.LeaderID = n.net.ids[n.leader]
		}
		n.announce(l)
	}
	return true
}

func (n *SimNode) announce(l Leadership) {
	if n.leadership != l {
		n.leadership = l
		n.cfg.Watch(l)
	}
}

// Step applies up to most entries that are committed, and returns how many commands
// they were.
func (n *SimNode) Step(most int) (int, error) {
	var entries []Entry
	for ; most > 0 && n.handed < n.commit; most-- {
		var l raft.Log
		if err := n.cfg.Log.GetLog(n.handed+1, &l); err != nil {
			n.ok(err)
			return 0, fmt.Errorf("raftgroup: entry %d: %w", n.handed+1, err)
		}
		if l.Type == raft.LogCommand {
			entries = append(entries, Entry{Index: l.Index, Term: l.Term, Data: l.Data})
		}
		n.handed = l.Index
	}
	if len(entries) > 0 {
		n.cfg.Machine.Apply(entries)
	}
	return len(entries), n.Err
}

// Behind says whether there is something to apply.
func (n *SimNode) Behind() bool { return n.handed < n.commit }

// CheckpointMeta is as Group's.
func (n *SimNode) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	if index > n.handed {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d, the machine has got %d", index, n.handed)
	}
	for _, m := range n.cfg.Checkpoints.List() {
		if m.Index == index {
			m.Size = 0
			return m, nil
		}
	}
	term, ok := n.termAt(index)
	if !ok {
		return checkpoint.Meta{}, fmt.Errorf("raftgroup: checkpoint at %d: its term is not known", index)
	}
	return checkpoint.Meta{Index: index, Term: term, Configuration: n.net.configuration(), ConfigurationIndex: 1}, nil
}

// Cut is as Group's.
func (n *SimNode) Cut(index uint64) error {
	return cutLog(n.cfg.Log, index, n.cfg.KeepBytes)
}

// sendCheckpoint sends the newest checkpoint, with what belongs to it.
func (n *SimNode) sendCheckpoint(to int) {
	m := newest(n.cfg.Checkpoints)
	if m.Index == 0 {
		return
	}
	m, r, err := n.cfg.Checkpoints.Export(m.ID())
	if !n.ok(err) {
		return
	}
	payload, err := io.ReadAll(r)
	if !n.ok(errors.Join(err, r.Close())) {
		return
	}
	n.net.send(simMessage{from: n.self, to: to, kind: simInstall, term: n.term, meta: m, payload: payload})
}

// installed takes a checkpoint of the leader.
func (n *SimNode) installed(m *simMessage) {
	if m.meta.Index > n.commit {
		w, err := n.cfg.Checkpoints.Create(m.meta)
		if err == nil {
			if _, err = io.Copy(w, bytes.NewReader(m.payload)); err != nil {
				err = errors.Join(err, w.Abort())
			} else {
				err = n.take(w)
			}
		}
		if errors.Is(err, vfs.ErrNoSpace) && n.Err == nil {
			return // the leader sends it again
		}
		if !n.ok(err) {
			return
		}
		n.net.Installs++
	}
	n.answer(m, simMessage{kind: simInstalled, index: m.meta.Index})
}

// Install is as Group's.
func (n *SimNode) Install(w *checkpoint.Writer) error {
	if n.state == simLeader || n.Err != nil || w.Meta().Index < newest(n.cfg.Checkpoints).Index {
		return errors.Join(fmt.Errorf("raftgroup: the checkpoint %s is not taken now", w.Meta().ID()), w.Abort())
	}
	return n.take(w)
}

// take goes on from a checkpoint that has come. Once it is stored, there is no way back.
func (n *SimNode) take(w *checkpoint.Writer) error {
	id := w.Meta().ID()
	if err := w.Commit(); err != nil {
		return err
	}
	meta, r, err := n.cfg.Checkpoints.Export(id)
	if err != nil {
		n.ok(err)
		return err
	}
	if err := errors.Join(n.cfg.Machine.Restore(meta, r), r.Close(), reconcile(n.cfg.Log, meta)); err != nil {
		n.ok(err)
		return err
	}
	n.base, n.handed, n.commit = meta, meta.Index, max(n.commit, meta.Index)
	return nil
}
