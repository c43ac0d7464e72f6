package placement

import (
	"math"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// AppendKeyed is Append, with keyed writes in the same entry of the log: both
// happen or neither, and the order of the writes to a key is that of the records.
// When the completion comes, Get sees them. set may be nil: then there is nothing
// but the writes, and r is not read. once is as for AppendOnce, if it names a session;
// the writes are made for a repeat, too. A full target that rejects is left out as for
// Append, and the writes are made; with once nothing at all happens. Errors as for
// Append and Put.
func (g *Group) AppendKeyed(set *TargetSet, r *kernel.Record, puts []KV, once kernel.Once, done kernel.Completion, token uint64) error {
	if g.keyed.store == nil {
		return errNoKeys
	}
	size, err := g.putSize(puts)
	if err != nil {
		return err
	}
	if set != nil {
		size += record.EncodedSize(r)
	}
	if size > 2*g.limits.RecordBytes {
		return errTooLarge
	}
	if err := g.keyed.store.Room(size); err != nil {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "%v", err)
	}
	return g.publish(&publication{set: set, r: r, once: once, command: putCommand(puts), done: done, token: token})
}

// putSize checks the keys of keyed writes and returns their bytes.
func (g *Group) putSize(puts []KV) (size int, err error) {
	for _, e := range puts {
		if len(e.Key) == 0 || len(e.Key) > maxKey {
			return 0, kernel.Errorf(kernel.CodeInvalid, "key", "", "a key has 1 to %d bytes", maxKey)
		}
		size += len(e.Key) + len(e.Value)
	}
	return size, nil
}

// noBatch is the batch of a publish that has no record in the entry.
const noBatch = math.MaxInt32

// IterateAt is Iterate that gives the log index which wrote each key, too.
func (g *Group) IterateAt(prefix []byte, fn func(key, value []byte, index uint64) error) error {
	if g.keyed.store == nil {
		return errNoKeys
	}
	n := len(g.keyed.prefix)
	return g.keyed.store.Iterate(g.keyed.key(prefix), func(key, value []byte, index uint64) error {
		return fn(key[n:], value, index)
	})
}

// told tells who watches about keyed writes that have been made.
func (g *Group) told(list []keyedWrite) error {
	if g.cfg.Watch == nil {
		return nil
	}
	for _, w := range list {
		for _, body := range w.puts {
			entries, err := decodePuts(body)
			if err != nil {
				return err
			}
			g.cfg.Watch(w.index, entries)
		}
	}
	return nil
}
