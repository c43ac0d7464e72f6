package raftgroup

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
)

// snapshots shows the checkpoints to the Raft library as its snapshots.
type snapshots struct{ store *checkpoint.Store }

var _ raft.SnapshotStore = snapshots{}

// snapshotStream carries the meta data along to fsm.Restore.
type snapshotStream struct {
	io.ReadCloser
	meta checkpoint.Meta
}

func snapshotMeta(m checkpoint.Meta) (meta *raft.SnapshotMeta, err error) {
	defer func() { // DecodeConfiguration has no other way to complain
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: configuration of checkpoint %s: %v", ErrCorrupt, m.ID(), p)
		}
	}()
	return &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax,
		ID:      m.ID(), Index: m.Index, Term: m.Term, Size: m.Size,
		Configuration:      raft.DecodeConfiguration(m.Configuration),
		ConfigurationIndex: m.ConfigurationIndex,
	}, nil
}

// List implements raft.SnapshotStore.
func (s snapshots) List() ([]*raft.SnapshotMeta, error) {
	list := s.store.List()
	out := make([]*raft.SnapshotMeta, len(list))
	for i, m := range list {
		var err error
		if out[i], err = snapshotMeta(m); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Open implements raft.SnapshotStore.
func (s snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	m, r, err := s.store.Export(id)
	if err != nil {
		return nil, nil, err
	}
	meta, err := snapshotMeta(m)
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	return meta, &snapshotStream{ReadCloser: r, meta: m}, nil
}

// Create implements raft.SnapshotStore, for checkpoints that a leader sends.
func (s snapshots) Create(_ raft.SnapshotVersion, index, term uint64, c raft.Configuration,
	configurationIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	w, err := s.store.Create(checkpoint.Meta{Index: index, Term: term,
		Configuration: raft.EncodeConfiguration(c), ConfigurationIndex: configurationIndex})
	if err != nil {
		return nil, err
	}
	return sink{w}, nil
}

// sink is raft.SnapshotSink.
type sink struct{ *checkpoint.Writer }

func (s sink) ID() string    { return s.Meta().ID() }
func (s sink) Close() error  { return s.Commit() }
func (s sink) Cancel() error { return s.Abort() }
