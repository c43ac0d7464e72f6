package edge

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// session is broker.Session, whichever host serves. At each next one it is attached
// again with its epoch. What the client holds stays there: the places in share groups
// hold it before they are handed out anything, pins are found in the log, and what was
// under way is done again where it has not happened. Of a session that is not kept the
// subscriptions and the will are made anew.
//
// mu guards all of it and its members. It is taken with mutexes of the front-end held,
// and the host is called with it for what does not wait; the front-end never is.
type session struct {
	c     *Conn
	taken func() // may be nil
	once  sync.Once
	state kernel.SessionState // as of AttachSession
	turn  sync.Mutex          // held while it is attached, or detached, at a host

	mu    sync.Mutex
	how   broker.Attaching
	on    *link   // what inner belongs to
	inner Session // nil = there is none
	over  bool    // it was given back, or is another's
	given bool    // another connection has it, or wants it: it is attached at no other host
	subs  map[string]*sessionMember
	will  *kernel.Will
	kept  []byte
	flows
	listed   bool // the front-end knows what was pinned before
	numbers  map[uint16]*numbered
	releases []*releasing
}

// AttachSession is broker.Conn.AttachSession. A connection has one session at most.
func (c *Conn) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s := &session{c: c, taken: taken, how: a, subs: make(map[string]*sessionMember)}
	present, made := false, false
	err := c.do(ctx, func(l *link) error {
		in, there, err := l.AttachSession(ctx, a, s.take)
		if err != nil {
			return err
		}
		if !made {
			present, made = there, true // what a second try finds the first has made
		}
		a.Epoch, a.Clean = in.Epoch(), false
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.now.Load() != l {
			return errMoved
		}
		s.how, s.state, s.listed = a, in.State(), !present
		s.on, s.inner = l, in
		c.session = s
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return s, present, nil
}

// take tells the front-end, once, that another connection has the session, or wants it.
func (s *session) take() {
	s.mu.Lock()
	s.given = true
	s.mu.Unlock()
	s.once.Do(func() {
		if s.taken != nil {
			s.taken()
		}
	})
}

// at returns the session at the host of a link, nil if it is not there.
func (s *session) at(l *link) Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != l {
		return nil
	}
	return s.inner
}

// do is Conn.do with the session at the host. A host that the session was taken from
// meanwhile, to go to the next one, refuses it.
func (s *session) do(ctx context.Context, fn func(l *link, in Session) error) error {
	return s.c.do(ctx, func(l *link) error {
		in := s.at(l)
		if in == nil {
			return s.away()
		}
		err := fn(l, in)
		if kernel.CodeOf(err) == kernel.CodeFenced {
			return cmp.Or(s.passed(in), err)
		}
		return err
	})
}

// away is why a session is not at a host: it is another's, or on its way to the next one.
func (s *session) away() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return s.fenced()
	}
	return errMoved
}

// passed is away if the session is not at a host any more, else nil.
func (s *session) passed(in Session) error {
	s.mu.Lock()
	here := s.inner == in
	s.mu.Unlock()
	if here {
		return nil
	}
	return s.away()
}

// fenced is why a session that is not at a host is not.
func (s *session) fenced() error {
	return kernel.Errorf(kernel.CodeFenced, "session", s.state.ClientID, "another connection has taken it")
}

// note remembers what a call that has succeeded did; if the link has been left
// meanwhile it is to be done again at the next host. The session is locked while fn runs.
func (s *session) note(l *link, fn func()) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.now.Load() != l {
		return errMoved
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	return nil
}

// Epoch is broker.Session.Epoch.
func (s *session) Epoch() uint64 { return s.how.Epoch }

// State is as of AttachSession.
func (s *session) State() kernel.SessionState { return s.state }

// SetWill is broker.Session.SetWill. What w holds is copied.
func (s *session) SetWill(ctx context.Context, w *kernel.Will) error {
	own := w.Clone()
	return s.do(ctx, func(l *link, in Session) error {
		if err := in.SetWill(ctx, w); err != nil {
			return err
		}
		return s.note(l, func() { s.will = &own })
	})
}

// DropWill is broker.Session.DropWill.
func (s *session) DropWill() error {
	return s.do(s.c.stop, func(l *link, in Session) error {
		if err := in.DropWill(); err != nil {
			return err
		}
		return s.note(l, func() { s.will = nil })
	})
}

// Keep is broker.Session.Keep.
func (s *session) Keep(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = b
}

// Kept is broker.Session.Kept.
func (s *session) Kept() (b []byte, err error) {
	err = s.do(s.c.stop, func(_ *link, in Session) (err error) {
		b, err = in.Kept()
		return err
	})
	return b, err
}

// Detach is broker.Session.Detach. It waits for a host: the session is to be given back
// at that which serves. If that is lost meanwhile it may have been done, and the session
// another connection's since: it is not done again. What is left of it the next host finds
// in the log, and ends in time.
func (s *session) Detach(expiry time.Duration) {
	s.mu.Lock()
	s.how.Expiry = expiry
	kept := s.kept
	s.mu.Unlock()
	_ = s.do(s.c.stop, func(l *link, in Session) error { // what it cannot tell, the host finds out
		s.turn.Lock()
		defer s.turn.Unlock()
		if s.at(l) != in {
			return errMoved
		}
		if kept != nil {
			in.Keep(kept)
		}
		in.Detach(expiry)
		s.end()
		return nil
	})
	s.end()
}

// Suspend is broker.Session.Suspend.
func (s *session) Suspend() {
	s.turn.Lock()
	defer s.turn.Unlock()
	in := s.end()
	if in != nil {
		in.Suspend()
	}
}

// end gives the session up, and returns what it is at the host, nil = it is at none.
func (s *session) end() Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.inner
	s.over = true
	s.dropLocked()
	return in
}

// lost reports whether a link has broken.
func (l *link) lost() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.over && kernel.CodeOf(l.why) != kernel.CodeUnavailable
}

// unlink takes the session from a link that is left: what the front-end does from here
// on is done at the next host. It returns what it was there, nil = it was not.
func (s *session) unlink(l *link) Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on != l {
		return nil
	}
	in := s.inner
	s.dropLocked()
	return in
}

// dropLocked forgets what is at the host. s.mu is held.
func (s *session) dropLocked() {
	s.on, s.inner = nil, nil
	for _, m := range s.subs {
		for ; m != nil; m = m.before {
			m.inner = nil
		}
	}
}

// suspend has the host of a link keep the session for the next one.
func (c *Conn) suspend(l *link) {
	s := c.attached()
	if s == nil {
		return
	}
	in := s.unlink(l)
	if in != nil && !l.lost() {
		in.Suspend()
	}
}

// attached returns the connection's session, nil = there is none.
func (c *Conn) attached() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}
