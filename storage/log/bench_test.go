package log

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/trivium-mq/trivium/storage/record"
)

func payload(n int) []byte {
	var b record.Builder
	for range n {
		b.Append(&record.Record{Key: []byte("orders.1"), Value: make([]byte, 100), Timestamp: 1_700_000_000_000})
	}
	return b.Finish(nil)
}

func BenchmarkCursor(b *testing.B) {
	for _, per := range []int{1, 100} {
		for _, sealed := range []bool{false, true} {
			b.Run(fmt.Sprintf("per=%d/sealed=%v", per, sealed), func(b *testing.B) {
				f := newFixture(b, 256<<20)
				p := f.create(1)
				data := payload(per)
				for p.End() < 20_000 {
					f.publish(data, p)
				}
				if sealed {
					f.seal()
				}
				c := p.Cursor()
				b.ReportAllocs()
				for b.Loop() {
					v, err := c.Next()
					if err != nil {
						b.Fatal(err)
					}
					if v == nil {
						c.SeekTo(0)
					}
				}
			})
		}
	}
}

func BenchmarkLinkTrim(b *testing.B) {
	f := newFixture(b, 0)
	p := f.create(1)
	data := append([]byte("entry:"), payload(1)...)
	var index uint64
	b.ReportAllocs()
	for b.Loop() {
		index++
		body := f.log.NewBody(index, 1, data)
		p.Link(p.End(), body, 6, len(data)-6, 0, 0)
		p.Trim(p.End() - 10)
	}
}

func BenchmarkRead(b *testing.B) {
	for _, sealed := range []bool{false, true} {
		b.Run(fmt.Sprint("sealed=", sealed), func(b *testing.B) {
			f := newFixture(b, 0)
			p := f.create(1)
			data := payload(10)
			for p.End() < 10_000 {
				f.publish(data, p)
			}
			if sealed {
				f.seal()
			}
			var buf []byte
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if buf, err = p.Read(500, 512<<10, buf[:0]); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

func TestIdlePartitionIsSmall(t *testing.T) {
	var before, after runtime.MemStats
	f := newFixture(t, 0)
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 10_000
	for id := range uint64(n) {
		f.create(id)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapAlloc-before.HeapAlloc) / n
	t.Logf("%d bytes for an idle partition", each)
	if each > 400 {
		t.Errorf("an idle partition takes %d bytes", each)
	}
	runtime.KeepAlive(f)
}
