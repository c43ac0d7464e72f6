package placement

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// readAhead is how far hand-outs of a durable group may be reserved ahead, so
// that what was in flight at a crash comes back marked redelivered (see
// sharegroup.Policy).
const readAhead = 4096

// share is one share group. The machine writes revision and spec under the
// table's lock; everything after that belongs to the shard.
type share struct {
	id       GroupID
	topic    *topic
	revision uint64
	limited  uint64 // revision of its limits
	spec     GroupSpec
	pins     int         // records pinned to sessions; the machine's too
	going    atomic.Bool // the log has dropped it: set by the machine before anybody is told

	limits kernel.Limits
	minded bool // its limits are looked after, with or without members
	due    int64
	dueAt  int // place in the shard's list of those with something to expire, from 1
	gate   *brim

	graves     []grave         // dead, waiting for their dead letters
	graveBytes int64           // of them and of those on their way
	burial     *Burial         // on its way
	resting    bool            // burials wait for the next tick
	enders     []chan struct{} // closed when nothing waits any more; see BuryAll

	owner   bool
	policy  sharegroup.Policy
	group   *sharegroup.Group // nil until somebody joins or purges under the present leadership
	windows []*window         // by partition index
	members map[sharegroup.MemberID]*Member
	ghosts  map[sharegroup.MemberID]ghosts // of members that stayed when the group was moved
	parked  []*acquisition
	pinned  map[kernel.Place]string        // session that the record is pinned to
	orphans map[kernel.Place]*orphan       // pinned to sessions that have ended
	vaults  map[string]sharegroup.MemberID // by session; empty: of orphans
	pooled  []*Member                      // those with a pool, in turn
	active  bool                           // in its lane's list of shares that hear of new records
	queued  bool                           // in the shard's line
	touched bool                           // in the shard's list of what this step has touched
	watched bool                           // in the shard's list of those that have reserved ahead
	stalled bool                           // its records cannot be read now
	patient bool                           // and what comes after them waits for them
	gone    bool
	stat    shareStat
}

// shareStat is what others read of a share.
type shareStat struct {
	ready, held        atomic.Int64
	seen               atomic.Int64 // sum of the ends that ready refers to, -1 before it is known
	consumers          atomic.Int64
	delivered, settled atomic.Uint64
}

// window is a share's window on one partition.
type window struct {
	*sharegroup.Window
	part   *partition
	known  int64        // end of the partition as the window was told
	cursor *slog.Cursor // nil until something is read

	bad   []badRange // what could not be read, newest last
	seeks uint64     // how often it has been moved since the process started

	promised int64        // members who wait get the records below
	look     *slog.Cursor // for looking at single records
	head     headMemo
	sizes    *sizes
}

// extend tells the window about everything that the partition holds by now.
func (w *window) extend() {
	w.known = w.part.log.End()
	w.Extend(w.known)
}

func newShare(id GroupID, t *topic, spec GroupSpec, revision uint64) *share {
	s := &share{id: id, topic: t, spec: spec, revision: revision, owner: spec.Owner}
	s.stat.seen.Store(-1)
	s.setLimits(spec.Limits)
	s.policy.MaxAcquired = spec.MaxAcquired
	return s
}

// window returns the window on a partition, or nil.
func (s *share) window(index int32) *window {
	if len(s.windows) == 1 && s.windows[0].part.index == index {
		return s.windows[0]
	}
	i, ok := s.search(index)
	if !ok {
		return nil
	}
	return s.windows[i]
}

func (s *share) search(index int32) (int, bool) {
	return slices.BinarySearchFunc(s.windows, index, func(w *window, x int32) int { return cmp.Compare(w.part.index, x) })
}

func (s *share) add(w *window) {
	i, _ := s.search(w.part.index)
	s.windows = slices.Insert(s.windows, i, w)
}

// extend tells all windows.
func (s *share) extend() {
	for _, w := range s.windows {
		w.extend()
	}
}

// publish makes the state of the share visible to others.
func (s *share) publish() {
	var ready, held, seen int64
	consumers := 0
	if s.group != nil {
		ready, held = s.group.Ready(), int64(s.group.InFlight())+s.waitingDead()
		_, consumers = s.group.Members()
	}
	for _, w := range s.windows {
		if !w.Leading() {
			w.known = w.part.log.End()
			ready += w.Unsettled(w.known)
		}
		seen += w.known
	}
	s.stat.ready.Store(ready)
	s.stat.seen.Store(seen)
	s.stat.held.Store(held)
	s.stat.consumers.Store(int64(consumers))
	if s.gate != nil {
		s.tell(s.gate)
	}
}

// reserving says whether hand-outs wait for a reservation in the log, and waiting
// whether there is nothing that does not.
func (s *share) reserving() bool {
	for _, w := range s.windows {
		room := s.policy.MaxAcquired == 0 || w.InFlight() < s.policy.MaxAcquired
		if room && w.Ready() > 0 && !w.HasAvailable() {
			return true
		}
	}
	return false
}

func (s *share) waiting() bool {
	for _, w := range s.windows {
		if w.HasAvailable() {
			return false
		}
	}
	return s.reserving()
}

// addShare and removeShare keep a list of shares in the order of their ids.
func addShare(list []*share, s *share) []*share {
	i, _ := searchShare(list, s)
	return slices.Insert(list, i, s)
}

func removeShare(list []*share, s *share) []*share {
	i, ok := searchShare(list, s)
	if !ok {
		return list
	}
	return slices.Delete(list, i, i+1)
}

func searchShare(list []*share, s *share) (int, bool) {
	return slices.BinarySearchFunc(list, s.id, func(x *share, id GroupID) int { return cmp.Compare(x.id, id) })
}
