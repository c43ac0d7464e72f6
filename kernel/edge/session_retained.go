package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/retain"
)

// cursor is broker.Retained, whichever host serves: another one reads from the start,
// and what the client has got is left out.
type cursor struct {
	s      *session
	filter string
	on     *link
	inner  Cursor
	last   string // name of the last that was returned
	some   bool   // there was one
}

// Retained is broker.Session.Retained.
func (s *session) Retained(ctx context.Context, filter string) (Cursor, error) {
	c := &cursor{s: s, filter: filter}
	err := s.do(ctx, func(l *link, in Session) (err error) {
		c.on = l
		c.inner, err = in.Retained(ctx, filter)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Next implements Cursor. It does not wait for a host: CodeUnavailable says that it is
// to be called again.
func (c *cursor) Next(max, bytes int, admit func(bytes int) bool) ([]kernel.Retained, bool, error) {
	l := c.s.c.now.Load()
	if l == nil {
		return nil, true, errNobody
	}
	if c.on != l {
		in := c.s.at(l)
		if in == nil {
			return nil, true, errNobody
		}
		inner, err := in.Retained(c.s.c.stop, c.filter)
		if err != nil {
			return nil, true, passed(err)
		}
		c.on, c.inner = l, inner
	}
	list, more, err := c.inner.Next(max, bytes, admit)
	if more = more || err != nil; err != nil && len(list) == 0 {
		return nil, true, passed(err)
	}
	for c.some && len(list) > 0 && !retain.Before(c.last, list[0].Name) {
		list = list[1:]
	}
	if n := len(list); n > 0 {
		c.last, c.some = list[n-1].Name, true
	}
	return list, more, nil
}

// passed makes an error that comes of the end of a host one that passes.
func passed(err error) error {
	if again(err) {
		return errNobody
	}
	return err
}

// RetainedAgain is broker.Session.RetainedAgain. It does not wait for a host:
// CodeUnavailable.
func (s *session) RetainedAgain(name string, version uint64) (r kernel.Record, ok bool, err error) {
	s.mu.Lock()
	in := s.inner
	s.mu.Unlock()
	if in == nil {
		return r, false, errNobody
	}
	r, ok, err = in.RetainedAgain(name, version)
	return r, ok, passed(err)
}
