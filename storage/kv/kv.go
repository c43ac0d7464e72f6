// Package kv is the bulky keyed state of a node (retained messages, sessions,
// offsets, producers) in a Badger database, so that it costs disk and not
// memory (docs/formats/kv.md).
//
// A store begins empty: checkpoint and log, which are verified, bring everything
// back, and the database is never trusted beyond the life of the process that
// wrote it. Every key remembers the log index that wrote it last, and an older
// index never overwrites a newer one; so a log may be applied again from any
// point. Several placement groups share a store and have indexes of their own:
// their keys begin with a prefix for each.
package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/trivium-mq/trivium/storage/vfs"
)

var (
	// ErrDamaged: a value is not what this package writes.
	ErrDamaged = errors.New("kv: damaged")
	// ErrStop ends Iterate early, without an error.
	ErrStop = errors.New("kv: stop")
)

// First byte of a stored key.
const (
	kindValue   = 'v' // index, then the value
	kindDeleted = 'd' // index that deleted the key
)

const indexSize = 8

// Badger's memory: two memtables, a block cache for the compressed tables,
// and what compaction and the indexes need; below 30 MiB for a small store.
const (
	memTableBytes   = 4 << 20
	tableBytes      = 2 << 20
	blockCacheBytes = 4 << 20
	valueThreshold  = 64 << 10 // larger values go to the value log
	valueLogBytes   = 64 << 20 // size of one of its files
)

// Room is how many bytes of the volume must be free for a write. Badger writes through
// memory maps of files that reserve no space: where there is none, the process
// dies by a signal. In the background it also writes out a memtable and merges
// tables, which that much is enough for.
const Room = 48 << 20

// Store is an open database. Keys are at most 64,000 bytes, values 60 MiB. It may be used concurrently; writes run one
// after the other.
type Store struct {
	db   *badger.DB
	free func() (int64, error) // bytes on the volume; nil: it does not matter

	write sync.Mutex // a write compares before it sets
}

// Open makes an empty store in dir; what a process before this one has left there
// is removed. free tells how many bytes of the volume are free, nil means that
// there is always enough. With too little the error matches vfs.ErrNoSpace.
func Open(dir string, free func() (int64, error)) (*Store, error) {
	if err := empty(dir); err != nil {
		return nil, fmt.Errorf("kv: %w", err)
	}
	s := &Store{free: free}
	if err := s.Room(0); err != nil {
		return nil, fmt.Errorf("%w in %s", err, dir)
	}
	return s.open(badger.DefaultOptions(dir))
}

// OpenMemory makes a store without files, whose values are at most 1 MiB.
func OpenMemory() (*Store, error) {
	return new(Store).open(badger.DefaultOptions("").WithInMemory(true))
}

// empty makes a directory that has nothing in it. It may be a mount point.
func empty(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func (s *Store) open(opts badger.Options) (_ *Store, err error) {
	memTable, threshold := int64(memTableBytes), int64(valueThreshold)
	if opts.InMemory { // there is no value log: the threshold is the limit
		memTable, threshold = 2*memTableBytes, 1<<20
	}
	opts = opts.WithLogger(nil).WithMetricsEnabled(false).WithSyncWrites(false).WithDetectConflicts(false).
		WithMemTableSize(memTable).WithNumMemtables(2).WithBaseTableSize(tableBytes).
		WithBlockCacheSize(blockCacheBytes).WithIndexCacheSize(0).
		WithNumLevelZeroTables(2).WithNumLevelZeroTablesStall(6).WithNumCompactors(2).
		WithValueLogFileSize(valueLogBytes).WithValueThreshold(threshold)
	opts.TableSizeMultiplier = 1 // with large tables a load and a compaction take much memory
	if s.db, err = badger.Open(opts); err != nil {
		return nil, fmt.Errorf("kv: open %s: %w", opts.Dir, err)
	}
	return s, nil
}

// Room returns an error matching vfs.ErrNoSpace if the volume has no room for n
// more bytes of keys and values.
func (s *Store) Room(n int) error {
	if s.free == nil {
		return nil
	}
	free, err := s.free()
	if err != nil {
		return fmt.Errorf("kv: %w", err)
	}
	// Values may be written twice, to the log and to a table, and more than once
	// to a table, one after the other.
	if need := Room + 4*int64(n); free < need {
		return fmt.Errorf("kv: %w: %d MiB free, the keyed state needs %d MiB", vfs.ErrNoSpace, free>>20, need>>20)
	}
	return nil
}

// Collect gives back disk space of large values that were overwritten or
// deleted. It rewrites at most one file; false means there was nothing to do.
func (s *Store) Collect() (bool, error) {
	if s.db.Opts().InMemory {
		return false, nil
	}
	err := s.db.RunValueLogGC(0.5)
	if errors.Is(err, badger.ErrNoRewrite) || errors.Is(err, badger.ErrRejected) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("kv: collect: %w", err)
	}
	return true, nil
}

// closeTime bounds the end of a store whose files cannot be written: Badger tries again
// for ever.
var closeTime = 10 * time.Second

// ErrNotClosed: the store could not be closed in time. Its goroutines run on until the
// process ends; nothing is lost by it, since a store is filled anew at each start.
var ErrNotClosed = errors.New("kv: the files of the store cannot be written")

// Close closes the store. Nobody uses it any more.
func (s *Store) Close() error {
	done := make(chan error, 1)
	go func() { done <- s.close() }()
	late := time.NewTimer(closeTime)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return ErrNotClosed
	}
}

func (s *Store) close() error {
	if s.Room(0) != nil {
		// Badger writes out what is in memory. It is of no use any more, and there
		// may be no space for it.
		if err := s.db.DropAll(); err != nil {
			return errors.Join(fmt.Errorf("kv: close: %w", err), s.db.Close())
		}
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("kv: close: %w", err)
	}
	return nil
}

// Get returns a copy of the key's value and the log index that wrote it; ok
// is false if there is none.
func (s *Store) Get(key []byte) (value []byte, index uint64, ok bool, err error) {
	err = s.db.View(func(tx *badger.Txn) error {
		item, err := tx.Get(stored(kindValue, key))
		if errors.Is(err, badger.ErrKeyNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		raw, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		value, index, err = decode(raw)
		ok = err == nil
		return err
	})
	if err != nil {
		return nil, 0, false, fmt.Errorf("kv: get %q: %w", key, err)
	}
	return value, index, ok, nil
}

// Iterate calls fn for every key that begins with prefix, in the order of the
// keys, as of one moment. key and value are valid during the call only. An
// error of fn ends it and is returned, except ErrStop.
func (s *Store) Iterate(prefix []byte, fn func(key, value []byte, index uint64) error) error {
	err := s.each(stored(kindValue, prefix), func(item *badger.Item) error {
		return item.Value(func(raw []byte) error {
			value, index, err := decode(raw)
			if err != nil {
				return fmt.Errorf("kv: iterate %q: %w", item.Key()[1:], err)
			}
			return fn(item.Key()[1:], value, index)
		})
	})
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

// First returns the first key that begins with prefix and is not below from; ok is
// false if there is none.
func (s *Store) First(prefix, from []byte) (key []byte, ok bool, err error) {
	err = s.db.View(func(tx *badger.Txn) error {
		opts := badger.DefaultIteratorOptions
		opts.Prefix, opts.PrefetchValues = stored(kindValue, prefix), false
		it := tx.NewIterator(opts)
		defer it.Close()
		if it.Seek(stored(kindValue, from)); it.Valid() {
			key, ok = it.Item().KeyCopy(nil)[1:], true
		}
		return nil
	})
	return key, ok, err
}

// each does not have values prefetched: that takes a goroutine for each, and nearly all
// lie beside their keys.
func (s *Store) each(prefix []byte, fn func(*badger.Item) error) error {
	return s.db.View(func(tx *badger.Txn) error {
		opts := badger.DefaultIteratorOptions
		opts.Prefix, opts.PrefetchValues = prefix, false
		it := tx.NewIterator(opts)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			if err := fn(it.Item()); err != nil {
				return err
			}
		}
		return nil
	})
}

// Clear removes all keys with the prefix, as if they had never been there.
func (s *Store) Clear(prefix []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.remove(prefix, []byte{kindValue, kindDeleted}, func([]byte) (bool, error) { return true, nil }); err != nil {
		return fmt.Errorf("kv: clear %q: %w", prefix, err)
	}
	return nil
}

// Forget drops what the store remembers about keys with the prefix that were
// deleted at or below index. It is called after a checkpoint, with the index
// of the oldest one kept: the log is never applied again from before it.
func (s *Store) Forget(prefix []byte, index uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	err := s.remove(prefix, []byte{kindDeleted}, func(raw []byte) (bool, error) {
		_, at, err := decode(raw)
		return at <= index, err
	})
	if err != nil {
		return fmt.Errorf("kv: forget %q up to %d: %w", prefix, index, err)
	}
	return nil
}

// remove takes out what is stored under the kinds and the prefix and fits. The
// caller holds write.
func (s *Store) remove(prefix, kinds []byte, fits func(raw []byte) (bool, error)) error {
	if err := s.Room(0); err != nil {
		return err
	}
	wb := s.db.NewWriteBatch()
	defer wb.Cancel()
	for _, kind := range kinds {
		err := s.each(stored(kind, prefix), func(item *badger.Item) error {
			return item.Value(func(raw []byte) error {
				fit, err := fits(raw)
				if err != nil || !fit {
					return err
				}
				return wb.Delete(item.KeyCopy(nil))
			})
		})
		if err != nil {
			return err
		}
	}
	return wb.Flush()
}

func stored(kind byte, key []byte) []byte {
	return append(append(make([]byte, 0, 1+len(key)), kind), key...)
}

func encode(value []byte, index uint64) []byte {
	b := make([]byte, 0, indexSize+len(value))
	return append(binary.BigEndian.AppendUint64(b, index), value...)
}

func decode(raw []byte) (value []byte, index uint64, err error) {
	if len(raw) < indexSize {
		return nil, 0, fmt.Errorf("%w: value of %d bytes", ErrDamaged, len(raw))
	}
	return raw[indexSize:], binary.BigEndian.Uint64(raw), nil
}
