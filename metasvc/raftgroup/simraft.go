package raftgroup

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// simMessage is one of the messages of Raft.
type simMessage struct {
	from, to int
	due      time.Duration
	order    uint64
	kind     simKind
	term     uint64

	index, logTerm uint64 // vote: last of the candidate's log; append: before the entries; answers: up to where
	entries        []*raft.Log
	commit         uint64
	sent           int64 // append and its answer: when, by the leader's clock
	ok             bool  // answers
	transfer       bool  // vote: it was told to
	meta           checkpoint.Meta
	payload        []byte
}

type simKind uint8

const (
	simVote simKind = iota
	simVoted
	simAppend
	simAppended
	simInstall
	simInstalled
	simTimeoutNow
)

// receive handles a message. Nothing is answered before it is on the disk.
func (n *SimNode) receive(m *simMessage) {
	if n.Err != nil {
		return
	}
	if m.kind == simVote {
		n.vote(m)
		return
	}
	if m.term > n.term && !n.setTerm(m.term) {
		return
	}
	if m.term < n.term {
		if m.kind == simAppend || m.kind == simInstall { // an old leader is to know
			n.answer(m, simMessage{kind: simAppended, sent: m.sent, index: n.commit + 1})
		}
		return
	}
	switch m.kind {
	case simVoted:
		if n.state == simCandidate && m.ok {
			n.votes[m.from] = true
			n.count()
		}
	case simAppend, simInstall:
		n.follow(m.from)
		if m.kind == simAppend {
			n.append(m)
		} else {
			n.installed(m)
		}
	case simAppended, simInstalled:
		if n.state == simLeader {
			n.acknowledged(m)
		}
	case simTimeoutNow:
		if n.state == simFollower {
			n.stand(true)
		}
	}
}

func (n *SimNode) answer(m *simMessage, a simMessage) {
	a.from, a.to, a.term = n.self, m.from, n.term
	n.net.send(a)
}

// vote answers a candidate. Who has heard of a leader lately votes for nobody else,
// unless that one has told the candidate to stand: the lease counts on it.
func (n *SimNode) vote(m *simMessage) {
	if n.leader >= 0 && n.leader != m.from && !m.transfer || m.term < n.term {
		n.answer(m, simMessage{kind: simVoted})
		return
	}
	if m.term > n.term && !n.setTerm(m.term) {
		return
	}
	last := n.LastIndex()
	lastTerm, _ := n.termAt(last)
	newer := m.logTerm > lastTerm || m.logTerm == lastTerm && m.index >= last
	ok := n.state == simFollower && newer && (n.voted == -1 || n.voted == m.from)
	if ok {
		if !n.setVote(m.from) {
			return
		}
		n.contact = n.cfg.Mono()
	}
	n.answer(m, simMessage{kind: simVoted, ok: ok})
}

// stand begins an election.
func (n *SimNode) stand(transfer bool) {
	if !n.setTerm(n.term+1) || !n.setVote(n.self) {
		return
	}
	n.state, n.leader, n.votes = simCandidate, -1, make([]bool, len(n.net.ids))
	n.votes[n.self] = true
	n.rest()
	last := n.LastIndex()
	lastTerm, _ := n.termAt(last)
	n.toAll(simMessage{kind: simVote, term: n.term, index: last, logTerm: lastTerm, transfer: transfer})
	n.count()
}

// count makes a candidate with a majority of the votes the leader.
func (n *SimNode) count() {
	votes := 0
	for _, v := range n.votes {
		if v {
			votes++
		}
	}
	if votes <= len(n.votes)/2 {
		return
	}
	n.net.lead(n.term, n.self)
	n.state, n.leader = simLeader, n.self
	now, last := n.cfg.Mono(), n.LastIndex()
	for i := range n.peers {
		n.peers[i] = simPeer{next: last + 1, heard: now}
	}
	n.first, n.transfer = last+1, -1
	if n.store(&raft.Log{Type: raft.LogNoop}) == nil {
		n.news = append(n.news, simWon)
	}
}

// store appends an entry of this leader and sends it.
func (n *SimNode) store(l *raft.Log) error {
	l.Index, l.Term = n.LastIndex()+1, n.term
	if err := n.cfg.Log.StoreLog(l); err != nil {
		n.ok(err)
		return err
	}
	n.advance()
	for i := range n.peers {
		if !n.peers[i].busy {
			n.replicate(i)
		}
	}
	return nil
}

// replicate sends a follower what comes next for it, or a checkpoint if the log does
// not reach back that far.
func (n *SimNode) replicate(to int) {
	p := &n.peers[to]
	if to == n.self || n.Err != nil {
		return
	}
	p.busy = true
	first, err := n.cfg.Log.FirstIndex()
	term, ok := n.termAt(p.next - 1)
	if !n.ok(err) || !ok || p.next < first {
		n.sendCheckpoint(to)
		return
	}
	m := simMessage{from: n.self, to: to, kind: simAppend, term: n.term, index: p.next - 1, logTerm: term, commit: n.commit, sent: n.cfg.Mono()}
	for i, last := p.next, min(n.LastIndex(), p.next+simBatch-1); i <= last; i++ {
		l := new(raft.Log)
		if !n.ok(n.cfg.Log.GetLog(i, l)) {
			return
		}
		m.entries = append(m.entries, l)
	}
	n.net.send(m)
}

// append takes in entries of the leader. What is committed here is so there, too;
// behind that, what differs from the leader's log goes.
func (n *SimNode) append(m *simMessage) {
	for m.index < n.commit && len(m.entries) > 0 {
		m.index, m.logTerm, m.entries = m.entries[0].Index, m.entries[0].Term, m.entries[1:]
	}
	switch term, ok := n.termAt(m.index); {
	case m.index < n.commit: // it is behind
		m.index = n.commit
	case !ok || term != m.logTerm:
		n.answer(m, simMessage{kind: simAppended, sent: m.sent, index: n.commit + 1})
		return
	}
	match := m.index
	for i, l := range m.entries {
		if term, ok := n.termAt(l.Index); !ok || term != l.Term {
			if ok && !n.truncate(l.Index) || !n.ok(n.cfg.Log.StoreLogs(m.entries[i:])) {
				return
			}
			break
		}
	}
	match += uint64(len(m.entries))
	n.commit = max(n.commit, min(m.commit, match))
	n.answer(m, simMessage{kind: simAppended, sent: m.sent, index: match, ok: true})
}

func (n *SimNode) truncate(from uint64) bool {
	if from <= n.commit {
		n.net.Broken = "a committed entry is truncated"
	}
	n.net.Truncations++
	return n.ok(n.cfg.Log.DeleteRange(from, n.LastIndex()))
}

// acknowledged takes in what a follower has.
func (n *SimNode) acknowledged(m *simMessage) {
	p := &n.peers[m.from]
	p.heard, p.busy = n.cfg.Mono(), false
	switch {
	case m.kind == simInstalled || m.ok:
		p.match = max(p.match, m.index)
		p.next = p.match + 1
		if m.kind == simAppended {
			n.lease.took(n.net.ids[m.from], m.term, m.sent)
		}
		n.advance()
	default:
		p.next = max(p.match+1, m.index)
	}
	if n.state != simLeader {
		return
	}
	if p.next <= n.LastIndex() {
		n.replicate(m.from)
	} else if n.transfer == m.from {
		n.net.send(simMessage{from: n.self, to: m.from, kind: simTimeoutNow, term: n.term})
	}
}

// advance commits what a majority has, if it is of this term.
func (n *SimNode) advance() {
	have := make([]uint64, len(n.peers))
	for i := range n.peers {
		have[i] = n.peers[i].match
	}
	have[n.self] = n.LastIndex()
	slices.Sort(have)
	index := have[(len(have)-1)/2]
	if term, ok := n.termAt(index); ok && term == n.term && index > n.commit {
		n.commit = index
		n.net.commit(n, index)
	}
}
