package keyfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Writer writes one file. It is for one goroutine; Finish or Abort ends it.
type Writer struct {
	fs   vfs.FS
	dir  string
	meta Meta
	file vfs.File // nil at the end

	buf   []byte // a block with room for its head in front
	count uint64
	bytes uint64
	dirty int // written since the last sync
	err   error
}

// syncBytes is how much is written before it is synced: all at the end would hold
// up the syncs of others, which the disk does after it.
const syncBytes = 4 << 20

// Create begins a file of a kind for the checkpoint at index.
func Create(fs vfs.FS, dir string, kind Kind, index uint64) (*Writer, error) {
	w := &Writer{fs: fs, dir: dir, meta: Meta{Kind: kind, Index: index}}
	file, err := fs.Create(w.temp())
	if err != nil {
		return nil, fmt.Errorf("keyfile: %w", err)
	}
	w.file = file
	w.write(w.meta.header())
	w.buf = make([]byte, blockHead, blockBytes+4<<10)
	return w, nil
}

func (w *Writer) path() string { return path.Join(w.dir, w.meta.Name()) }
func (w *Writer) temp() string { return w.path() + TempSuffix }

// Add adds an entry, whose slices are copied. Keys come in ascending order.
func (w *Writer) Add(e Entry) error {
	if len(e.Key) > MaxKey || len(e.Value) > MaxValue {
		return fmt.Errorf("keyfile %s: a key of %d bytes with a value of %d", w.path(), len(e.Key), len(e.Value))
	}
	w.buf = appendEntry(w.buf, &e)
	w.count++
	if len(w.buf) >= blockBytes {
		w.flush()
	}
	return w.err
}

// Count is the number of entries added.
func (w *Writer) Count() uint64 { return w.count }

// flush writes the block that has been gathered.
func (w *Writer) flush() {
	n := len(w.buf) - blockHead
	if n == 0 {
		return
	}
	binary.BigEndian.PutUint32(w.buf, uint32(n))
	binary.BigEndian.PutUint32(w.buf[4:], crc32.Checksum(w.buf[blockHead:], castagnoli))
	w.bytes += uint64(n)
	w.write(w.buf)
	if cap(w.buf) > 4*blockBytes {
		w.buf = make([]byte, blockHead, blockBytes+4<<10)
	}
	w.buf = w.buf[:blockHead]
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	if _, err := w.file.WriteAt(b, w.meta.Size); err != nil {
		w.err = fmt.Errorf("keyfile %s: %w", w.temp(), err)
		return
	}
	w.meta.Size += int64(len(b))
	w.meta.Sum = crc32.Update(w.meta.Sum, castagnoli, b)
	if w.dirty += len(b); w.dirty >= syncBytes {
		w.sync()
	}
}

func (w *Writer) sync() {
	if w.err != nil {
		return
	}
	w.dirty = 0
	if err := w.file.Sync(); err != nil {
		w.err = fmt.Errorf("keyfile %s: %w", w.temp(), err)
	}
}

// Finish makes the file durable under its name and says what it is. After an
// error nothing of it remains.
func (w *Writer) Finish() (Meta, error) {
	w.flush()
	w.write(make([]byte, blockHead)) // no more blocks
	w.write(encodeFooter(w.count, w.bytes))
	w.sync()
	if w.err != nil {
		return Meta{}, errors.Join(w.err, w.Abort())
	}
	err := w.file.Close()
	w.file = nil
	if err == nil {
		err = w.fs.Rename(w.temp(), w.path())
	}
	if err != nil {
		return Meta{}, errors.Join(fmt.Errorf("keyfile %s: %w", w.temp(), err), w.fs.Remove(w.temp()))
	}
	if err := w.fs.SyncDir(w.dir); err != nil {
		return Meta{}, fmt.Errorf("keyfile %s: %w", w.path(), err)
	}
	return w.meta, nil
}

// Abort drops what was written. After Finish it does nothing.
func (w *Writer) Abort() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return errors.Join(err, w.fs.Remove(w.temp()))
}
