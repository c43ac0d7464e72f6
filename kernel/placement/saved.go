package placement

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/keyfile"
	"github.com/trivium-mq/trivium/storage/kv"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// keptState is what a checkpoint that is kept needs beside itself.
type keptState struct {
	manifest *slog.Manifest
	chain    keyChain
}

func manifests(kept []keptState) []*slog.Manifest {
	out := make([]*slog.Manifest, len(kept))
	for i := range kept {
		out[i] = kept[i].manifest
	}
	return out
}

// loadSaved reads the newest checkpoint that is whole, whose keyed state replaces
// the present one, and what the one before it needs, to which a later start can
// still fall back. Those that are damaged are set aside; without any the state is
// empty, and whether the log has it all is for the caller to judge.
func loadSaved(store *checkpoint.Store, keys *keyed) (checkpoint.Meta, *saved, []keptState, error) {
	for {
		meta, r, err := store.Latest()
		if errors.Is(err, checkpoint.ErrNone) || errors.Is(err, checkpoint.ErrCorrupt) {
			sv := &saved{manifest: &slog.Manifest{}}
			kept := []keptState{{manifest: sv.manifest}}
			return checkpoint.Meta{}, sv, kept, keys.empty()
		}
		if err != nil {
			return meta, nil, nil, err
		}
		sv, rest, err := readSaved(r, meta.Size)
		if err == nil {
			err = keys.load(sv, rest, meta.Index)
		}
		err = errors.Join(err, r.Close())
		if errors.Is(err, keyfile.ErrDamaged) {
			if err := store.SetAside(meta.ID(), err); err != nil {
				return meta, nil, nil, err
			}
			continue
		}
		if err != nil {
			return meta, nil, nil, fmt.Errorf("checkpoint %s: %w", meta.ID(), err)
		}
		kept := append(olderSaved(store), keptState{sv.manifest, sv.chain})
		return meta, sv, kept, nil
	}
}

// olderSaved reads what the checkpoint before the newest needs. If it cannot be
// read it needs nothing: nobody will use it.
func olderSaved(store *checkpoint.Store) []keptState {
	list := store.List()
	if len(list) < 2 {
		return nil
	}
	meta, r, err := store.Read(list[1].ID())
	if err != nil {
		return nil
	}
	defer r.Close()
	sv, _, err := readSaved(r, meta.Size)
	if err != nil {
		return nil
	}
	return []keptState{{sv.manifest, sv.chain}}
}

// readSaved reads the state at the begin of a payload of size bytes. The reader
// it returns goes on with the keyed state, if it is there.
func readSaved(r io.Reader, size int64) (*saved, *bufio.Reader, error) {
	br := bufio.NewReaderSize(io.LimitReader(r, size), 64<<10)
	version, err := br.ReadByte()
	if err != nil {
		return nil, nil, cutOff(err)
	}
	if version < oldestVersion || version > stateVersion {
		return nil, nil, fmt.Errorf("%w: state version %d, want %d to %d", errFormat, version, oldestVersion, stateVersion)
	}
	state, err := readBytes(br, size)
	if err != nil {
		return nil, nil, err
	}
	sv, err := decodeSaved(state)
	if err != nil {
		return nil, nil, err
	}
	if sv.inline = version < chainVersion; !sv.inline {
		sv.chain, err = readChain(br)
	}
	return sv, br, err
}

// maxValue bounds the values of the keyed state in a checkpoint.
const maxValue = 64 << 20

// loadInline adds the keys that an old checkpoint has in itself.
func (k *keyed) loadInline(r *bufio.Reader) error {
	const batchBytes = 256 << 10
	var batch kv.Batch
	for {
		index, err := binary.ReadUvarint(r)
		if err != nil {
			return cutOff(err)
		}
		if index == 0 {
			break
		}
		key, err := readBytes(r, maxKey)
		if err != nil {
			return err
		}
		value, err := readBytes(r, maxValue)
		if err != nil {
			return err
		}
		k.highest = max(k.highest, index)
		batch.Put(k.key(key), value, index)
		if batch.Size() < batchBytes {
			continue
		}
		if err := k.store.Commit(&batch); err != nil {
			return err
		}
		batch.Reset()
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.Join(fmt.Errorf("%w: bytes after the keyed state", errFormat), err)
	}
	return k.store.Commit(&batch)
}

func (k *keyed) clear() error { return k.store.Clear(k.prefix) }

// empty makes the state that has no keys, and needs no files.
func (k *keyed) empty() error {
	k.complete = true
	return k.clear()
}

// readBytes reads what appendBytes has written.
func readBytes(r *bufio.Reader, limit int64) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, cutOff(err)
	}
	if n > uint64(limit) {
		return nil, fmt.Errorf("%w: %d bytes", errFormat, n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, cutOff(err)
	}
	return b, nil
}

// cutOff makes the end of the bytes a matter of the format.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: cut off", errFormat)
	}
	return err
}
