package route

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Feed is a session-less subscriber's end.
type Feed struct {
	To kernel.LiveSubscriber
	// Slow is the state of the connection; its subscriptions share it.
	Slow *Slow
	// Out and OutBytes count what it took, Dropped what its full buffer did not.
	Out, OutBytes, Dropped *atomic.Uint64
}

// Slow says whether publishers wait for a subscriber: not since one has waited
// in vain, until it has kept up for calmTime. The zero value is not slow. Safe
// for concurrent use.
type Slow struct {
	on   atomic.Bool
	calm atomic.Pointer[time.Time] // since when it keeps up, while it is slow
}

// calmTime is how long a slow subscriber has to keep up before publishers wait
// for it again.
const calmTime = 10 * time.Second

// On reports whether it is slow.
func (s *Slow) On() bool { return s.on.Load() }

// Set makes it slow.
func (s *Slow) Set() {
	s.calm.Store(nil)
	s.on.Store(true)
}

// keptUp notes that a slow subscriber has taken a message.
func (s *Slow) keptUp(now time.Time) {
	since := s.calm.Load()
	if since == nil {
		s.calm.CompareAndSwap(nil, &now)
	} else if now.Sub(*since) >= calmTime {
		s.on.Store(false)
	}
}

// Offer hands it a message and reports whether there was room.
func (f *Feed) Offer(m *kernel.LiveMessage, handle uint64) bool {
	if !f.To.Live(m, handle) {
		return false
	}
	f.Out.Add(1)
	f.OutBytes.Add(uint64(len(m.Record.Value)))
	return true
}

// OfferSlow is Offer to a subscriber that is slow: it takes nothing more once
// its buffer was full, until that has drained.
func (f *Feed) OfferSlow(m *kernel.LiveMessage, handle uint64) bool {
	if f.drained() && f.Offer(m, handle) {
		f.Slow.keptUp(time.Now())
		return true
	}
	f.Slow.Set()
	return false
}

func (f *Feed) drained() bool {
	select {
	case <-f.To.Room():
		return true
	default:
		return false
	}
}

// Drop counts a message that was not taken.
func (f *Feed) Drop() { f.Dropped.Add(1) }

// Live is one subscription fed from memory.
type Live struct {
	ID     uint64 // unique within the table
	Filter string
	QoS    byte
	Handle uint64 // what Live calls carry
	Feed   *Feed
}

// PutLive adds a live subscription.
func (t *Table) PutLive(l *Live) *Table {
	c := *t
	c.live = c.live.put(&filterGrammar, l.Filter, l.id(), l)
	return &c
}

// DropLive removes a live subscription.
func (t *Table) DropLive(l *Live) *Table {
	c := *t
	c.live = c.live.delete(&filterGrammar, l.Filter, l.id())
	return &c
}

func (l *Live) id() string { return strconv.FormatUint(l.ID, 36) }
