package placement

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// Checksum is of what replicas that have applied the same entries have in common.
type Checksum struct {
	Index      uint64 // of the log, as of which it is
	Start, End int64  // offsets of the partition, 0 for the state
	Records    uint64 // XXH64 of the batches from the one with Start to End, or of the tables and keyed state
	Windows    uint64 // XXH64 of the durable windows of the share groups
}

// checksumTries is how often a partition is read again that was trimmed meanwhile.
const checksumTries = 10

// Checksum reads a partition from begin to end, and returns the checksums of it and
// of its share groups' windows, all as of one place in the log. Errors as for
// Partition.Read; CodeUnavailable if the group has stopped.
func (g *Group) Checksum(ctx context.Context, id PartitionID) (c Checksum, err error) {
	for range checksumTries {
		if c, err = g.checksum(ctx, id); kernel.CodeOf(err) != kernel.CodeOutOfRange {
			break
		}
	}
	return c, err
}

func (g *Group) checksum(ctx context.Context, id PartitionID) (c Checksum, err error) {
	part, err := g.Partition(id)
	if err != nil {
		return c, err
	}
	p, m := part.p, g.machine
	windows := make(chan uint64, 1)
	m.mu.Lock()
	c.Index, c.Start, c.End = m.index, p.log.Start(), p.log.End()
	asked := p.topic.shard.ask(func() { windows <- windowSum(p.topic.lane.shares, p) })
	m.mu.Unlock()
	if !asked {
		return c, errStopped
	}
	sum := xxhash.New()
	var buf []byte
	for at := c.Start; at < c.End; {
		if buf, err = part.Read(at, 1<<20, buf[:0]); err != nil {
			return c, err
		}
		for rest := buf; len(rest) > 0 && at < c.End; {
			batch, more, err := record.Split(rest)
			if err != nil {
				return c, kernel.Errorf(kernel.CodeCorrupt, "partition", fmt.Sprint(id), "%v", err)
			}
			_, _ = sum.Write(batch) // never fails
			at, rest = record.LastOffset(batch)+1, more
		}
		if len(buf) == 0 {
			break // a hole up to the end
		}
	}
	c.Records = sum.Sum64()
	c.Windows, err = receive(ctx, windows)
	return c, err
}

// StateChecksum returns the checksums of the tables with the keyed state, and of all
// windows, as of one place in the log.
func (g *Group) StateChecksum(ctx context.Context) (c Checksum, err error) {
	m := g.machine
	keys := make(chan uint64, 1)
	sums := make([]chan uint64, len(m.shards))
	parts := make([][]windowState, len(m.shards))
	m.mu.Lock()
	c.Index = m.index
	tables := m.appendTo(nil)
	for i, s := range m.shards {
		sums[i] = make(chan uint64, 1)
		s.ask(func() {
			parts[i] = s.durable()
			sums[i] <- 0
		})
	}
	m.out.box.post(errand{call: func() { keys <- g.keyed.sum() }})
	m.mu.Unlock()
	for _, ch := range sums {
		if _, err := receive(ctx, ch); err != nil {
			return c, err
		}
	}
	all := capture{windows: parts}
	c.Windows = xxhash.Sum64(all.appendWindows(nil))
	keyed, err := receive(ctx, keys)
	c.Records = xxhash.Sum64(binary.BigEndian.AppendUint64(tables, keyed))
	return c, err
}

func receive(ctx context.Context, ch <-chan uint64) (uint64, error) {
	select {
	case v := <-ch:
		return v, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// windowSum is that of the windows on a partition, in the order of the groups. Their
// shard calls it.
func windowSum(shares []*share, p *partition) uint64 {
	shares = slices.Clone(shares)
	slices.SortFunc(shares, func(a, b *share) int { return cmp.Compare(a.id, b.id) })
	var b []byte
	for _, sh := range shares {
		if w := sh.window(p.index); w != nil {
			b = binary.BigEndian.AppendUint64(b, uint64(sh.id))
			b = w.AppendTo(b)
		}
	}
	return xxhash.Sum64(b)
}

// sum is of all keys, their values, and the indexes that have written them.
func (k *keyed) sum() uint64 {
	if k.store == nil {
		return 0
	}
	sum := xxhash.New()
	var b []byte
	err := k.store.Iterate(k.prefix, func(key, value []byte, index uint64) error {
		b = binary.BigEndian.AppendUint64(b[:0], index)
		b = appendBytes(appendBytes(b, key[len(k.prefix):]), value)
		_, err := sum.Write(b)
		return err
	})
	if err != nil {
		return 0
	}
	return sum.Sum64()
}
