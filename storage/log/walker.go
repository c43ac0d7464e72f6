package log

import (
	"errors"
	"sort"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// snapshot is a partition at one moment. Its slices are immutable.
type snapshot struct {
	start, end int64
	runs       []run
	head       []ref
	dropped    bool
	absent     bool // runs may be missing
}

func (p *Partition) snapshot() snapshot {
	absent := p.log.absent.Load() > 0 // before: what is missing may come at any time
	p.mu.Lock()
	defer p.mu.Unlock()
	return snapshot{p.start.Load(), p.end.Load(), p.runs, p.head, p.dropped.Load(), absent}
}

// walker steps through the batches of a snapshot. It stands on a batch
// (entry says which) or at the end.
type walker struct {
	p *Partition
	snapshot
	entry segment.Entry // the present batch; Pos only in a run

	run  int    // present run; len(runs) in the head
	page int    // present index page of the run
	buf  []byte // its bytes
	i    int    // present entry of the page, or reference of the head
	done bool
}

// inHead tells whether the present batch is in the head.
func (w *walker) inHead() bool { return w.run == len(w.runs) }

// seek stands on the batch that contains offset, or else on the next one.
func (w *walker) seek(offset int64) error {
	w.done = false
	w.run = sort.Search(len(w.runs), func(i int) bool { return w.runs[i].End > offset })
	if w.run < len(w.runs) {
		if err := w.seekRun(offset); err != nil {
			return err
		}
	} else {
		w.i = sort.Search(len(w.head), func(i int) bool { return w.head[i].last() >= offset })
		w.setHead()
	}
	return w.whole(offset)
}

// whole guards against stepping over records that are in a missing segment.
func (w *walker) whole(offset int64) error {
	if !w.absent || !w.done && w.entry.Base <= offset || w.done && offset >= w.end {
		return nil
	}
	gap := &Gap{First: offset, Last: w.end - 1}
	if !w.done {
		gap.Last = w.entry.Base - 1
	}
	if w.p.log.alone.Load() {
		return &Damage{File: w.p.log.dir, First: gap.First, Last: gap.Last, Err: gap}
	}
	return gap
}

// seekRun finds the page and the entry in the present run, the first whose
// last offset is at or beyond offset. There is one: End is beyond it.
func (w *walker) seekRun(offset int64) error {
	page, err := w.searchPages(offset)
	if err != nil {
		return err
	}
	if err := w.open(page); err != nil {
		return err
	}
	n := segment.PageLen(w.buf)
	i := sort.Search(n, func(i int) bool { return segment.PageBase(w.buf, i) > offset })
	if err := w.setEntry(max(i-1, 0)); err != nil || w.entry.Last() >= offset {
		return err
	}
	return w.next() // in a hole after that batch
}

// searchPages returns the last page whose first batch is at or below offset,
// leaving out damaged ones, or the first page if there is none.
func (w *walker) searchPages(offset int64) (int, error) {
	lo, hi := 0, w.pages()
	for hi-lo > 1 {
		mid := int(uint(lo+hi) >> 1)
		at, page, err := w.readable(mid, hi)
		if err != nil {
			return 0, err
		}
		if page != nil && segment.PageBase(page, 0) <= offset {
			lo = at
		} else {
			hi = mid
		}
	}
	return lo, nil
}

func (w *walker) pages() int { return w.runs[w.run].seg.file().Pages(&w.runs[w.run].Run) }

// readable returns the first page from i on, below end, that is not damaged;
// nil if there is none.
func (w *walker) readable(i, end int) (int, []byte, error) {
	for ; i < end; i++ {
		page, err := w.load(i)
		if err == nil || !errors.Is(err, ErrDamaged) {
			return i, page, err
		}
	}
	return end, nil, nil
}

// load reads an index page of the present run, through the cache.
func (w *walker) load(page int) ([]byte, error) {
	r := &w.runs[w.run]
	key := blockKey{w.p.log, blockPage, r.seg.meta.ID, r.IndexPos + int64(page)}
	return w.p.log.cache.block(key, func() ([]byte, error) { return r.seg.file().Page(&r.Run, page) })
}

func (w *walker) open(page int) (err error) {
	w.page = page
	w.buf, err = w.load(page)
	var d *Damage
	if errors.As(err, &d) {
		w.narrow(page, d)
	}
	return err
}

// narrow finds out which offsets a damaged page stands for: those between its
// readable neighbours.
func (w *walker) narrow(page int, d *Damage) {
	r := &w.runs[w.run]
	for i := page - 1; i >= 0; i-- {
		if buf, err := w.load(i); err == nil {
			if e, err := r.seg.file().PageEntry(&r.Run, buf, segment.PageLen(buf)-1); err == nil {
				d.First = e.Last() + 1
			}
			break
		}
	}
	if _, buf, err := w.readable(page+1, w.pages()); err == nil && buf != nil {
		d.Last = segment.PageBase(buf, 0) - 1
	}
}

func (w *walker) setEntry(i int) (err error) {
	r := &w.runs[w.run]
	w.i = i
	w.entry, err = r.seg.file().PageEntry(&r.Run, w.buf, i)
	return err
}

func (w *walker) setHead() {
	if w.i >= len(w.head) {
		w.done = true
		return
	}
	r := &w.head[w.i]
	w.entry = segment.Entry{Base: r.base, Length: int32(r.length), LastDelta: r.lastDelta, MaxTime: r.maxTS}
}

// next steps to the following batch. After an error it may be called again.
func (w *walker) next() error {
	if w.done {
		return nil
	}
	w.i++
	if w.inHead() {
		w.setHead()
		return nil
	}
	if w.i < segment.PageLen(w.buf) {
		return w.setEntry(w.i)
	}
	if w.page+1 < w.pages() {
		if err := w.open(w.page + 1); err != nil {
			w.i-- // stay
			w.page--
			return err
		}
		return w.setEntry(0)
	}
	return w.enterRun(w.run + 1)
}

// enterRun stands on the first batch of a run, or of the head.
func (w *walker) enterRun(i int) error {
	from := w.entry.Last() + 1
	w.run = i
	if w.inHead() {
		w.i = 0
		w.setHead()
	} else {
		if err := w.open(0); err != nil {
			return err
		}
		if err := w.setEntry(0); err != nil {
			return err
		}
	}
	return w.whole(from)
}

// headBatch is the bytes of the present batch, which is in the head. They
// belong to the body and carry no offset of ours.
func (w *walker) headBatch() ([]byte, error) {
	r := &w.head[w.i]
	data, err := r.body.load()
	if err != nil {
		return nil, err
	}
	return data[r.off : r.off+r.length : r.off+r.length], nil
}

// records returns the header and the decompressed record section of the
// present batch. Both are shared: nobody changes them.
func (w *walker) records() (header, records []byte, err error) {
	l := w.p.log
	if w.inHead() {
		batch, err := w.headBatch()
		if err != nil {
			return nil, nil, err
		}
		if _, _, err = record.Split(batch); err != nil {
			return nil, nil, w.damage(err)
		}
		if record.BatchCodec(batch) == record.None {
			return batch, batch[record.HeaderSize:], nil
		}
		r := &w.head[w.i]
		records, err = l.cache.block(blockKey{l, blockRecords, r.body.index, int64(r.off)}, func() ([]byte, error) {
			return record.Records(batch, l.decomp)
		})
		if err != nil {
			return nil, nil, w.damage(err)
		}
		return batch, records, nil
	}
	r := &w.runs[w.run]
	e := w.entry
	block, err := l.cache.block(blockKey{l, blockBatch, r.seg.meta.ID, e.Pos}, func() ([]byte, error) {
		batch, err := r.seg.file().Batches(nil, e)
		if err != nil || record.BatchCodec(batch) == record.None {
			return batch, err
		}
		records, err := record.Records(batch, l.decomp)
		if err != nil {
			return nil, w.damage(err)
		}
		return append(batch[:record.HeaderSize:record.HeaderSize], records...), nil
	})
	if err != nil {
		return nil, nil, err
	}
	return block, block[record.HeaderSize:], nil
}

// damage wraps what is wrong with the present batch.
func (w *walker) damage(err error) *Damage {
	d := &Damage{File: "log head", Pos: w.entry.Pos, Length: int64(w.entry.Length), First: w.entry.Base, Last: w.entry.Last(), Err: err}
	if !w.inHead() {
		d.File = w.runs[w.run].seg.file().Name()
	}
	return d
}

// stale tells whether a snapshot may have been overtaken: the batch was
// sealed, trimmed or merged away while it was being read.
func stale(err error) bool { return errors.Is(err, errGone) || errors.Is(err, vfs.ErrClosed) }

// maxTries bounds how often a reader looks again. Each time a whole seal or
// merge must have gone by.
const maxTries = 4
