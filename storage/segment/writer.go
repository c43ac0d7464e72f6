package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// Writer writes one segment file from front to back: first the batches, then
// the runs. What is written depends on nothing but the calls, so replicas
// that make the same calls have the same bytes. A failed write is reported by
// every later call.
type Writer struct {
	file vfs.File
	pos  int64  // in the file, buffer included
	buf  []byte // written, but not to the file
	hash *xxhash.Digest
	foot footer
	runs []byte // the encoded run table
	run  Run    // being written
	page []byte // its present page
	open int    // bytes written since the last sync
	err  error
}

// bufferBytes is how much is gathered before it goes to the file.
const bufferBytes = 64 << 10

// syncBytes is how much is written before it is synced: all at the end would hold
// up the syncs of others, which the disk does after it.
const syncBytes = 4 << 20

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

// BeginRun begins the index of a partition's run. Runs come in the order of
// their partitions.
func (w *Writer) BeginRun(partition uint64) {
	w.run = Run{Partition: partition, IndexPos: w.pos}
}

// Add adds a batch to the run, at least one, in the order of the offsets.
func (w *Writer) Add(e Entry) {
	r := &w.run
	if r.Entries == 0 {
		r.Base, r.MaxTime = e.Base, e.MaxTime
	}
	r.End = e.Last() + 1
	r.MaxTime = max(r.MaxTime, e.MaxTime)
	r.Bytes += int64(e.Length)
	r.Entries++
	w.page = appendEntry(w.page, &e)
	if r.Entries%PageEntries == 0 {
		w.endPage()
	}
}

// EndRun completes the run.
func (w *Writer) EndRun() error {
	if len(w.page) > 0 {
		w.endPage()
	}
	w.runs = appendRun(w.runs, &w.run)
	w.foot.runs++
	return w.err
}

func (w *Writer) endPage() {
	w.page = binary.BigEndian.AppendUint32(w.page, crc(w.page))
	w.write(w.page)
	w.page = w.page[:0]
}

// Finish writes the run table and the footer, and returns the size of the
// file and its checksum.
func (w *Writer) Finish() (size int64, checksum uint64, err error) {
	w.foot.tablePos, w.foot.tableCRC = w.pos, crc(w.runs)
	w.write(w.runs)
	w.foot.checksum = w.hash.Sum64()
	w.write(w.foot.encode())
	w.flush()
	return w.pos, w.foot.checksum, w.err
}

// write appends b to the file, by way of the buffer unless it is large.
func (w *Writer) write(b []byte) {
	_, _ = w.hash.Write(b) // never fails
	if len(w.buf)+len(b) > bufferBytes {
		w.flush()
	}
	if len(b) >= bufferBytes {
		w.put(b, w.pos)
	} else {
		w.buf = append(w.buf, b...)
	}
	w.pos += int64(len(b))
}

// flush writes the buffer, which ends at pos.
func (w *Writer) flush() {
	w.put(w.buf, w.pos-int64(len(w.buf)))
	w.buf = w.buf[:0]
}

func (w *Writer) put(b []byte, pos int64) {
	if w.err != nil || len(b) == 0 {
		return
	}
	if n, err := w.file.WriteAt(b, pos); err != nil {
		w.err = fmt.Errorf("segment: write %d bytes at %d, wrote %d: %w", len(b), pos, n, err)
		return
	}
	if w.open += len(b); w.open >= syncBytes {
		w.open = 0
		if err := w.file.Sync(); err != nil {
			w.err = fmt.Errorf("segment: sync: %w", err)
		}
	}
}
