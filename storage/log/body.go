package log

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Source reads the payload of a log entry back: the group's write-ahead log.
// The slice it returns is never changed afterwards.
type Source interface {
	Data(index uint64) ([]byte, error)
}

// errGone: the bytes behind a reference are no longer where a reader's
// snapshot says. The reader looks again.
var errGone = errors.New("log: batch has moved")

// Body is one committed log entry, in which batches lie. Partitions refer to
// parts of it; its bytes may be evicted and are then read back. The single
// writer of the log owns shared and last.
type Body struct {
	item
	log   *Log
	index uint64
	epoch int32
	size  int

	links  atomic.Int32 // references from heads
	shared bool         // some batch has several targets
	last   int          // position of the batch linked last, to see that

	loading sync.Mutex // one reader at a time reads it back
}

// NewBody makes the body of the entry at index. data is the entry's whole
// payload, as Source returns it; it is kept and must not change. epoch is the
// leader epoch (the entry's term) that readers find on its batches.
func (l *Log) NewBody(index uint64, epoch int32, data []byte) *Body {
	b := &Body{log: l, index: index, epoch: epoch, size: len(data), last: -1}
	if l.source == nil {
		b.data.Store(&data) // nowhere to read it back from: never evicted
	} else {
		l.cache.put(&b.item, data)
	}
	return b
}

// link and unlink count the head references to the body. What nobody refers
// to is dropped at once.
func (b *Body) link(off int) {
	b.shared = b.shared || b.last == off
	b.last = off
	if b.links.Add(1) == 1 && b.log.source == nil {
		b.log.bytes.Add(int64(b.size))
	}
}

func (b *Body) unlink() {
	if b.links.Add(-1) > 0 {
		return
	}
	if b.log.source == nil {
		b.data.Store(nil)
		b.log.bytes.Add(-int64(b.size))
	} else {
		b.log.cache.remove(&b.item)
	}
}

// load returns the entry's payload, from the cache or from the source.
func (b *Body) load() ([]byte, error) {
	if data := b.get(); data != nil {
		return data, nil
	}
	if b.log.source == nil {
		return nil, errGone
	}
	b.loading.Lock()
	defer b.loading.Unlock()
	if data := b.get(); data != nil {
		return data, nil
	}
	data, err := b.read()
	if err == nil {
		b.log.cache.put(&b.item, data)
	}
	return data, err
}

// peek is load for the sealer, which reads every body once and leaves the
// cache alone.
func (b *Body) peek() ([]byte, error) {
	if p := b.data.Load(); p != nil {
		return *p, nil
	}
	if b.log.source == nil {
		return nil, errGone
	}
	return b.read()
}

func (b *Body) read() ([]byte, error) {
	data, err := b.log.source.Data(b.index)
	if err != nil {
		return nil, fmt.Errorf("%w: read entry %d: %w", errGone, b.index, err)
	}
	if len(data) != b.size {
		return nil, fmt.Errorf("%w: entry %d has %d bytes, had %d", errGone, b.index, len(data), b.size)
	}
	return data, nil
}
