package placement

import "github.com/trivium-mq/trivium/storage/checkpoint"

// replicator is the log under a group. A raftgroup.Group is one, memLog is the
// other.
type replicator interface {
	// Propose hands over an entry without waiting. Success is seen when the
	// machine applies it; else failed is called at most once, by Propose itself
	// or later, with an error matching raftgroup.ErrNotApplied or ErrUnknown.
	Propose(data []byte, failed func(error))
	// Candidacy returns the last term in which this node may have appended what was
	// proposed; that may be none.
	Candidacy() uint64
	// CheckpointMeta returns what belongs to a checkpoint as of index.
	CheckpointMeta(index uint64) (checkpoint.Meta, error)
	// Cut says that a checkpoint as of index is safe.
	Cut(index uint64) error
}
