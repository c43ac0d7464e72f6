package route

import (
	"strconv"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
)

// Feed is a session-less subscriber's end, shared by its subscriptions.
type Feed struct {
	To kernel.LiveSubscriber
	// Slow is set when publishers have waited for it in vain, until it drains.
	Slow atomic.Bool
	// Dropped counts what a full buffer did not take.
	Dropped *atomic.Uint64
}

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
