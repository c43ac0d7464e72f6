package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path"
	"slices"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// chunk is the unit of reads and writes.
const chunk = 256 << 10

// syncBytes is how much is written before it is synced: all at the end would hold
// up the syncs of others, which the disk does after it.
const syncBytes = 4 << 20

// Writer writes one checkpoint. It is not safe for concurrent use. Either
// Commit or Abort must be called.
type Writer struct {
	store *Store
	meta  Meta
	tmp   string
	file  vfs.File // nil once committed or aborted
	buf   []byte
	off   int64
	sum   uint32
	dirty int // bytes written since the last sync
	err   error
}

// Create begins a checkpoint whose payload arrives bit by bit.
func (s *Store) Create(m Meta) (*Writer, error) {
	if len(m.Configuration) > maxConfiguration {
		return nil, fmt.Errorf("checkpoint %s: configuration of %d bytes", m.ID(), len(m.Configuration))
	}
	m.Configuration = append([]byte(nil), m.Configuration...)
	m.Size = 0
	s.mu.Lock()
	s.tmp++
	tmp := path.Join(s.dir, fmt.Sprintf("%s.%d%s", m.ID(), s.tmp, tmpSuffix))
	s.mu.Unlock()
	f, err := s.fs.Create(tmp)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	return &Writer{store: s, meta: m, tmp: tmp, file: f, buf: encodeHeader(m)}, nil
}

// Write adds to the payload.
func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.meta.Size += int64(len(p))
	for rest := p; len(rest) > 0; { // so that the buffer stays small
		n := min(len(rest), chunk)
		w.buf = append(w.buf, rest[:n]...)
		if rest = rest[n:]; len(w.buf) >= chunk {
			w.flush()
		}
	}
	if w.err != nil {
		return 0, w.err
	}
	return len(p), nil
}

func (w *Writer) flush() {
	if w.err != nil || len(w.buf) == 0 {
		return
	}
	w.sum = crc32.Update(w.sum, castagnoli, w.buf)
	if _, err := w.file.WriteAt(w.buf, w.off); err != nil {
		w.err = fmt.Errorf("checkpoint %s: %w", w.tmp, err)
		return
	}
	w.off += int64(len(w.buf))
	w.dirty += len(w.buf)
	w.buf = w.buf[:0]
	if w.dirty >= syncBytes {
		w.sync()
	}
}

func (w *Writer) sync() {
	if w.err != nil {
		return
	}
	w.dirty = 0
	if err := w.file.Sync(); err != nil {
		w.err = fmt.Errorf("checkpoint %s: %w", w.tmp, err)
	}
}

// Meta returns what is being written; Size grows with the payload.
func (w *Writer) Meta() Meta { return w.meta }

// Commit makes the checkpoint durable. After an error nothing of it remains.
func (w *Writer) Commit() error {
	if w.file == nil {
		return errors.New("checkpoint: writer is finished")
	}
	w.flush()
	w.buf = append(w.buf, encodeFooter(w.meta.Size, w.sum)...)
	w.flush()
	w.sync()
	if w.err != nil {
		return errors.Join(w.err, w.Abort())
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return errors.Join(fmt.Errorf("checkpoint %s: %w", w.tmp, err), w.store.fs.Remove(w.tmp))
	}
	return w.store.commit(w.meta, w.tmp)
}

// Abort drops what has been written. After Commit it does nothing.
func (w *Writer) Abort() error {
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return errors.Join(err, w.store.fs.Remove(w.tmp))
}

// readMeta reads and checks the header, and takes the size of the payload from
// the footer.
func readMeta(f vfs.File) (Meta, error) {
	size, err := f.Size()
	if err != nil {
		return Meta{}, err
	}
	if size < headerSize+footerSize {
		return Meta{}, fmt.Errorf("%w: only %d bytes", ErrCorrupt, size)
	}
	head := make([]byte, headerSize)
	if _, err := f.ReadAt(head, 0); err != nil {
		return Meta{}, err
	}
	m, configuration, err := decodeFixed(head)
	if errors.Is(err, ErrVersion) && wasOurs(f, head, size) {
		err = fmt.Errorf("%w: version byte", ErrCorrupt)
	}
	if err != nil {
		return Meta{}, err
	}
	if size < int64(headerSize+configuration+footerSize) {
		return Meta{}, fmt.Errorf("%w: cut in the header", ErrCorrupt)
	}
	all := make([]byte, headerSize+configuration)
	if _, err := f.ReadAt(all, 0); err != nil {
		return Meta{}, err
	}
	want := encodeHeader(Meta{Index: m.Index, Term: m.Term, ConfigurationIndex: m.ConfigurationIndex,
		Configuration: all[headerSize:]})
	if string(want) != string(all) {
		return Meta{}, fmt.Errorf("%w: header checksum", ErrCorrupt)
	}
	m.Configuration = all[headerSize:]
	m.Size, _, err = readFooter(f, size)
	if err != nil {
		return Meta{}, err
	}
	if m.Size != size-int64(headerSize+configuration+footerSize) {
		return Meta{}, fmt.Errorf("%w: payload of %d bytes in a file of %d", ErrCorrupt, m.Size, size)
	}
	return m, nil
}

// wasOurs says whether of a header nothing but the version byte is another than it was
// written: then it is damaged, and not of another version, which has a sum of its own.
func wasOurs(f vfs.File, head []byte, size int64) bool {
	fixed := slices.Clone(head)
	fixed[4] = version
	m, configuration, err := decodeFixed(fixed)
	if err != nil || size < int64(headerSize+configuration+footerSize) {
		return false
	}
	all := make([]byte, headerSize+configuration)
	if _, err := f.ReadAt(all, 0); err != nil {
		return false
	}
	all[4] = version
	return string(all) == string(encodeHeader(Meta{Index: m.Index, Term: m.Term, ConfigurationIndex: m.ConfigurationIndex, Configuration: all[headerSize:]}))
}

func readFooter(f vfs.File, size int64) (payload int64, sum uint32, err error) {
	b := make([]byte, footerSize)
	if _, err := f.ReadAt(b, size-footerSize); err != nil {
		return 0, 0, err
	}
	return decodeFooter(b)
}

// verify checks the sum over everything before the footer.
func verify(f vfs.File, start, payload int64) error {
	end := start + payload
	size, err := f.Size()
	if err != nil {
		return err
	}
	if size != end+footerSize {
		return fmt.Errorf("%w: %d bytes, not %d", ErrCorrupt, size, end+footerSize)
	}
	n, want, err := readFooter(f, size)
	if err != nil {
		return err
	}
	var sum uint32
	buf := make([]byte, min(chunk, end))
	for off := int64(0); off < end; {
		b := buf[:min(int64(len(buf)), end-off)]
		if _, err := f.ReadAt(b, off); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		sum = crc32.Update(sum, castagnoli, b)
		off += int64(len(b))
	}
	if sum != want || n != payload {
		return fmt.Errorf("%w: checksum", ErrCorrupt)
	}
	return nil
}
