package log

import (
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
)

// Read appends to dst the whole batches that begin with the one containing
// offset (with a hole there, the next one), stamped with their offsets and
// leader epoch, as many as fit in maxBytes and at least one. Kafka clients
// skip the records below offset themselves. At End it returns dst as it is.
//
// Errors: ErrOutOfRange, ErrDropped, ErrMissing, *Damage when the batch at
// offset itself cannot be read (the caller may go on after Last). A batch
// further on that cannot be read ends the result; the next Read meets it.
func (p *Partition) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	for try := 1; ; try++ {
		w := walker{p: p, snapshot: p.snapshot()}
		out, err := w.read(offset, maxBytes, dst)
		if err == nil || !stale(err) || try == maxTries {
			if err != nil {
				err = fmt.Errorf("log: read partition %d at %d: %w", p.id, offset, err)
			}
			return out, err
		}
	}
}

func (w *walker) check(offset int64) error {
	if w.dropped {
		return ErrDropped
	}
	if offset < w.start || offset > w.end {
		return fmt.Errorf("%w: %d is not in [%d, %d]", ErrOutOfRange, offset, w.start, w.end)
	}
	return nil
}

func (w *walker) read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	if err := w.check(offset); err != nil || offset == w.end {
		return dst, err
	}
	err := w.seek(offset)
	limit := len(dst) + maxBytes
	begin := len(dst)
	for err == nil && !w.done {
		if len(dst) > begin && len(dst)+int(w.entry.Length) > limit {
			return dst, nil
		}
		if w.inHead() {
			dst, err = w.readHead(dst)
		} else {
			dst, err = w.readRun(dst, limit)
		}
		if err == nil {
			err = w.next()
		}
	}
	if len(dst) > begin {
		return dst, nil
	}
	return dst, err
}

func (w *walker) readHead(dst []byte) ([]byte, error) {
	batch, err := w.headBatch()
	if err != nil {
		return dst, err
	}
	at := len(dst)
	dst = append(dst, batch...)
	record.Stamp(dst[at:], w.entry.Base, w.head[w.i].body.epoch)
	return dst, nil
}

// readRun reads with one read what follows in the index and in the file too,
// and stands on the last batch it read.
func (w *walker) readRun(dst []byte, limit int) ([]byte, error) {
	var room [segment.PageEntries]segment.Entry
	entries := append(room[:0], w.entry)
	size := len(dst) + int(w.entry.Length)
	for w.i+1 < segment.PageLen(w.buf) {
		before := entries[len(entries)-1]
		if err := w.setEntry(w.i + 1); err != nil {
			return dst, err
		}
		size += int(w.entry.Length)
		if size > limit || w.entry.Pos != before.Pos+int64(before.Length) {
			if err := w.setEntry(w.i - 1); err != nil {
				return dst, err
			}
			break
		}
		entries = append(entries, w.entry)
	}
	return w.runs[w.run].seg.file().Batches(dst, entries...)
}

// TimeOffset returns the first record whose timestamp is at or after ts, in
// ms: its offset and timestamp, or End and -1 when there is none. It trusts
// the highest timestamps that batches state to skip batches, no more. With
// Options.Alone it goes on behind records that are lost.
func (p *Partition) TimeOffset(ts int64) (offset, timestamp int64, err error) {
	for try := 1; ; try++ {
		w := walker{p: p, snapshot: p.snapshot()}
		offset, timestamp, err = w.timeOffset(ts)
		if err == nil || !stale(err) || try == maxTries {
			if err != nil {
				err = fmt.Errorf("log: partition %d at time %d: %w", p.id, ts, err)
			}
			return offset, timestamp, err
		}
	}
}

func (w *walker) timeOffset(ts int64) (offset, timestamp int64, err error) {
	if w.dropped {
		return 0, 0, ErrDropped
	}
	from := w.start
	for i := 0; i < len(w.runs) && w.runs[i].MaxTime < ts; i++ {
		from = max(from, w.runs[i].End)
	}
	for {
		offset, timestamp, err = w.timeFrom(from, ts)
		d, lost := errors.AsType[*Damage](err)
		if !lost || !w.p.log.alone.Load() || d.Last < from {
			return offset, timestamp, err
		}
		from = d.Last + 1 // nobody will ever have it
	}
}

// timeFrom is timeOffset from an offset on.
func (w *walker) timeFrom(from, ts int64) (offset, timestamp int64, err error) {
	for err = w.seek(from); err == nil && !w.done; err = w.next() {
		if w.entry.MaxTime < ts {
			continue
		}
		header, records, err := w.records()
		if err != nil {
			return 0, 0, err
		}
		var it record.Iter
		it.ResetRecords(header, records)
		it.Rebase(w.entry.Base)
		it.SkipTo(w.start)
		for it.Next() {
			if v := it.View(); v.Timestamp >= ts && !v.IsControl() {
				return v.Offset, v.Timestamp, nil
			}
		}
		if err := it.Err(); err != nil {
			return 0, 0, w.damage(err)
		}
	}
	return w.end, -1, err
}

// SizeOffset returns the lowest batch boundary from which on the partition
// holds at most keep bytes: where a size retention trims to. It is never
// below Start, and End when even the last batch is larger.
func (p *Partition) SizeOffset(keep int64) (int64, error) {
	for try := 1; ; try++ {
		w := walker{p: p, snapshot: p.snapshot()}
		offset, err := w.sizeOffset(keep)
		if err == nil || !stale(err) || try == maxTries {
			return offset, err
		}
	}
}

func (w *walker) sizeOffset(keep int64) (int64, error) {
	if w.dropped {
		return 0, ErrDropped
	}
	var left int64 // bytes from the run or reference on
	from := w.end
	for i := len(w.head) - 1; i >= 0; i-- {
		if left += int64(w.head[i].length); left > keep {
			return max(w.start, from), nil
		}
		from = w.head[i].base
	}
	for i := len(w.runs) - 1; i >= 0; i-- {
		r := &w.runs[i]
		if left+r.Bytes <= keep {
			left += r.Bytes
			from = r.Base
			continue
		}
		// The boundary is inside this run: cut from its front.
		excess := left + r.Bytes - keep
		err := w.seek(r.Base)
		for err == nil && !w.done && w.run == i && excess > 0 {
			excess -= int64(w.entry.Length)
			from = w.entry.Last() + 1
			err = w.next()
		}
		return max(w.start, from), err
	}
	return w.start, nil
}
