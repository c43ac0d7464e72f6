package mqtt

import (
	"math/rand/v2"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

const (
	// promptTime is how long a client may take for one write to be one that reads.
	promptTime = time.Second
	// pollTime is about how often a connection that waits for room in the total of
	// all connections looks for it.
	pollTime = 250 * time.Millisecond
)

// wants is what a connection has booked in the total for what comes, and what
// waits for room there. sender.mu guards it.
type wants struct {
	reserved int  // bytes booked and not in the backlog yet
	prompt   bool // the client has taken large messages at once so far

	poll  bool    // somebody waits: the writer looks from time to time
	seen  bool    // it knows
	feeds []*feed // members without credit since then
	large int     // bytes that the largest of those lacked
	live  int     // and a publisher
	again int     // and what is sent again
}

// overdraft is how many bytes may wait beyond the total before a message of n
// bytes: none, but for a client that has shown that it reads. So the others cannot
// hold it up, and nor can many that stop to read. mu is held.
func (s *sender) overdraft(n int) int {
	if s.want.prompt && s.backlog() == 0 {
		return max(s.total.Limit()/4, n)
	}
	return 0
}

// openFor reports whether n bytes could be booked now.
func (s *sender) openFor(n int) bool { return n < largeFrame || s.total.Open(s.overdraft(n)) }

// book books n bytes that are appended before mu is released, if they are many.
func (s *sender) book(n int) bool {
	if n < largeFrame {
		return true
	}
	if !s.total.Book(n, s.overdraft(n)) {
		return false
	}
	s.counted += n
	return true
}

// look has the writer look for room from time to time. mu is held until unlock.
func (s *sender) look() { s.want.poll = true }

// Admit implements kernel.Admitter: what is large is booked before it is encoded,
// and if too much waits for all clients it stays in the log.
func (f *feed) Admit(records, bytes int) bool {
	s := &f.conn.out
	s.mu.Lock()
	defer s.unlock()
	if s.closed || f.gone || f.member == nil { // Deliver drops it
		return true
	}
	if s.book(bytes) {
		s.want.reserved += bytes
		f.reserved = bytes
		return true
	}
	s.win.sizeHint = max(s.win.sizeHint, bytes/records)
	n := max(f.credit, records)
	f.credit -= n
	if f.counted() {
		s.win.credit -= n
	}
	f.member.Credit(-n)
	if !f.shut {
		f.shut = true
		s.want.feeds = append(s.want.feeds, f)
	}
	s.want.large = max(s.want.large, bytes)
	s.look()
	return false
}

// reopen lets members have credit again that lacked room, if there is any. mu is
// held.
func (s *sender) reopen() {
	w := &s.want
	if len(w.feeds) == 0 {
		return
	}
	if !s.openFor(w.large) {
		s.look()
		return
	}
	for _, f := range w.feeds {
		f.shut = false
		s.win.starve(f)
	}
	clear(w.feeds)
	w.feeds, w.large = w.feeds[:0], 0
}

// openAgain reports whether what is due may be read: what lacked room before is not
// read anew until there is some. mu is held.
func (s *sender) openAgain() bool {
	if !s.openFor(s.want.again) {
		s.look()
		return false
	}
	s.want.again = 0
	return true
}

// wrotePromptly notes how long the client took for n bytes. mu is held.
func (s *sender) wrotePromptly(n int, took time.Duration) {
	prompt := n < tightBytes || took < promptTime
	s.want.prompt = prompt && (s.want.prompt || n >= tightBytes)
}

// polls reports whether the writer has to look for room.
func (s *sender) polls() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want.seen = s.want.poll
	return s.want.poll
}

// await waits until the writer has something to write, and looks for room
// meanwhile. Buffers may be large: calm says that there was nothing for so long that
// they should go.
func (c *conn) await(large bool) (calm bool) {
	s := &c.out
	for {
		wait, poll := time.Duration(0), s.polls()
		switch {
		case poll:
			wait = pollTime + rand.N(pollTime) // not all at once
		case large:
			wait = calmTime
		default:
			<-s.wake
			return calm
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
			timer.Stop()
			return calm
		case <-timer.C:
		}
		if large {
			calm, large = true, false
			s.shrink()
		}
		if poll {
			c.retry()
		}
	}
}

// retry tries again what has waited for room.
func (c *conn) retry() {
	s := &c.out
	s.mu.Lock()
	s.want.poll, s.want.seen = false, false
	if s.room != nil && s.want.live > 0 && !s.openFor(s.want.live) {
		s.look()
	}
	s.roomLocked()
	s.unlock()
	c.replenish()
}

// admitPage books a large retained message before it is read.
func (s *sender) admitPage(st *stream, bytes int) bool {
	s.mu.Lock()
	defer s.unlock()
	if s.closed || !s.book(bytes) {
		s.look()
		return false
	}
	s.want.reserved += bytes
	st.reserved += bytes
	return true
}

// paged gives back what is booked for a page. mu is held.
func (s *sender) paged(st *stream) {
	s.want.reserved -= st.reserved
	st.reserved = 0
}

var _ kernel.Admitter = (*feed)(nil)
