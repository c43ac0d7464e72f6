package placement

import (
	"context"
	"encoding/binary"
	"errors"
	"path"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// keyed is the group's part of the node's key-value store.
type keyed struct {
	store  *kv.Store // nil: a volatile group has none
	prefix []byte
	batch  kv.Batch // for write, which has one caller
	put    [][]byte // its keys

	// What spares writes comparisons: the highest index that wrote or deleted a key,
	// and whether a key has been deleted since the keys were loaded. Of who writes
	// and loads.
	highest uint64
	deleted bool

	fs    vfs.FS
	dir   string    // of the files
	dirty dirtyKeys // written since they were

	mu       sync.Mutex // guards what follows; the sealer has it, and load
	chain    keyChain   // of the newest checkpoint
	complete bool       // it has all keys but the dirty ones
	since    uint64     // its index
	taken    dirtySet   // on its way to the next one
	saving   uint64     // index of the next one

	// failed is the first error of a write. Nothing is written after it, and no
	// checkpoint made that would take it for written: the next start applies the
	// log again from the one before.
	failed atomic.Pointer[error]

	// pause waits before a write that found no room is tried again; false: the
	// group stops. nil as long as nothing else would go on meanwhile.
	pause func(err error, tries int) bool
}

func newKeyed(cfg *Config) *keyed {
	return &keyed{store: cfg.KV, prefix: binary.BigEndian.AppendUint32(nil, cfg.ID), fs: cfg.FS, dir: path.Join(cfg.Dir, "keys")}
}

func (k *keyed) key(key []byte) []byte {
	return append(k.prefix[:len(k.prefix):len(k.prefix)], key...)
}

// write does the keyed writes of entries. Doing them again changes nothing. On
// a full disk it waits for room: the entries are in the log, and what comes after
// them must find them written.
func (k *keyed) write(list []keyedWrite) error {
	if err := k.failed.Load(); err != nil {
		return *err
	}
	err := k.commit(list)
	for tries := 0; errors.Is(err, vfs.ErrNoSpace) && k.pause != nil && k.pause(err, tries); tries++ {
		err = k.commit(list)
	}
	if err != nil {
		k.failed.Store(&err)
	}
	return err
}

func (k *keyed) commit(list []keyedWrite) error {
	defer k.batch.Reset()
	k.put = k.put[:0]
	for _, w := range list {
		for _, body := range w.puts {
			if err := k.gather(w.index, body); err != nil {
				return err
			}
		}
	}
	if k.store == nil {
		return errNoKeys
	}
	k.batch.Known = k.highest // of a replay, what is below may have been done already
	k.batch.Undeleted = !k.deleted
	if err := k.store.Commit(&k.batch); err != nil {
		return err
	}
	if len(list) > 0 {
		k.highest = max(k.highest, list[len(list)-1].index)
	}
	k.dirty.add(k.put...)
	clear(k.put)
	return nil
}

// gather adds the writes of one command to the batch.
func (k *keyed) gather(index uint64, body []byte) error {
	entries, err := decodePuts(body)
	if err != nil {
		return err
	}
	for _, e := range entries {
		k.put = append(k.put, e.Key)
		k.deleted = k.deleted || e.Value == nil
		switch {
		case e.Value != nil:
			k.batch.Put(k.key(e.Key), e.Value, index)
		case e.UpTo > 0:
			k.batch.DeleteUpTo(k.key(e.Key), index, e.UpTo)
		default:
			k.batch.Delete(k.key(e.Key), index)
		}
	}
	return nil
}

// forget drops what is remembered of deleted keys for replay, which never goes
// back behind index.
func (k *keyed) forget(index uint64) error { return k.store.Forget(k.prefix, index) }

var errNoKeys = &kernel.Error{Code: kernel.CodeNotAllowed, Detail: "a volatile group keeps no keyed state"}

// maxKey is the longest key of the keyed state.
const maxKey = 16 << 10

// Put writes keyed state: all entries or none, durable when it returns. The
// last writer wins. CodeUnavailable: also when the disk is full. CodeUnknown as for
// every command; it may be repeated.
func (g *Group) Put(ctx context.Context, entries []KV) error {
	if err := g.mayPut(entries); err != nil {
		return err
	}
	_, err := g.do(ctx, putCommand(entries))
	return err
}

// BeginPut is Put in two steps, for a leader of a term: when it returns, the entries have
// their place in the log, before all that is put later; wait waits for their outcome.
// CodeUnavailable: this node does not lead in that term.
func (g *Group) BeginPut(term uint64, entries []KV) (wait func(context.Context) error, err error) {
	if err := g.mayPut(entries); err != nil {
		return nil, err
	}
	ch, err := g.prop.commandIn(term, putCommand(entries))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := result(ctx, ch)
		return err
	}, nil
}

// HasRoom reports whether the disk has room for n more bytes of keyed state.
func (g *Group) HasRoom(n int) bool { return g.keyed.store != nil && g.keyed.store.Room(n) == nil }

// mayPut checks what is to be written.
func (g *Group) mayPut(entries []KV) error {
	if g.keyed.store == nil {
		return errNoKeys
	}
	size := 0
	for _, e := range entries {
		if len(e.Key) == 0 || len(e.Key) > maxKey {
			return kernel.Errorf(kernel.CodeInvalid, "key", "", "a key has 1 to %d bytes", maxKey)
		}
		size += len(e.Key) + len(e.Value)
	}
	if size > g.limits.RecordBytes {
		return errTooLarge
	}
	if err := g.keyed.store.Room(size); err != nil {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "%v", err)
	}
	return nil
}

// Get returns a value of the keyed state, nil if the key is missing. What a
// finished Put wrote is seen.
func (g *Group) Get(key []byte) ([]byte, error) {
	if g.keyed.store == nil {
		return nil, errNoKeys
	}
	value, _, ok, err := g.keyed.store.Get(g.keyed.key(key))
	if err != nil {
		return nil, kernel.Errorf(kernel.CodeInternal, "key", string(key), "%v", err)
	}
	if ok && value == nil {
		value = []byte{}
	}
	return value, nil
}

// Iterate calls fn for every key that begins with prefix, in order, until fn
// fails. The slices are valid during the call. kv.ErrStop ends it early
// without an error.
func (g *Group) Iterate(prefix []byte, fn func(key, value []byte) error) error {
	if g.keyed.store == nil {
		return errNoKeys
	}
	n := len(g.keyed.prefix)
	return g.keyed.store.Iterate(g.keyed.key(prefix), func(key, value []byte, _ uint64) error {
		return fn(key[n:], value)
	})
}

// FirstKey returns the first key that begins with prefix and is not below from, nil
// if there is none.
func (g *Group) FirstKey(prefix, from []byte) ([]byte, error) {
	if g.keyed.store == nil {
		return nil, errNoKeys
	}
	key, ok, err := g.keyed.store.First(g.keyed.key(prefix), g.keyed.key(from))
	if err != nil || !ok {
		return nil, err
	}
	return key[len(g.keyed.prefix):], nil
}
