package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// File is an open segment. It keeps no index in memory: the caller has the
// runs and asks for pages. Its methods may be called concurrently.
type File struct {
	name     string
	file     vfs.File
	id       uint64
	size     int64
	foot     footer
	runTable []Run // until TakeRuns
}

// Open opens a segment and reads its header, footer and run table, all of
// them checked. Errors match ErrDamaged, ErrVersion or those of the file
// system (fs.ErrNotExist).
func Open(fs vfs.FS, name string) (*File, error) {
	file, err := fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("segment: open: %w", err)
	}
	f := &File{name: name, file: file}
	if err := f.load(); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("segment: open %s: %w", name, err)
	}
	return f, nil
}

func (f *File) load() (err error) {
	if f.size, err = f.file.Size(); err != nil {
		return err
	}
	if f.size < HeaderSize+FooterSize {
		return fmt.Errorf("%w: %d bytes", ErrDamaged, f.size)
	}
	head, err := f.read(0, HeaderSize)
	if err != nil {
		return err
	}
	if f.id, err = decodeHeader(head); err != nil {
		return err
	}
	tail, err := f.read(f.size-FooterSize, FooterSize)
	if err != nil {
		return err
	}
	if f.foot, err = decodeFooter(tail, f.size); err != nil {
		return err
	}
	f.runTable, err = f.Runs()
	return err
}

// Runs reads the run table. It does I/O, unlike TakeRuns.
func (f *File) Runs() ([]Run, error) {
	table, err := f.read(f.foot.tablePos, int64(f.foot.runs)*RunSize)
	if err != nil {
		return nil, err
	}
	if crc(table) != f.foot.tableCRC {
		return nil, fmt.Errorf("%w: run table crc", ErrDamaged)
	}
	runs := make([]Run, f.foot.runs)
	for i := range runs {
		runs[i] = decodeRun(table[i*RunSize:])
		if err := runs[i].check(&f.foot); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// read returns n bytes at pos, which the caller knows to be in the file.
func (f *File) read(pos, n int64) ([]byte, error) {
	b := make([]byte, n)
	if _, err := f.file.ReadAt(b, pos); err != nil {
		return nil, fmt.Errorf("read %d bytes at %d: %w", n, pos, noEOF(err))
	}
	return b, nil
}

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ID is the number the segment was written with.
func (f *File) ID() uint64 { return f.id }

// Name is the file's name.
func (f *File) Name() string { return f.name }

// Size is the file's size in bytes.
func (f *File) Size() int64 { return f.size }

// Checksum is the XXH64 of the file up to the footer, as written.
func (f *File) Checksum() uint64 { return f.foot.checksum }

// TakeRuns returns the run table in the order of the partitions and forgets
// it: the caller keeps the runs that live.
func (f *File) TakeRuns() []Run {
	runs := f.runTable
	f.runTable = nil
	return runs
}

// Close closes the file; reads that run at the moment may fail.
func (f *File) Close() error { return f.file.Close() }

// Pages is the number of index pages of the run.
func (f *File) Pages(r *Run) int { return r.pages() }

// Page reads index page i of the run and returns its entries encoded, in
// place: PageLen and PageEntry read it. The page has been checked.
func (f *File) Page(r *Run, i int) ([]byte, error) {
	first := i * PageEntries
	n := min(PageEntries, int(r.Entries)-first) * EntrySize
	pos := r.IndexPos + int64(i)*pageSize
	b, err := f.read(pos, int64(n+crcSize))
	wrong := err == nil && binary.BigEndian.Uint32(b[n:]) != crc(b[:n])
	if wrong {
		err = errors.New("index page crc")
	}
	if err != nil {
		if errors.Is(err, vfs.ErrClosed) {
			return nil, err
		}
		return nil, &Damage{File: f.name, Pos: pos, Length: int64(n + crcSize), First: r.Base, Last: r.End - 1, Err: err, Wrong: wrong}
	}
	return b[:n:n], nil
}

// PageLen is the number of entries of a page.
func PageLen(page []byte) int { return len(page) / EntrySize }

// PageEntry is entry i of a page of the run, checked against the file.
func (f *File) PageEntry(r *Run, page []byte, i int) (Entry, error) {
	e := decodeEntry(page[i*EntrySize:])
	if err := e.check(r, f.foot.dataEnd); err != nil {
		return e, &Damage{File: f.name, Pos: r.IndexPos, Length: EntrySize, First: r.Base, Last: r.End - 1, Err: err, Wrong: true}
	}
	return e, nil
}

// PageBase is the offset of entry i, which is all that a search looks at.
func PageBase(page []byte, i int) int64 {
	return int64(binary.BigEndian.Uint64(page[i*EntrySize:]))
}

// Batches reads the batches of consecutive entries that lie one after the
// other in the file, appends them to dst and stamps each with its offset.
// Every batch is checked; from the first bad one on dst stays as it was and
// the error is a *Damage that names it. The batches before it are returned.
func (f *File) Batches(dst []byte, entries ...Entry) ([]byte, error) {
	if len(entries) == 0 {
		return dst, nil
	}
	first, last := &entries[0], &entries[len(entries)-1]
	n := last.Pos + int64(last.Length) - first.Pos
	start := len(dst)
	dst = slices.Grow(dst, int(n))
	buf := dst[start : start+int(n)]
	_, err := f.file.ReadAt(buf, first.Pos)
	if err != nil && errors.Is(err, vfs.ErrClosed) {
		return dst[:start], err
	}
	if err != nil && len(entries) > 1 {
		return f.oneByOne(dst[:start], entries)
	}
	if err != nil {
		return dst[:start], f.damage(first, noEOF(err), false)
	}
	for i := range entries {
		e := &entries[i]
		at := e.Pos - first.Pos
		batch := buf[at : at+int64(e.Length)]
		if err := record.CheckCRC(batch); err != nil {
			return dst[:start+int(at)], f.damage(e, err, true)
		}
		record.Stamp(batch, e.Base, record.LeaderEpoch(batch))
	}
	return dst[:start+int(n)], nil
}

// oneByOne finds the batch that a failed read of many stumbled over.
func (f *File) oneByOne(dst []byte, entries []Entry) ([]byte, error) {
	for _, e := range entries {
		var err error
		if dst, err = f.Batches(dst, e); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

func (f *File) damage(e *Entry, err error, wrong bool) error {
	return &Damage{File: f.name, Pos: e.Pos, Length: int64(e.Length), First: e.Base, Last: e.Last(), Err: err, Wrong: wrong}
}

// Verify reads the whole file and compares its checksum with the one in the
// footer.
func (f *File) Verify() error { return f.VerifyPaced(nil) }

// VerifyPaced is Verify that calls pace, if there is one, after every few hundred KiB
// with how many bytes they were. An error of it ends the reading.
func (f *File) VerifyPaced(pace func(bytes int) error) error {
	h := xxhash.New()
	for at := int64(0); at < f.size-FooterSize; at += verifyRead {
		n := min(verifyRead, f.size-FooterSize-at)
		if _, err := io.Copy(h, io.NewSectionReader(f.file, at, n)); err != nil {
			return fmt.Errorf("segment: verify %s: %w", f.name, err)
		}
		if pace == nil {
			continue
		}
		if err := pace(int(n)); err != nil {
			return err
		}
	}
	if got := h.Sum64(); got != f.foot.checksum {
		return &Damage{File: f.name, Length: f.size, First: math.MaxInt64, Last: math.MinInt64, Err: fmt.Errorf("checksum %016x, the footer says %016x", got, f.foot.checksum)}
	}
	return nil
}

// verifyRead is how much is read between two calls of pace.
const verifyRead = 256 << 10

// Reader reads the file's raw bytes, to send it to another node.
func (f *File) Reader() *io.SectionReader { return io.NewSectionReader(f.file, 0, f.size) }
