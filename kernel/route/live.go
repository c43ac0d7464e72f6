package route

import (
	"strconv"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
)

// Feed is a session-less subscriber's end, shared by its subscriptions.
type Feed struct {
	To kernel.LiveSubscriber
	// Slow is set when a publisher has waited for it in vain, until it drains.
	Slow    atomic.Bool
	Dropped *atomic.Uint64 // counts what a full buffer did not take
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
