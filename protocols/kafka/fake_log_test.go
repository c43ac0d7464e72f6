package kafka

import (
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// fakeLog is one partition.
type fakeLog struct {
	timeErr    error // of TimeOffset, when nothing is found
	lost       int64 // offsets below cannot be read
	met        int   // how often that was tried
	mu         sync.Mutex
	batches    [][]byte
	start, end int64
	watches    map[chan<- struct{}]int64
	watching   chan<- struct{}
}

func (l *fakeLog) append(batch []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	base := l.end
	record.Stamp(batch, base, 7) // an epoch that clients must not see
	l.batches = append(l.batches, batch)
	l.end = record.LastOffset(batch) + 1
	for ch, offset := range l.watches {
		if l.end > offset {
			wake(ch)
		}
	}
	return base
}

func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (l *fakeLog) Bounds() (start, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.end
}

func (l *fakeLog) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset < l.start || offset > l.end {
		return dst, kernel.Errorf(kernel.CodeOutOfRange, "partition", "", "offset %d", offset)
	}
	if offset < l.lost {
		l.met++
		return dst, kernel.Errorf(kernel.CodeCorrupt, "partition", "", "offset %d", offset)
	}
	at := len(dst)
	for _, b := range l.batches {
		if record.LastOffset(b) < offset {
			continue
		}
		if len(dst) > at && len(dst)-at+len(b) > maxBytes {
			break
		}
		dst = append(dst, b...)
	}
	return dst, nil
}

func (l *fakeLog) Around(offset int64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(offset, l.lost)
}

// newest is the highest timestamp.
func (l *fakeLog) newest() (ts int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		var it record.Iter
		if it.Reset(b, nil) != nil {
			continue
		}
		for it.Next() {
			ts = max(ts, it.View().Timestamp)
		}
	}
	return ts
}

func (l *fakeLog) TimeOffset(ts int64) (offset, timestamp int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.batches {
		var it record.Iter
		if it.Reset(b, nil) != nil {
			continue
		}
		for it.Next() {
			if v := it.View(); v.Timestamp >= ts {
				return v.Offset, v.Timestamp, nil
			}
		}
	}
	return l.end, -1, l.timeErr
}

func (l *fakeLog) Watch(offset int64, ready chan<- struct{}) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end > offset {
		wake(ready)
	}
	l.watches[ready] = offset
	wake(l.watching)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watches, ready)
	}
}
