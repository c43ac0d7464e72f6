package log

import (
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
)

func TestEpochEnd(t *testing.T) {
	f := newFixture(t, 0)
	p := f.create(1)
	// Epoch of each batch of two records; a seal after each marked one.
	epochs := []int32{2, 2, 2, 3, 3, 5, 5, 5, 5, 6, 8, 8}
	seals := map[int]bool{1: true, 4: true, 8: true}
	check := func(start int64) {
		t.Helper()
		for e := int32(0); e < 10; e++ {
			found, end := int32(-1), max(start, 0)
			for i, epoch := range epochs[:p.End()/2] {
				if epoch <= e && int64(2*i+1) >= start {
					found, end = epoch, int64(2*i+2)
				}
			}
			got, at, err := p.EpochEnd(e)
			if err != nil || got != found || at != end {
				t.Errorf("start %d, epoch %d: %d ends at %d (%v), want %d at %d", start, e, got, at, err, found, end)
			}
		}
	}
	check(0)
	for i, epoch := range epochs {
		b := batch("e", 2, 0)
		data := append([]byte("entry:"), b...)
		body := f.log.NewBody(f.wal.append(data), epoch, data)
		p.Link(p.End(), body, 6, len(b), record.LastOffsetDelta(b), 0)
		if seals[i] {
			f.seal()
		}
		check(0)
	}
	p.Trim(10)
	check(10)
}
