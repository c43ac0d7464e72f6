package placement

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// sentTime is how long the segments that a sent checkpoint names stay after somebody
// has come for one of them, or for the checkpoint, last.
const sentTime = 10 * time.Minute

// sentCheckpoints is the checkpoints that were sent to other replicas, which will come for the
// segments they name. While there are any, no merge is asked for: a replica waits with
// its own until it has what is to be merged.
type sentCheckpoints struct {
	mu   sync.Mutex
	list []sentCheckpoint
}

type sentCheckpoint struct {
	index   uint64
	ids     []uint64
	release func()
	until   int64
}

// keep has the segments of a manifest stay.
func (s *sentCheckpoints) keep(m *slog.Manifest, log *slog.Log, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if s.list[i].index == m.Index {
			s.list[i].until = now + int64(sentTime)
			return
		}
	}
	c := sentCheckpoint{index: m.Index, release: log.Pin(m), until: now + int64(sentTime)}
	for _, meta := range m.Segments {
		c.ids = append(c.ids, meta.ID)
	}
	s.list = append(s.list, c)
}

// asked notes that somebody has come for a segment.
func (s *sentCheckpoints) asked(id uint64, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.list {
		if c := &s.list[i]; slices.Contains(c.ids, id) {
			c.until = now + int64(sentTime)
		}
	}
}

// expire lets go of what nobody has come for.
func (s *sentCheckpoints) expire(now int64) {
	var gone []sentCheckpoint
	s.mu.Lock()
	s.list = slices.DeleteFunc(s.list, func(c sentCheckpoint) bool {
		if now < c.until {
			return false
		}
		gone = append(gone, c)
		return true
	})
	s.mu.Unlock()
	for _, c := range gone {
		c.release()
	}
}

// any tells whether a checkpoint was sent lately.
func (s *sentCheckpoints) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}

// attached names the files that follow a checkpoint's payload when it is sent to
// another replica, and keeps what that one will come for.
func (g *Group) attached(m checkpoint.Meta, payload io.Reader) ([]string, error) {
	names, sv, err := g.keyed.attached(m, payload)
	if err == nil {
		g.sent.keep(sv.manifest, g.machine.shown.Load(), g.clock.mono())
	}
	return names, err
}
