package placement

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// topic is a topic in the group. The machine writes it, under the table's lock
// where others read; what is marked "shard" belongs to its shard.
type topic struct {
	id       kernel.TopicID
	revision uint64
	parts    []*partition // by index
	groups   []*share     // by id
	shard    *shard       // that owns its windows

	published atomic.Uint64 // records since the process started
	ends      atomic.Int64  // sum of the ends of its partitions
	tally     tally

	lane lane // shard
}

// partition is one partition of a topic.
type partition struct {
	id        PartitionID
	index     int32
	topic     *topic
	log       *slog.Partition
	retention kernel.Retention
	touched   bool        // in the machine's list of what this Apply has appended to
	replaced  atomic.Bool // a checkpoint came in its place: log is gone, the topic need not be

	age      ageMarks
	arrivals arrivals
	expiring int64     // records with an expiry of their own lie below
	tallied  int64     // the topic's tally has the records below; under its lock
	cut      lanePart  // shard
	ids      *idWindow // nil: none is remembered
}

// table is what is in the group. Only the machine changes it; it needs the
// lock for that, and not for reading.
type table struct {
	mu     sync.RWMutex
	topics map[kernel.TopicID]*topic
	parts  map[PartitionID]*partition
	groups map[GroupID]*share
	names  map[groupName]*share
}

// groupName is what identifies a share group.
type groupName struct {
	topic   kernel.TopicID
	address kernel.GroupAddress
}

func newTable() table {
	return table{
		topics: make(map[kernel.TopicID]*topic),
		parts:  make(map[PartitionID]*partition),
		groups: make(map[GroupID]*share),
		names:  make(map[groupName]*share),
	}
}

func (t *table) share(id GroupID) *share {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.groups[id]
}

func (t *table) hasGroup(topic kernel.TopicID, address kernel.GroupAddress) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.names[groupName{topic, address}] != nil
}

func (t *table) partition(id PartitionID) *partition {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.parts[id]
}

func (t *table) topic(id kernel.TopicID) *topic {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.topics[id]
}

func (t *table) topicInfos() []TopicInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	infos := make([]TopicInfo, 0, len(t.topics))
	for _, tp := range t.topics {
		info := TopicInfo{ID: tp.id, Revision: tp.revision}
		for _, p := range tp.parts {
			info.Partitions = append(info.Partitions, PartitionInfo{ID: p.id, Index: p.index, Retention: p.retention})
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b TopicInfo) int { return slices.Compare(a.ID[:], b.ID[:]) })
	return infos
}

func (t *table) groupInfos() []GroupInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	infos := make([]GroupInfo, 0, len(t.groups))
	for _, s := range t.groups {
		infos = append(infos, GroupInfo{ID: s.id, Revision: s.revision, Spec: s.spec})
	}
	slices.SortFunc(infos, func(a, b GroupInfo) int { return cmp.Compare(a.ID, b.ID) })
	return infos
}

// part returns the partition of an index, or nil.
func (t *topic) part(index int32) *partition {
	i, ok := slices.BinarySearchFunc(t.parts, index, func(p *partition, x int32) int { return cmp.Compare(p.index, x) })
	if !ok {
		return nil
	}
	return t.parts[i]
}
