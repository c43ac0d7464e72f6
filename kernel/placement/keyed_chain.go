package placement

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/keyfile"
	"github.com/trivium-mq/trivium/storage/kv"
)

// keyChain is the files that hold the keyed state of a checkpoint: a base, then
// deltas, oldest first. No file: there are no keys.
type keyChain []keyfile.Meta

// maxChain is how many files a chain has at most: a start reads them all.
const maxChain = 64

// full says whether the next file should be a base: as soon as the deltas are as
// large as it, so that each key is written some twice.
func (c keyChain) full() bool {
	if len(c) == 0 || len(c) >= maxChain {
		return true
	}
	var deltas int64
	for _, m := range c[1:] {
		deltas += m.Size
	}
	return deltas >= c[0].Size
}

func (c keyChain) size() (n int64) {
	for _, m := range c {
		n += m.Size
	}
	return n
}

func (c keyChain) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c)))
	for _, m := range c {
		b = append(b, byte(m.Kind))
		b = binary.BigEndian.AppendUint64(b, m.Index)
		b = binary.BigEndian.AppendUint64(b, uint64(m.Size))
		b = binary.BigEndian.AppendUint32(b, m.Sum)
	}
	return b
}

// chainItem is the encoded size of a file.
const chainItem = 1 + 8 + 8 + 4

func readChain(r *bufio.Reader) (keyChain, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, cutOff(err)
	}
	if n > maxChain {
		return nil, fmt.Errorf("%w: keyed state in %d files", errFormat, n)
	}
	b := make([]byte, int(n)*chainItem)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, cutOff(err)
	}
	c := make(keyChain, n)
	for i := range c {
		d := decoder{b: b[i*chainItem:][:chainItem]}
		kind, index, size := keyfile.Kind(d.byte()), d.uint64(), d.uint64()
		c[i] = keyfile.Meta{Kind: kind, Index: index, Size: int64(size), Sum: binary.BigEndian.Uint32(d.b)}
		if (kind == keyfile.Base) != (i == 0) || kind > keyfile.Delta || c[i].Size < 0 || i > 0 && index <= c[i-1].Index {
			return nil, fmt.Errorf("%w: chain of keyed state", errFormat)
		}
	}
	return c, nil
}

// save writes what has changed since the last checkpoint for the one at index, and
// returns the files that this one is to name. saved is to be called when it is
// durable; else the next save does it again. Keys may be ahead of the index: what
// is applied after it is applied again when they have been loaded.
func (k *keyed) save(index uint64) (keyChain, error) {
	if err := k.failed.Load(); err != nil {
		return nil, *err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.taken.empty() {
		k.dirty.giveBack(k.taken)
	}
	k.taken, k.saving = k.dirty.take(), index
	if k.complete && k.taken.empty() {
		return k.chain, nil
	}
	kind := keyfile.Delta
	if k.chain.full() {
		kind = keyfile.Base
	}
	if err := k.fs.MkdirAll(k.dir); err != nil {
		return nil, fmt.Errorf("placement: keyed state: %w", err)
	}
	w, err := keyfile.Create(k.fs, k.dir, kind, index)
	if err != nil {
		return nil, fmt.Errorf("placement: keyed state: %w", err)
	}
	if kind == keyfile.Base {
		err = k.writeAll(w)
	} else {
		err = k.writeChanged(w)
	}
	if err != nil || w.Count() == 0 && kind == keyfile.Base { // without keys there is no chain
		return nil, errors.Join(err, w.Abort())
	}
	meta, err := w.Finish()
	if err != nil {
		return nil, err
	}
	if kind == keyfile.Base {
		return keyChain{meta}, nil
	}
	return append(k.chain[:len(k.chain):len(k.chain)], meta), nil
}

func (k *keyed) writeAll(w *keyfile.Writer) error {
	n := len(k.prefix)
	return k.store.Iterate(k.prefix, func(key, value []byte, index uint64) error {
		return w.Add(keyfile.Entry{Key: key[n:], Value: value, Index: index})
	})
}

func (k *keyed) writeChanged(w *keyfile.Writer) error {
	n := len(k.prefix)
	if k.taken.over {
		return k.store.Changed(k.prefix, k.since, func(key, value []byte, index uint64, deleted bool) error {
			return w.Add(keyfile.Entry{Key: key[n:], Value: value, Index: index, Deleted: deleted})
		})
	}
	for _, key := range k.taken.sorted() {
		value, index, ok, err := k.store.Get(k.key([]byte(key)))
		if err == nil {
			err = w.Add(keyfile.Entry{Key: []byte(key), Value: value, Index: index, Deleted: !ok})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// saved says that the checkpoint at index, with the chain that save returned, is
// durable.
func (k *keyed) saved(chain keyChain, index uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saving == index { // else another state was loaded meanwhile
		k.chain, k.complete, k.since, k.taken = chain, true, index, dirtySet{}
	}
}

// sweep removes the files that no kept checkpoint names.
func (k *keyed) sweep(kept []keptState) error {
	names, err := k.fs.List(k.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("placement: keyed state: %w", err)
	}
	named := make(map[string]bool)
	for _, s := range kept {
		for _, m := range s.chain {
			named[m.Name()] = true
		}
	}
	removed := false
	for _, name := range names {
		if named[name] || !keyfile.IsName(name) {
			continue
		}
		if err := k.fs.Remove(path.Join(k.dir, name)); err != nil {
			return fmt.Errorf("placement: keyed state: %w", err)
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return k.fs.SyncDir(k.dir)
}

// load replaces all keys by those of a checkpoint: of the files that its chain
// names, or, if the checkpoint came from another node, of what follows in rest.
func (k *keyed) load(sv *saved, rest *bufio.Reader, index uint64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.clear(); err != nil {
		return err
	}
	k.dirty.take()
	k.highest, k.deleted = 0, false
	k.chain, k.complete, k.since, k.taken, k.saving = nil, false, 0, dirtySet{}, 0
	if sv.inline { // an old checkpoint
		return k.loadInline(rest)
	}
	_, err := rest.Peek(1)
	here := errors.Is(err, io.EOF)
	if err != nil && !here {
		return err
	}
	if here {
		err = k.loadFiles(sv.chain)
	} else {
		err = k.loadSent(sv.chain, rest)
	}
	if err != nil {
		return err
	}
	if here { // else the next checkpoint has files of its own
		k.chain, k.complete, k.since = sv.chain, true, index
	}
	return nil
}

// loadFiles loads the keys of the files that a chain names.
func (k *keyed) loadFiles(chain keyChain) error {
	l, err := k.store.Load(chain.size(), true)
	if err != nil {
		return err
	}
	key := k.key(nil)
	err = keyfile.ReadChain(k.fs, k.dir, chain, func(e keyfile.Entry) error {
		k.highest = max(k.highest, e.Index)
		key = append(key[:len(k.prefix)], e.Key...)
		return l.Put(key, e.Value, e.Index)
	})
	if err != nil {
		return errors.Join(err, l.Abort())
	}
	return l.Finish()
}

// loadSent loads the keys of a chain whose files come one after the other.
func (k *keyed) loadSent(chain keyChain, rest *bufio.Reader) error {
	l, err := k.store.Load(chain.size(), false)
	if err != nil {
		return err
	}
	for _, m := range chain {
		if err := k.loadFile(l, keyfile.NewReader(rest, m)); err != nil {
			return errors.Join(err, l.Abort())
		}
	}
	if err := l.Finish(); err != nil {
		return err
	}
	if _, err := rest.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("%w: bytes after the keyed state", errFormat), err)
	}
	return nil
}

func (k *keyed) loadFile(l *kv.Loader, r *keyfile.Reader) error {
	for {
		e, ok, err := r.Next()
		k.highest = max(k.highest, e.Index)
		switch {
		case err != nil || !ok:
			return err
		case e.Deleted:
			err = l.Delete(k.key(e.Key))
		default:
			err = l.Put(k.key(e.Key), e.Value, e.Index)
		}
		if err != nil {
			return err
		}
	}
}

// attached names the files that belong to a checkpoint when it is sent to another
// node, where they follow its payload, which is read for that.
func (k *keyed) attached(m checkpoint.Meta, payload io.Reader) ([]string, *saved, error) {
	sv, rest, err := readSaved(payload, m.Size)
	if err != nil || sv.inline {
		return nil, sv, err
	}
	if _, err := rest.Peek(1); !errors.Is(err, io.EOF) {
		return nil, sv, err // they are in it
	}
	names := make([]string, len(sv.chain))
	for i, f := range sv.chain {
		names[i] = path.Join(k.dir, f.Name())
	}
	return names, sv, nil
}
