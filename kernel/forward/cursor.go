package forward

import (
	"context"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// cursor implements edge.Cursor. The other end has something of it from the first call
// of Next until all is read, or nobody has it any more.
type cursor struct {
	of     *attached
	id     uint64
	filter string
	asked  bool // the other end may have something of it
	begun  bool // and has
	over   bool
}

// Retained implements edge.Session. What it has to wait for is waited for by the first
// call of Next.
func (a *attached) Retained(_ context.Context, filter string) (edge.Cursor, error) {
	l := a.link
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if err := a.held(); err != nil {
		return nil, err
	}
	return &cursor{of: a, id: l.nextID(), filter: filter}, nil
}

// Next implements edge.Cursor. A page holds 4,096 messages, or 1 MiB and one more.
func (c *cursor) Next(max, bytes int, admit func(bytes int) bool) ([]kernel.Retained, bool, error) {
	if c.over {
		return nil, false, nil
	}
	if !c.asked {
		c.asked = true
		letLater(c, c.of.link, kindLetCursor, c.id)
	}
	for allowed := 0; ; {
		p, err := c.page(max, bytes, allowed)
		if err != nil {
			return nil, true, err
		}
		c.begun = true
		if len(p.list) > 0 || p.wanted == 0 || p.err != nil {
			c.over = !p.more && p.err == nil
			return p.list, p.more, p.err
		}
		if !admit(p.wanted) {
			return nil, true, nil
		}
		allowed = p.wanted
	}
}

// page is what a call of Next returns.
type page struct {
	list   []kernel.Retained
	more   bool
	wanted int // the next message has so many bytes; 0 = it need not be asked for
	err    error
}

func (c *cursor) page(most, bytes, allowed int) (p page, err error) {
	const limit = 1 << 30 // fits what numbers are carried as
	most, bytes = max(min(most, limit), 1), max(min(bytes, limit), 0)
	err = c.of.call(context.Background(), methodNext, func(b []byte) []byte {
		if b = codec.AppendFlags(codec.AppendUint(b, c.id), !c.begun); !c.begun {
			b = codec.AppendString(b, c.filter)
		}
		return codec.AppendInt(codec.AppendInt(codec.AppendInt(b, int64(most)), int64(bytes)), int64(allowed))
	}, func(r *reader) {
		r.B = slices.Clone(r.B) // what is read aliases it
		p.more = r.flag()
		p.wanted, p.err = int(r.Uint()), r.error()
		for range r.Count() {
			if r.Err() != nil {
				break
			}
			p.list = append(p.list, r.retained())
		}
	})
	return p, err
}

// RetainedAgain implements edge.Session.
func (a *attached) RetainedAgain(name string, version uint64) (rec kernel.Record, ok bool, err error) {
	err = a.call(context.Background(), methodRetainedAgain, func(b []byte) []byte {
		return codec.AppendUint(codec.AppendString(b, name), version)
	}, func(r *reader) {
		if ok = r.flag(); ok {
			r.B = slices.Clone(r.B)
			r.record(&rec)
		}
	})
	return rec, ok && err == nil, err
}
