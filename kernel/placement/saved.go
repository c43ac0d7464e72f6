package placement

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/kv"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// loadSaved reads the newest checkpoint, whose keyed state replaces the present
// one; without a checkpoint it is the empty state.
func loadSaved(store *checkpoint.Store, keys *keyed) (checkpoint.Meta, *saved, error) {
	if len(store.List()) == 0 {
		return checkpoint.Meta{}, &saved{manifest: &slog.Manifest{}}, keys.clear()
	}
	meta, r, err := store.Latest()
	if err != nil {
		return meta, nil, err
	}
	sv, rest, err := readSaved(r, meta.Size)
	if err == nil {
		err = keys.load(rest)
	}
	if err = errors.Join(err, r.Close()); err != nil {
		return meta, nil, fmt.Errorf("checkpoint %s: %w", meta.ID(), err)
	}
	return meta, sv, nil
}

// readSaved reads the state at the begin of a payload of size bytes. The reader
// it returns goes on with the keyed state.
func readSaved(r io.Reader, size int64) (*saved, *bufio.Reader, error) {
	br := bufio.NewReaderSize(io.LimitReader(r, size), 64<<10)
	version, err := br.ReadByte()
	if err != nil {
		return nil, nil, cutOff(err)
	}
	if version != stateVersion {
		return nil, nil, fmt.Errorf("%w: state version %d, want %d", errFormat, version, stateVersion)
	}
	state, err := readBytes(br, size)
	if err != nil {
		return nil, nil, err
	}
	sv, err := decodeSaved(state)
	return sv, br, err
}

// maxValue bounds the values of the keyed state in a checkpoint.
const maxValue = 64 << 20

// save writes all keys, as a part of a checkpoint. They may be ahead of it: what
// is applied after it is applied again when it has been loaded.
func (k *keyed) save(w io.Writer) error {
	if err := k.failed.Load(); err != nil {
		return *err
	}
	var b []byte
	n := len(k.prefix)
	err := k.store.Iterate(k.prefix, func(key, value []byte, index uint64) error {
		b = binary.AppendUvarint(b[:0], index)
		b = appendBytes(appendBytes(b, key[n:]), value)
		_, err := w.Write(b)
		return err
	})
	if err == nil {
		_, err = w.Write([]byte{0})
	}
	return err
}

// load replaces all keys by those that save has written.
func (k *keyed) load(r *bufio.Reader) error {
	const batchBytes = 256 << 10
	if err := k.clear(); err != nil {
		return err
	}
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
