package log

import (
	"cmp"
	"errors"
	"slices"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/segment"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// windowBytes is how much of a segment is put together in memory at a time.
const windowBytes = 8 << 20

// source is where the bytes of a batch are: in a log entry or in a segment.
type source struct {
	body *Body
	seg  *segmentFile
	pos  int64 // in either
}

// each calls fn for every batch of the capture in the order of offsets. The
// entry's Pos means nothing.
func (c *capture) each(fn func(source, segment.Entry) error) error {
	for i := range c.refs {
		r := &c.refs[i]
		err := fn(source{body: r.body, pos: int64(r.off)}, segment.Entry{Base: r.base, Length: int32(r.length),
			LastDelta: r.lastDelta, MaxTime: r.maxTS, Shared: r.body.shared})
		if err != nil {
			return err
		}
	}
	for i := range c.runs {
		r := &c.runs[i]
		for n := range r.seg.file().Pages(&r.Run) {
			page, err := r.seg.file().Page(&r.Run, n)
			if err != nil {
				return err
			}
			for j := range segment.PageLen(page) {
				e, err := r.seg.file().PageEntry(&r.Run, page, j)
				if err == nil && e.Last() >= c.start {
					err = fn(source{seg: r.seg, pos: e.Pos}, e)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// piece is a batch on its way to its place in the window.
type piece struct {
	from  source
	entry segment.Entry
	at    int // in the window
}

// layout writes the batches and remembers where each went.
type layout struct {
	w      *segment.Writer
	pace   func(bytes int) error // may be nil
	window []byte
	pieces []piece
	shared map[source]int64 // batches that may come again
	at     [][]int64        // by capture and batch: position in the new file
}

// fill writes the content of the segment: the batches of each partition in
// turn, in the order of the partitions' numbers, then the runs. Memory is
// bounded by the window and 8 bytes per batch. An evicted body is read once
// per window, not once per partition.
func (p *Plan) fill(file vfs.File) error {
	slices.SortFunc(p.parts, func(a, b capture) int { return cmp.Compare(a.p.id, b.p.id) })
	lay := layout{w: segment.NewWriter(file, p.index), pace: p.pace, shared: make(map[source]int64)}
	for i := range p.parts {
		var at []int64
		err := p.parts[i].each(func(from source, e segment.Entry) error {
			pos, err := lay.place(from, e)
			at = append(at, pos)
			return err
		})
		if err != nil {
			return err
		}
		lay.at = append(lay.at, at)
	}
	if err := lay.flush(); err != nil {
		return err
	}
	for i := range p.parts {
		at := lay.at[i]
		lay.w.BeginRun(p.parts[i].p.id)
		err := p.parts[i].each(func(_ source, e segment.Entry) error {
			e.Pos, at = at[0], at[1:]
			lay.w.Add(e)
			return nil
		})
		if err = errors.Join(err, lay.w.EndRun()); err != nil {
			return err
		}
	}
	_, _, err := lay.w.Finish()
	return err
}

// place gives a batch its position, the one it has already if it is shared.
func (lay *layout) place(from source, e segment.Entry) (int64, error) {
	if e.Shared {
		if pos, ok := lay.shared[from]; ok {
			return pos, nil
		}
	}
	size, length := len(lay.window), int(e.Length)
	if size > 0 && size+length > windowBytes {
		if err := lay.flush(); err != nil {
			return 0, err
		}
		size = 0
	}
	pos := lay.w.Pos() + int64(size)
	lay.window = slices.Grow(lay.window, length)[:size+length]
	lay.pieces = append(lay.pieces, piece{from, e, size})
	if e.Shared {
		lay.shared[from] = pos
	}
	return pos, nil
}

// flush fetches the pieces of the window, each log entry once, and writes the
// window.
func (lay *layout) flush() error {
	slices.SortFunc(lay.pieces, func(a, b piece) int {
		if a.from.body != nil {
			return cmp.Or(cmp.Compare(a.from.body.index, b.from.body.index), cmp.Compare(a.at, b.at))
		}
		return cmp.Or(cmp.Compare(a.from.seg.meta.ID, b.from.seg.meta.ID), cmp.Compare(a.from.pos, b.from.pos))
	})
	var body *Body
	var data []byte
	for _, pc := range lay.pieces {
		batch := lay.window[pc.at : pc.at+int(pc.entry.Length) : pc.at+int(pc.entry.Length)]
		if seg := pc.from.seg; seg != nil {
			if _, err := seg.file().Batches(batch[:0], pc.entry); err != nil {
				return err
			}
			continue
		}
		if pc.from.body != body {
			body = pc.from.body
			var err error
			if data, err = body.peek(); err != nil {
				return err
			}
		}
		copy(batch, data[pc.from.pos:])
		record.Stamp(batch, pc.entry.Base, body.epoch)
	}
	err := lay.w.Append(lay.window, len(lay.pieces))
	if err == nil && lay.pace != nil {
		err = lay.pace(len(lay.window))
	}
	lay.window, lay.pieces = lay.window[:0], lay.pieces[:0]
	return err
}
