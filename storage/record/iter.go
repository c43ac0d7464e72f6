package record

import "fmt"

// Iter walks the records of one batch in place, without allocating. It checks
// every length it follows, not the CRC. The zero value is empty; Reset starts
// a walk. An Iter is for one goroutine.
//
//	for it.Next() {
//		use(it.View())
//	}
//	if err := it.Err(); err != nil { ... }
type Iter struct {
	view    View
	data    []byte // the record section, not compressed
	pos     int
	left    int32 // records still to come
	prev    int32 // offset delta of the record before, -1 at the start
	last    int32 // highest offset delta the batch allows
	base    int64
	first   int64 // time that deltas add to
	logTime bool  // timestamps are the broker's: all are the batch's maximum
	maxTS   int64
	err     error
}

// Reset starts a walk over batch, which must stay unchanged during it. A
// compressed batch is decompressed by d, and d may be nil when none is
// expected.
func (it *Iter) Reset(batch []byte, d *Decompressor) error {
	batch, _, err := Split(batch)
	if err != nil {
		*it = Iter{err: err}
		return err
	}
	data, err := Records(batch, d)
	if err != nil {
		*it = Iter{err: err}
		return err
	}
	it.ResetRecords(batch, data)
	return nil
}

// ResetRecords starts a walk over a batch whose record section has been
// decompressed before (see Records). Of batch only the header is read, and
// not kept.
func (it *Iter) ResetRecords(batch, records []byte) {
	attributes := Attributes(batch)
	it.data, it.pos, it.err = records, 0, nil
	it.left, it.prev, it.last = Count(batch), -1, LastOffsetDelta(batch)
	it.base, it.first, it.maxTS = BaseOffset(batch), FirstTimestamp(batch), MaxTimestamp(batch)
	it.logTime = attributes&AttrLogAppendTime != 0
	it.view = View{Attributes: attributes, ProducerID: ProducerID(batch)}
}

// Rebase makes the walk count offsets from base instead of the batch's own
// base offset: a stored batch that several partitions refer to carries
// another one's.
func (it *Iter) Rebase(base int64) { it.base = base }

// View is the record that Next stepped to. It is overwritten by Next.
func (it *Iter) View() *View { return &it.view }

// Err is why the walk ended early, nil when it did not.
func (it *Iter) Err() error { return it.err }

// Next steps to the next record and returns false after the last one or at a
// malformed one.
func (it *Iter) Next() bool {
	if it.left <= 0 {
		return it.end()
	}
	start, b := it.pos, it.data
	n, pos := varint(b, start)
	if pos < 0 || n < 0 || n > int64(len(b)-pos) {
		return it.fail("length")
	}
	end := pos + int(n)
	b = b[:end:end]
	pos++ // attributes, unused; a missing byte shows at the next read
	ts, pos := varint(b, pos)
	if pos < 0 {
		return it.fail("timestamp")
	}
	delta, pos := varint(b, pos)
	if pos < 0 || delta <= int64(it.prev) || delta > int64(it.last) {
		return it.fail("offset delta")
	}
	v := &it.view
	if v.Key, pos = field(b, pos); pos < 0 {
		return it.fail("key")
	}
	if v.Value, pos = field(b, pos); pos < 0 {
		return it.fail("value")
	}
	count, pos := varint(b, pos)
	if pos < 0 || count < 0 || count > int64(end-pos)/2 {
		return it.fail("header count") // a header takes two bytes or more
	}
	v.headers, v.headerCount = b[pos:], int32(count)
	v.Offset = it.base + delta
	v.Size = end - start
	if it.logTime {
		v.Timestamp = it.maxTS
	} else {
		v.Timestamp = it.first + ts
	}
	it.pos, it.prev = end, int32(delta)
	it.left--
	return true
}

// SkipTo hops forward so that Next steps to the first record at or after
// offset. It never goes back.
func (it *Iter) SkipTo(offset int64) {
	for it.left > 0 {
		b := it.data
		n, pos := varint(b, it.pos)
		if pos < 0 || n < 0 || n > int64(len(b)-pos) {
			return // Next reports it
		}
		end := pos + int(n)
		_, pos = varint(b[:end], pos+1)
		if pos < 0 {
			return
		}
		delta, pos := varint(b[:end], pos)
		if pos < 0 || delta <= int64(it.prev) || delta > int64(it.last) || it.base+delta >= offset {
			return
		}
		it.pos, it.prev = end, int32(delta)
		it.left--
	}
}

// end is reached after the last record: nothing may remain.
func (it *Iter) end() bool {
	if it.err == nil && (it.left < 0 || it.pos != len(it.data)) {
		it.err = fmt.Errorf("%w: the record count does not match the records", ErrInvalid)
	}
	return false
}

func (it *Iter) fail(what string) bool {
	it.err = fmt.Errorf("%w: %s of the record after offset delta %d", ErrInvalid, what, it.prev)
	it.left = 0
	return false
}
