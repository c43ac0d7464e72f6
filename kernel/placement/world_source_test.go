package placement

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// Propose, Candidacy, CheckpointMeta and Cut are replicator.

func (n *wlife) Propose(data []byte, failed func(error)) {
	n.w.note(n.i, len(data))
	n.w.trace.Write(data)
	n.raft.Propose(data, failed)
}

func (n *wlife) Candidacy() uint64 { return n.raft.Candidacy() }

func (n *wlife) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	return n.raft.CheckpointMeta(index)
}

func (n *wlife) Cut(index uint64) error { return n.raft.Cut(index) }

// wmachine is the machine as Raft sees it, which sees to it that all replicas apply the
// same.
type wmachine struct{ n *wlife }

func (m wmachine) Apply(entries []raftgroup.Entry) {
	for _, e := range entries {
		m.n.w.truth.applied(m.n, e)
	}
	m.n.g.machine.Apply(entries)
}

func (m wmachine) Restore(meta checkpoint.Meta, r io.Reader) error {
	m.n.w.seen.installs++
	clear(m.n.known)
	return m.n.g.machine.Restore(meta, r)
}

// install is what Group.installer returns.
func (n *wlife) install(r io.Reader) error {
	w, err := n.store.Receive(r)
	if err != nil {
		return err
	}
	return n.raft.Install(w)
}

// pull lets the puller work. That nothing comes is no error.
func (n *wlife) pull() {
	_ = n.g.puller.step(context.Background()) // it is called again
}

var errApart = errors.New("nobody can be reached")

// Segment is Source.Segment: it comes from another node, and breaks off now and then.
// That nobody has it is known when all have said so.
func (n *wlife) Segment(_ context.Context, _ uint32, id uint64, from int64) (io.ReadCloser, error) {
	all := true
	for k := range n.w.nodes {
		o := n.w.nodes[(n.i+1+k)%len(n.w.nodes)]
		if o.i == n.i {
			continue
		}
		if !o.alive() || !n.w.net.Connected(n.i, o.i) || !o.life.raft.Awake() {
			all = false
			continue
		}
		f, size, err := o.life.g.OpenSegment(id)
		if err != nil {
			all = all && errors.Is(err, fs.ErrNotExist)
			continue
		}
		b, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
		if err = errors.Join(err, f.Close()); err != nil {
			all = false
			continue
		}
		if n.w.rng.Intn(4) == 0 {
			b = b[:n.w.rng.Intn(len(b)+1)]
		}
		return io.NopCloser(bytes.NewReader(b)), nil
	}
	if !all {
		return nil, errApart
	}
	return nil, fs.ErrNotExist
}
