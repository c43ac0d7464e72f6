package kv

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// Batch gathers writes that are done together. It is for one goroutine and
// may be used again after Reset. Keys and values are kept until Commit and
// must not change before.
type Batch struct {
	ops []op

	// Known, if not 0, is a promise that spares a Put at a higher index a comparison:
	// no key has been written or deleted above it, but by this batch, in order.
	// Undeleted spares it another: none is remembered as deleted, or is deleted by
	// this batch.
	Known     uint64
	Undeleted bool
}

type op struct {
	key, value []byte
	index      uint64
	remove     bool
	upTo       uint64 // of a removal: what a higher index wrote stays; 0 = nothing does
}

// Put sets key to value, as of the log index.
func (b *Batch) Put(key, value []byte, index uint64) {
	b.ops = append(b.ops, op{key: key, value: value, index: index})
}

// Delete removes key, as of the log index.
func (b *Batch) Delete(key []byte, index uint64) {
	b.ops = append(b.ops, op{key: key, index: index, remove: true})
}

// DeleteUpTo removes key, as of the log index, unless a higher index than upTo (not
// 0) has written it.
func (b *Batch) DeleteUpTo(key []byte, index, upTo uint64) {
	b.ops = append(b.ops, op{key: key, index: index, remove: true, upTo: upTo})
}

// Len is the number of writes gathered.
func (b *Batch) Len() int { return len(b.ops) }

// Size is the number of bytes of keys and values gathered.
func (b *Batch) Size() (n int) {
	for i := range b.ops {
		n += len(b.ops[i].key) + len(b.ops[i].value)
	}
	return n
}

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.ops)
	*b = Batch{ops: b.ops[:0]}
}

// Put is a batch of one.
func (s *Store) Put(key, value []byte, index uint64) error {
	return s.Commit(&Batch{ops: []op{{key: key, value: value, index: index}}})
}

// Delete is a batch of one.
func (s *Store) Delete(key []byte, index uint64) error {
	return s.Commit(&Batch{ops: []op{{key: key, index: index, remove: true}}})
}

// Commit does the writes of a batch in their order, leaving out those whose
// key was written or deleted at a higher index. It is visible at once. An error
// matching vfs.ErrNoSpace means that there was no room, and that the batch may be
// committed again. A batch larger than Badger's transactions (about 600
// KB, less what lies in values above 64 KB) is visible in parts.
func (s *Store) Commit(b *Batch) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.Room(b.Size()); err != nil {
		return err
	}
	tx := s.db.NewTransaction(true)
	defer func() { tx.Discard() }()
	for i := range b.ops {
		o := &b.ops[i]
		err := o.apply(tx, b)
		if errors.Is(err, badger.ErrTxnTooBig) {
			if err = tx.Commit(); err == nil {
				tx = s.db.NewTransaction(true)
				err = o.apply(tx, b)
			}
		}
		if err != nil {
			return fmt.Errorf("kv: write %q at %d: %w", o.key, o.index, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("kv: commit: %w", err)
	}
	return nil
}

// apply does one write in a transaction, if it is not outdated. Badger adds
// either all or nothing of a Set, and each key of ours may be set twice, so
// that doing it again in a new transaction is harmless.
func (o *op) apply(tx *badger.Txn, b *Batch) error {
	value := stored(kindValue, o.key)
	if !o.remove && b.Known > 0 && o.index > b.Known {
		if b.Undeleted {
			return tx.Set(value, encode(o.value, o.index))
		}
		return o.set(tx, value)
	}
	deleted := stored(kindDeleted, o.key)
	at, present, err := indexOf(tx, value)
	if err != nil || present && (at > o.index || o.upTo > 0 && at > o.upTo) {
		return err
	}
	if o.upTo > 0 && !present {
		return nil
	}
	gone, wasDeleted, err := indexOf(tx, deleted)
	if err != nil || wasDeleted && gone > o.index {
		return err
	}
	if !o.remove {
		if wasDeleted {
			if err := tx.Delete(deleted); err != nil {
				return err
			}
		}
		return tx.Set(value, encode(o.value, o.index))
	}
	if err := tx.Set(deleted, encode(nil, o.index)); err != nil {
		return err
	}
	if present {
		return tx.Delete(value)
	}
	return nil
}

// set is apply of a write that nothing newer stands against.
func (o *op) set(tx *badger.Txn, value []byte) error {
	deleted := stored(kindDeleted, o.key)
	_, err := tx.Get(deleted)
	if err == nil {
		err = tx.Delete(deleted)
	}
	if err != nil && !errors.Is(err, badger.ErrKeyNotFound) {
		return err
	}
	return tx.Set(value, encode(o.value, o.index))
}

func indexOf(tx *badger.Txn, key []byte) (index uint64, ok bool, err error) {
	item, err := tx.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	err = item.Value(func(raw []byte) error {
		_, index, err = decode(raw)
		return err
	})
	return index, err == nil, err
}
