package placement

import (
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// memLog is the log of a volatile group: what is proposed is committed, and
// nothing is stored. One goroutine steps it, so that the machine has one
// caller and entries gather while it works.
type memLog struct {
	machine raftgroup.Machine
	box     mailbox[[]byte]
	index   uint64
	entries []raftgroup.Entry
	ended   chan struct{}
}

func newMemLog(m raftgroup.Machine) *memLog {
	return &memLog{machine: m, box: newMailbox[[]byte](), ended: make(chan struct{})}
}

// run steps the log until it is closed.
func (l *memLog) run() {
	defer close(l.ended)
	for range l.box.wake {
		for l.step() {
		}
		if l.box.isClosed() {
			for l.step() {
			}
			return
		}
	}
}

// Close ends run, after everything proposed has been applied.
func (l *memLog) Close() error {
	l.box.close()
	<-l.ended
	return nil
}

// memTerm is the only term of a memLog.
const memTerm = 1

// Propose is replicator.Propose.
func (l *memLog) Propose(data []byte, failed func(error)) {
	if !l.box.post(data) {
		failed(raftgroup.ErrNotApplied)
	}
}

// step applies what has been proposed and says whether that was anything.
func (l *memLog) step() bool {
	proposed := l.box.take()
	for _, data := range proposed {
		l.index++
		l.entries = append(l.entries, raftgroup.Entry{Index: l.index, Term: memTerm, Data: data})
	}
	l.box.give(proposed)
	if len(l.entries) == 0 {
		return false
	}
	l.machine.Apply(l.entries)
	clear(l.entries)
	l.entries = l.entries[:0]
	return true
}

// Term is replicator.Term.
func (l *memLog) Candidacy() uint64 { return memTerm }

// CheckpointMeta is replicator.CheckpointMeta; nothing is ever sealed.
func (l *memLog) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	return checkpoint.Meta{Index: index, Term: memTerm}, nil
}

// Cut is replicator.Cut.
func (l *memLog) Cut(uint64) error { return nil }
