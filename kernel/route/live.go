package route

import (
	"strconv"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
)

// Feed is a session-less subscriber's end.
type Feed struct {
	To kernel.LiveSubscriber
	// Slow is set when a publisher has waited for it in vain, until it drains.
	// The subscriptions of one connection share it.
	Slow *atomic.Bool
	// Out and OutBytes count what it took, Dropped what its full buffer did not.
	Out, OutBytes, Dropped *atomic.Uint64
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

// Drained reports whether a slow subscriber's buffer has room again; it is
// slow no longer then.
func (f *Feed) Drained() bool {
	select {
	case <-f.To.Room():
		f.Slow.Store(false)
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
