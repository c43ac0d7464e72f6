package log

import (
	"fmt"

	"github.com/trivium-mq/trivium/storage/record"
)

// Cursor walks the records of a partition one by one, for delivery. It holds
// no file and no goroutine; beside itself it keeps at most the bytes of the
// batch it is in. It is for one goroutine.
type Cursor struct {
	it   record.Iter
	next int64 // the offset that Next looks for
	w    walker
	open bool // w stands on the batch that it walks
}

// Cursor makes a cursor at Start.
func (p *Partition) Cursor() *Cursor {
	return &Cursor{w: walker{p: p}, next: p.Start()}
}

// Offset is where Next goes on: one beyond the record it returned last.
// Offsets that Next steps over hold no record for consumers: compacted away,
// a transaction marker, or below Start.
func (c *Cursor) Offset() int64 { return c.next }

// SeekTo makes Next return the first record at or after offset, which may be
// beyond End.
func (c *Cursor) SeekTo(offset int64) {
	if offset == c.next {
		return // where it goes on anyway, be it in the next batch
	}
	if c.open && offset > c.next && offset <= c.w.entry.Last() && c.it.Err() == nil {
		c.next = offset
		c.it.SkipTo(offset)
		return
	}
	c.Release()
	c.next = offset
}

// Release lets go of the bytes that the cursor keeps, for one that will rest
// for a while in the middle of a backlog. Next goes on where it was.
func (c *Cursor) Release() {
	c.it = record.Iter{}
	c.open = false
	c.w = walker{p: c.w.p}
}

// Next returns the next record, nil when there is none yet. The view is
// overwritten by the next call on the cursor; the bytes it refers to never
// change and live as long as they are referenced.
//
// Errors: ErrDropped; ErrMissing (retry later); *Damage, with the offsets
// that are lost. The cursor stays where it is and meets the same error again
// until SeekTo moves it.
func (c *Cursor) Next() (*record.View, error) {
	if c.it.Next() {
		v := c.it.View()
		c.next = v.Offset + 1
		return v, nil
	}
	return c.advance()
}

// advance steps into following batches until one has a record.
func (c *Cursor) advance() (*record.View, error) {
	for try := 1; ; {
		if c.open {
			if err := c.it.Err(); err != nil {
				d := c.w.damage(err)
				d.First = c.next // what came before it has been returned
				return nil, fmt.Errorf("log: partition %d: %w", c.w.p.id, d)
			}
			c.next = max(c.next, c.w.entry.Last()+1)
		}
		more, err := c.enter()
		if err != nil {
			c.Release()
			if stale(err) && try < maxTries {
				try++
				continue
			}
			return nil, fmt.Errorf("log: partition %d at %d: %w", c.w.p.id, c.next, err)
		}
		if !more {
			c.Release()
			return nil, nil
		}
		if c.it.Next() {
			v := c.it.View()
			c.next = v.Offset + 1
			return v, nil
		}
	}
}

// enter begins the walk of the batch that holds next, or of the one after it.
// It returns false at the end.
func (c *Cursor) enter() (bool, error) {
	w := &c.w
	if start := w.p.start.Load(); c.next < start {
		c.next, c.open = start, false
	}
	var err error
	if c.open {
		err = w.next()
	}
	if err == nil && (!c.open || w.done) {
		if w.p.end.Load() <= c.next && !w.p.dropped.Load() {
			return false, nil
		}
		w.snapshot, w.done = w.p.snapshot(), false
		if w.dropped {
			return false, ErrDropped
		}
		err = w.seek(c.next)
	}
	if err != nil {
		return false, err
	}
	if w.done {
		c.next = max(c.next, w.end) // only a hole is left
		return false, nil
	}
	header, records, err := w.records()
	if err != nil {
		return false, err
	}
	c.open = true
	c.it.ResetRecords(header, records)
	c.it.Rebase(w.entry.Base)
	if record.IsControl(header) {
		c.it = record.Iter{}
		return true, nil
	}
	c.it.SkipTo(c.next)
	return true, nil
}
