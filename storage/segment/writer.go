package segment

import (
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Writer writes one segment file from front to back: first the batches, then
// the runs. What is written depends on nothing but the calls, so replicas
// that make the same calls have the same bytes.
type Writer struct {
	file vfs.File
	pos  int64
	hash *xxhash.Digest
	foot footer
	runs []byte // the encoded run table
	page []byte
	err  error
}

// NewWriter begins a segment in an empty file, which stays the caller's to
// sync and close.
func NewWriter(file vfs.File, id uint64) *Writer {
	w := &Writer{file: file, hash: xxhash.New()}
	w.write(encodeHeader(id))
	w.foot.dataEnd = w.pos
	return w
}

// Pos is the position in the file of what Append writes next.
func (w *Writer) Pos() int64 { return w.pos }

// Append writes count whole batches, which lie one after the other in b. All
// batches are written before the first run.
func (w *Writer) Append(b []byte, count int) error {
	w.write(b)
	w.foot.dataEnd = w.pos
	w.foot.batches += uint64(count)
	return w.err
}

// AppendRun writes the index of a partition's run: its batches in the order
// of their offsets, at least one. Runs come in the order of their partitions.
func (w *Writer) AppendRun(partition uint64, entries []Entry) (Run, error) {
	r := Run{Partition: partition, Base: entries[0].Base, End: entries[len(entries)-1].Last() + 1,
		MaxTime: entries[0].MaxTime, IndexPos: w.pos, Entries: uint32(len(entries))}
	w.page = w.page[:0]
	for i := range entries {
		e := &entries[i]
		r.MaxTime = max(r.MaxTime, e.MaxTime)
		r.Bytes += int64(e.Length)
		w.page = appendEntry(w.page, e)
		if (i+1)%PageEntries == 0 || i == len(entries)-1 {
			sum := crc(w.page)
			w.page = append(w.page, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
			w.write(w.page)
			w.page = w.page[:0]
		}
	}
	w.runs = appendRun(w.runs, &r)
	w.foot.runs++
	return r, w.err
}

// Finish writes the run table and the footer, and returns the size of the
// file and its checksum.
func (w *Writer) Finish() (size int64, checksum uint64, err error) {
	w.foot.tablePos, w.foot.tableCRC = w.pos, crc(w.runs)
	w.write(w.runs)
	w.foot.checksum = w.hash.Sum64()
	w.write(w.foot.encode())
	return w.pos, w.foot.checksum, w.err
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.file.WriteAt(b, w.pos)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("segment: write %d bytes at %d: %w", len(b), w.pos, err)
		return
	}
	_, _ = w.hash.Write(b) // never fails
	w.pos += int64(n)
}
