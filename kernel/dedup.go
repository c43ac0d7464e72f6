package kernel

import (
	"crypto/sha256"
	"time"
)

// DefaultDedup is how long an id of a message is remembered where nothing else is
// said.
const DefaultDedup = 5 * time.Minute

// DedupID stands for the id that a publisher gives a message (HeaderDedup), so that
// the message, published again, is recognised in every partition that has it. Of ids
// of any length 128 bits are kept. The zero value is no id.
type DedupID [16]byte

// NewDedupID returns what stands for an id: the begin of its SHA-256. Replicas and
// restarts agree on it, and nobody makes up a message that another one is taken for. id
// is not kept; an empty one is none.
func NewDedupID(id []byte) (d DedupID) {
	if len(id) == 0 {
		return d
	}
	sum := sha256.Sum256(id)
	copy(d[:], sum[:])
	return d
}

// DedupWindow returns how long ids are remembered, 0 = not at all.
func (r *Retention) DedupWindow() time.Duration {
	if r.Dedup == 0 {
		return DefaultDedup
	}
	return max(r.Dedup, 0)
}
