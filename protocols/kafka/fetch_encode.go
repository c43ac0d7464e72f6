package kafka

import (
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
)

// encode lays the answer out around the batches read, which are not copied:
// kmsg's FetchResponse would copy them once more. The layout is that of Fetch
// responses 4-18; tests read it back with kmsg.
func (f *fetch) encode() net.Buffers {
	flexible := f.version >= 12
	e := fetchEncoder{flexible: flexible, dst: make([]byte, 0, 64+64*len(f.parts)+64*len(f.topics))}
	e.dst = appendHeader(e.dst, f.correlation, flexible)
	e.dst = kbin.AppendInt32(e.dst, 0) // throttle
	if f.version >= 7 {
		e.dst = kbin.AppendInt16(e.dst, 0) // error
		e.dst = kbin.AppendInt32(e.dst, 0) // session
	}
	e.arrayLen(len(f.topics))
	parts := f.parts
	for _, t := range f.topics {
		switch {
		case f.version >= 13:
			e.dst = kbin.AppendUuid(e.dst, t.id)
		case flexible:
			e.dst = kbin.AppendCompactString(e.dst, t.name)
		default:
			e.dst = kbin.AppendString(e.dst, t.name)
		}
		e.arrayLen(t.parts)
		for i := range parts[:t.parts] {
			e.part(f, &parts[i])
		}
		parts = parts[t.parts:]
		e.tags()
	}
	e.tags()
	return e.finish()
}

// fetchEncoder builds an answer of pieces: its own bytes between those of the
// log.
type fetchEncoder struct {
	flexible bool
	dst      []byte
	cuts     []fetchCut
	size     int // bytes of the log
}

// fetchCut says that log bytes follow dst[:at].
type fetchCut struct {
	at   int
	data []byte
}

func (e *fetchEncoder) part(f *fetch, p *fetchPart) {
	e.dst = kbin.AppendInt32(e.dst, p.index)
	e.dst = kbin.AppendInt16(e.dst, p.code)
	e.dst = kbin.AppendInt64(e.dst, p.end) // high watermark
	e.dst = kbin.AppendInt64(e.dst, p.end) // last stable offset
	if f.version >= 5 {
		e.dst = kbin.AppendInt64(e.dst, p.start)
	}
	e.nullArray() // aborted transactions
	if f.version >= 11 {
		e.dst = kbin.AppendInt32(e.dst, -1) // preferred replica
	}
	n := 0
	for _, at := range p.chunks {
		n += at[1] - at[0]
	}
	if e.flexible {
		e.dst = kbin.AppendUvarint(e.dst, uint32(n)+1)
	} else {
		e.dst = kbin.AppendInt32(e.dst, int32(n))
	}
	for _, at := range p.chunks {
		e.cuts = append(e.cuts, fetchCut{at: len(e.dst), data: f.read.Data[at[0]:at[1]]})
	}
	e.size += n
	e.tags()
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.dst = kbin.AppendUvarint(e.dst, uint32(n)+1)
		return
	}
	e.dst = kbin.AppendInt32(e.dst, int32(n))
}

func (e *fetchEncoder) nullArray() {
	if e.flexible {
		e.dst = append(e.dst, 0)
		return
	}
	e.dst = kbin.AppendInt32(e.dst, -1)
}

func (e *fetchEncoder) tags() {
	if e.flexible {
		e.dst = append(e.dst, 0)
	}
}

func (e *fetchEncoder) finish() net.Buffers {
	patchSize(e.dst, 0, e.size)
	bufs := make(net.Buffers, 0, 2*len(e.cuts)+1)
	from := 0
	for _, cut := range e.cuts {
		if cut.at > from {
			bufs = append(bufs, e.dst[from:cut.at])
		}
		bufs = append(bufs, cut.data)
		from = cut.at
	}
	return append(bufs, e.dst[from:])
}

// bufferPool keeps the buffers that fetches read into. Those of the usual size
// are kept; what a large fetch needed is given back to the runtime.
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return (*p)[:0]
	}
	return nil
}

func (b *bufferPool) put(buf []byte) {
	if cap(buf) > 0 && cap(buf) <= 2<<20 {
		b.pool.Put(&buf)
	}
}
