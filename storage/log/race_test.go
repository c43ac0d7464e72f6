package log

import (
	"errors"
	"fmt"
	"math/rand"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// Readers of all kinds run while the writer publishes, trims, seals, cuts and
// sweeps. Each must see every record once, in order, with its own value.
func TestConcurrentReaders(t *testing.T) {
	f := open(t, vfs.NewMem(), newWAL(), 20_000, &Manifest{})
	parts := []*Partition{f.create(0), f.create(1)}
	const total = 600
	var wg sync.WaitGroup
	for i, p := range parts {
		wg.Go(func() { follow(t, p, total) })
		wg.Go(func() { followFetch(t, p, total) })
		wg.Go(func() { wander(t, p, int64(i), total) })
	}
	rng := rand.New(rand.NewSource(1))
	n := 0
	for ; n < total; n++ {
		f.publish(batch(fmt.Sprint(n), 1, 0), parts...)
		if rng.Intn(40) == 0 {
			m := f.seal()
			f.wal.cut(m.Index + 1)
			if err := f.log.Sweep(m); err != nil {
				t.Error(err)
			}
		}
	}
	wg.Wait()
	for _, p := range parts {
		p.Trim(total)
	}
	m := f.seal()
	if err := f.log.Sweep(m); err != nil || len(f.log.Segments()) != 0 {
		t.Fatalf("%v, %v left", err, f.log.Segments())
	}
}

// follow waits and reads with a cursor.
func follow(t *testing.T, p *Partition, total int64) {
	c, ch := p.Cursor(), make(chan struct{}, 1)
	for at := int64(0); at < total; {
		v, err := c.Next()
		if err != nil {
			t.Error(err)
			return
		}
		if v == nil {
			p.Watch(at, ch)
			<-ch
			continue
		}
		if v.Offset != at || string(v.Value) != fmt.Sprintf("%d/0", at) {
			t.Errorf("offset %d: %q at %d", at, v.Value, v.Offset)
			return
		}
		at++
	}
}

// followFetch waits and reads with Read.
func followFetch(t *testing.T, p *Partition, total int64) {
	ch := make(chan struct{}, 1)
	var buf []byte
	for at := int64(0); at < total; {
		var err error
		if buf, err = p.Read(at, 500, buf[:0]); err != nil {
			t.Error(err)
			return
		}
		if len(buf) == 0 {
			p.Watch(at, ch)
			<-ch
		}
		for rest := buf; len(rest) > 0; {
			var b []byte
			if b, rest, err = record.Split(rest); err != nil || record.CheckCRC(b) != nil || record.BaseOffset(b) != at {
				t.Errorf("at %d: batch of %d, %v", at, record.BaseOffset(b), err)
				return
			}
			at = record.LastOffset(b) + 1
		}
	}
}

// wander seeks about and trims nothing, until all is there.
func wander(t *testing.T, p *Partition, seed, total int64) {
	rng := rand.New(rand.NewSource(seed))
	c := p.Cursor()
	for p.End() < total {
		at := rng.Int63n(p.End() + 1)
		c.SeekTo(at)
		v, err := c.Next()
		if err != nil && !errors.Is(err, ErrOutOfRange) {
			t.Error(err)
			return
		}
		if v != nil && (v.Offset != at || string(v.Value) != fmt.Sprintf("%d/0", at)) {
			t.Errorf("offset %d: %q at %d", at, v.Value, v.Offset)
			return
		}
		if _, _, err := p.TimeOffset(0); err != nil {
			t.Error(err)
		}
	}
}
