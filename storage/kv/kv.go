// Package kv is the bulky keyed state of a node (retained messages, sessions,
// offsets, producers) in a Badger database, so that it costs disk and not
// memory (docs/formats/kv.md).
//
// All of it can be rebuilt from checkpoint and log. Every key remembers the
// log index that wrote it last, and an older index never overwrites a newer
// one; so a log may be applied again from any point. Several placement groups
// share a store and have indexes of their own: their keys begin with a prefix
// for each.
package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/dgraph-io/badger/v4"
)

// Version is the version byte of the format.
const Version = 1

var (
	// ErrVersion: the store is of a format version this program does not read.
	ErrVersion = errors.New("kv: unknown format version")
	// ErrDamaged: a value is not what this package writes.
	ErrDamaged = errors.New("kv: damaged")
	// ErrStop ends Iterate early, without an error.
	ErrStop = errors.New("kv: stop")
)

// First byte of a stored key.
const (
	kindFormat  = 'f' // one key: the format version
	kindValue   = 'v' // index, then the value
	kindDeleted = 'd' // index that deleted the key
)

const indexSize = 8

// Badger's memory: two memtables, a block cache for the compressed tables,
// and what compaction and the indexes need; below 30 MiB for a small store.
const (
	memTableBytes   = 4 << 20
	blockCacheBytes = 4 << 20
	valueThreshold  = 64 << 10 // larger values go to the value log
	valueLogBytes   = 64 << 20 // size of one of its files
)

// Store is an open database. Keys are at most 64,000 bytes, values 60 MiB. It may be used concurrently; writes run one
// after the other.
type Store struct {
	db *badger.DB

	write sync.Mutex // a write compares before it sets
}

// Open opens or makes the store in dir.
func Open(dir string) (*Store, error) { return open(badger.DefaultOptions(dir)) }

// OpenMemory makes a store without files, whose values are at most 1 MiB.
func OpenMemory() (*Store, error) { return open(badger.DefaultOptions("").WithInMemory(true)) }

func open(opts badger.Options) (*Store, error) {
	memTable, threshold := int64(memTableBytes), int64(valueThreshold)
	if opts.InMemory { // there is no value log: the threshold is the limit
		memTable, threshold = 2*memTableBytes, 1<<20
	}
	opts = opts.WithLogger(nil).WithMetricsEnabled(false).WithSyncWrites(false).WithDetectConflicts(false).
		WithMemTableSize(memTable).WithNumMemtables(2).WithBaseTableSize(memTableBytes).
		WithBlockCacheSize(blockCacheBytes).WithIndexCacheSize(0).
		WithNumLevelZeroTables(2).WithNumLevelZeroTablesStall(6).WithNumCompactors(2).
		WithValueLogFileSize(valueLogBytes).WithValueThreshold(threshold)
	db, err := badger.Open(opts)
	if err != nil {
		return nil, fmt.Errorf("kv: open %s: %w", opts.Dir, err)
	}
	s := &Store{db: db}
	if err := s.checkFormat(); err != nil {
		return nil, errors.Join(fmt.Errorf("kv: open %s: %w", opts.Dir, err), db.Close())
	}
	return s, nil
}

// checkFormat compares the format version, and writes it into a new store.
func (s *Store) checkFormat() error {
	return s.db.Update(func(tx *badger.Txn) error {
		item, err := tx.Get([]byte{kindFormat})
		if errors.Is(err, badger.ErrKeyNotFound) {
			return tx.Set([]byte{kindFormat}, []byte{Version})
		}
		if err != nil {
			return err
		}
		return item.Value(func(v []byte) error {
			if len(v) != 1 || v[0] != Version {
				return fmt.Errorf("%w: %x", ErrVersion, v)
			}
			return nil
		})
	})
}

// Sync makes everything written so far durable: to be called before the
// checkpoint that relies on it is written.
func (s *Store) Sync() error {
	if s.db.Opts().InMemory {
		return nil
	}
	if err := s.db.Sync(); err != nil {
		return fmt.Errorf("kv: sync: %w", err)
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

// Close writes out what is in memory and closes the store. Nobody uses it any
// more.
func (s *Store) Close() error {
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
	err := s.each(stored(kindValue, prefix), true, func(item *badger.Item) error {
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

func (s *Store) each(prefix []byte, values bool, fn func(*badger.Item) error) error {
	return s.db.View(func(tx *badger.Txn) error {
		opts := badger.DefaultIteratorOptions
		opts.Prefix, opts.PrefetchValues, opts.PrefetchSize = prefix, values, 16
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

// Forget drops what the store remembers about keys with the prefix that were
// deleted at or below index. It is called after a checkpoint, with the index
// of the oldest one kept: the log is never applied again from before it.
func (s *Store) Forget(prefix []byte, index uint64) error {
	s.write.Lock()
	defer s.write.Unlock()
	wb := s.db.NewWriteBatch()
	defer wb.Cancel()
	err := s.each(stored(kindDeleted, prefix), true, func(item *badger.Item) error {
		return item.Value(func(raw []byte) error {
			_, at, err := decode(raw)
			if err != nil || at > index {
				return err
			}
			return wb.Delete(item.KeyCopy(nil))
		})
	})
	if err == nil {
		err = wb.Flush()
	}
	if err != nil {
		return fmt.Errorf("kv: forget %q up to %d: %w", prefix, index, err)
	}
	return nil
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
