package kv

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/ristretto/v2/z"
)

// ErrUnsorted: a Loader got keys in another order than it was told.
var ErrUnsorted = errors.New("kv: keys are not in order")

// Loader fills a part of a store that has been cleared, faster than Commit, as it
// compares nothing. Nobody else uses the store meanwhile. Finish or Abort ends it.
type Loader struct {
	store *Store
	last  []byte // key put last, of a sorted load

	// An empty store on disk takes sorted keys as finished tables.
	stream *badger.StreamWriter
	buf    *z.Buffer
	item   pb.KV // put last
	// Everything else goes the usual way.
	batch *badger.WriteBatch
}

// streamBytes is how much is handed to Badger at a time.
const streamBytes = 512 << 10

// Load begins to fill the store with keys and values of so many bytes. sorted says
// that the keys will come in ascending order, each once, and that none is deleted;
// else the last write to a key counts. It keeps other writers out until its end.
// Without room for all the error matches vfs.ErrNoSpace.
func (s *Store) Load(bytes int64, sorted bool) (*Loader, error) {
	if err := s.Room(int(bytes / 2)); err != nil { // tables are written once or twice
		return nil, err
	}
	s.write.Lock()
	l := &Loader{store: s}
	if sorted && !s.db.Opts().InMemory && s.isEmpty() {
		l.stream = s.db.NewStreamWriter()
		if err := l.stream.PrepareIncremental(); err == nil {
			l.buf = z.NewBuffer(streamBytes+streamBytes/4, "kv.Loader")
			return l, nil
		}
		l.stream.Cancel() // something is on its way to the disk
		l.stream = nil
	}
	l.batch = s.db.NewWriteBatch()
	return l, nil
}

func (s *Store) isEmpty() bool {
	empty := true
	err := s.each(nil, func(*badger.Item) error {
		empty = false
		return ErrStop
	})
	return empty && err == nil
}

// Put sets a key, whose slices are copied.
func (l *Loader) Put(key, value []byte, index uint64) error {
	if l.stream == nil {
		if err := l.batch.Set(stored(kindValue, key), encode(value, index)); err != nil {
			return fmt.Errorf("kv: load %q: %w", key, err)
		}
		return nil
	}
	if l.last != nil && bytes.Compare(key, l.last) <= 0 {
		return fmt.Errorf("%w: %q after %q", ErrUnsorted, key, l.last)
	}
	l.last = append(l.last[:0], key...)
	kv := &l.item
	kv.Key = append(append(kv.Key[:0], kindValue), key...)
	kv.Value = append(binary.BigEndian.AppendUint64(kv.Value[:0], index), value...)
	kv.Version, kv.StreamId = 1, 1
	badger.KVToBuffer(kv, l.buf)
	if l.buf.LenNoPadding() < streamBytes {
		return nil
	}
	return l.flush()
}

func (l *Loader) flush() error {
	if err := l.stream.Write(l.buf); err != nil {
		return fmt.Errorf("kv: load: %w", err)
	}
	l.buf.Reset()
	return nil
}

// Delete removes a key, of a load that is not sorted.
func (l *Loader) Delete(key []byte) error {
	if l.stream != nil {
		return fmt.Errorf("%w: %q is deleted", ErrUnsorted, key)
	}
	if err := l.batch.Delete(stored(kindValue, key)); err != nil {
		return fmt.Errorf("kv: load %q: %w", key, err)
	}
	return nil
}

// Finish makes what was written visible.
func (l *Loader) Finish() error {
	defer l.store.write.Unlock()
	if l.stream == nil {
		if err := l.batch.Flush(); err != nil {
			return fmt.Errorf("kv: load: %w", err)
		}
		return nil
	}
	err := l.flush()
	if err == nil {
		err = l.stream.Flush()
	} else {
		l.stream.Cancel()
	}
	return errors.Join(err, l.buf.Release())
}

// Abort ends the loading; some of it may have been written.
func (l *Loader) Abort() error {
	defer l.store.write.Unlock()
	if l.stream == nil {
		l.batch.Cancel()
		return nil
	}
	err := l.stream.Flush() // Cancel leaves tables behind that are not whole
	return errors.Join(err, l.buf.Release())
}

// Changed calls fn for every key with the prefix that was written or deleted at a
// log index above since, in the order of the keys, as of one moment. It looks at
// every key there is. key and value are valid during the call only. Deletions that
// Forget has dropped are not seen.
func (s *Store) Changed(prefix []byte, since uint64, fn func(key, value []byte, index uint64, deleted bool) error) error {
	return s.db.View(func(tx *badger.Txn) error {
		opts := badger.DefaultIteratorOptions
		opts.PrefetchValues = false // few are looked at whole
		begin := func(kind byte) *badger.Iterator {
			opts.Prefix = stored(kind, prefix)
			it := tx.NewIterator(opts)
			it.Rewind()
			return it
		}
		values, deleted := begin(kindValue), begin(kindDeleted)
		defer values.Close()
		defer deleted.Close()
		for values.Valid() || deleted.Valid() {
			it := values
			if !values.Valid() || deleted.Valid() && bytes.Compare(deleted.Item().Key()[1:], values.Item().Key()[1:]) < 0 {
				it = deleted
			}
			item := it.Item()
			err := item.Value(func(raw []byte) error {
				value, index, err := decode(raw)
				if err != nil || index <= since {
					return err
				}
				return fn(item.Key()[1:], value, index, it == deleted)
			})
			if err != nil {
				return fmt.Errorf("kv: changed %q: %w", item.Key()[1:], err)
			}
			it.Next()
		}
		return nil
	})
}
