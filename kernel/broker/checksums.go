package broker

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// Checksums reads all that the node's replicas hold, and returns a checksum of the
// catalog, then of the tables and keyed state of the placement group, then of each
// partition: of two nodes they are equal once both have applied the same entries. It
// takes as long as reading does.
func (s *Steward) Checksums(ctx context.Context) ([]kernel.ReplicaChecksum, error) {
	group := s.node.durable
	state, err := group.StateChecksum(ctx)
	if err != nil {
		return nil, err
	}
	index, catalog, err := s.node.catalog.Checksum()
	if err != nil {
		return nil, err
	}
	out := []kernel.ReplicaChecksum{{Catalog: true, Index: index, Records: catalog}, checksumOf(&kernel.Topic{}, 0, state)}
	var topics []*kernel.Topic
	s.node.catalog.State().Topics(func(t *kernel.Topic) {
		if !t.Volatile {
			topics = append(topics, t)
		}
	})
	slices.SortFunc(topics, func(a, b *kernel.Topic) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range topics {
		for _, id := range slices.Sorted(maps.Keys(group.Ends(t.ID))) {
			c, err := group.Checksum(ctx, id)
			if kernel.CodeOf(err) == kernel.CodeNotFound {
				continue // dropped meanwhile
			}
			if err != nil {
				return nil, err
			}
			out = append(out, checksumOf(t, id, c))
		}
	}
	return out, nil
}

func checksumOf(t *kernel.Topic, id placement.PartitionID, c placement.Checksum) kernel.ReplicaChecksum {
	return kernel.ReplicaChecksum{
		Tenant: t.Tenant, Topic: t.Name, Kind: t.Kind, Partition: uint64(id),
		Index: c.Index, Start: c.Start, End: c.End, Records: c.Records, Windows: c.Windows,
	}
}
