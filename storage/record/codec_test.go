package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

func is(err, want error) bool {
	return want == nil && err == nil || want != nil && errors.Is(err, want)
}

func compress(t testing.TB, c Codec, src []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	var err error
	switch c {
	case Gzip:
		w := gzip.NewWriter(&buf)
		_, err = w.Write(src)
		err = errors.Join(err, w.Close())
	case Lz4:
		w := lz4.NewWriter(&buf)
		_, err = w.Write(src)
		err = errors.Join(err, w.Close())
	case Zstd:
		w, _ := zstd.NewWriter(&buf)
		_, err = w.Write(src)
		err = errors.Join(err, w.Close())
	case Snappy:
		return s2.EncodeSnappy(nil, src)
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// xerialFrame frames src as Java's snappy library does.
func xerialFrame(src []byte, block int) []byte {
	out := append(bytes.Clone(xerial), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		n := min(block, len(src))
		b := s2.EncodeSnappy(nil, src[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(b)))
		out = append(out, b...)
		src = src[n:]
	}
	return out
}

// recompress gives the batch a compressed record section.
func recompress(batch []byte, c Codec, section []byte) []byte {
	out := append(bytes.Clone(batch[:HeaderSize]), section...)
	binary.BigEndian.PutUint16(out[posAttributes:], uint16(c))
	return seal(out)
}

func TestCodecs(t *testing.T) {
	plain := build(t, sample()...)
	section := plain[HeaderSize:]
	cases := map[string][]byte{
		"gzip":   recompress(plain, Gzip, compress(t, Gzip, section)),
		"snappy": recompress(plain, Snappy, compress(t, Snappy, section)),
		"xerial": recompress(plain, Snappy, xerialFrame(section, 100)),
		"lz4":    recompress(plain, Lz4, compress(t, Lz4, section)),
		"zstd":   recompress(plain, Zstd, compress(t, Zstd, section)),
	}
	for name, batch := range cases {
		t.Run(name, func(t *testing.T) {
			if err := ValidateRecords(batch, nil); err != nil {
				t.Fatal(err)
			}
			for i, got := range walkAll(t, batch) {
				sameRecord(t, got, sample()[i])
			}
			// Cut and damaged input is an error, never a panic.
			for cut := range len(batch) - HeaderSize {
				b := seal(bytes.Clone(batch[:HeaderSize+cut]))
				if err := ValidateRecords(b, nil); err == nil {
					t.Fatalf("cut at %d accepted", cut)
				}
			}
		})
	}
}

// What is inside is not looked at by Validate, but a count that cannot be is.
func TestCompressedCountLies(t *testing.T) {
	plain := build(t, sample()...)
	b := recompress(plain, Lz4, compress(t, Lz4, plain[HeaderSize:]))
	for _, c := range []struct {
		count             int32
		valid, validWhole bool
	}{{3, true, true}, {4, true, false}, {2, true, false}, {1 << 30, false, false}} {
		binary.BigEndian.PutUint32(b[posCount:], uint32(c.count))
		binary.BigEndian.PutUint32(b[posLastDelta:], uint32(c.count-1))
		seal(b)
		if err := Validate(b); (err == nil) != c.valid || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%d records: %v", c.count, err)
		}
		if err := ValidateRecords(b, nil); (err == nil) != c.validWhole || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%d records, looking inside: %v", c.count, err)
		}
	}
}

func TestBombs(t *testing.T) {
	zeros := make([]byte, 32<<20)
	d := &Decompressor{MaxBytes: 8 << 20}
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		t.Run(c.String(), func(t *testing.T) {
			src := compress(t, c, zeros)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := d.Decompress(c, src)
			runtime.ReadMemStats(&after)
			if !errors.Is(err, ErrTooLarge) {
				t.Fatalf("got %v", err)
			}
			// All buffers of the doubling together, and a decoder's window.
			if got := after.TotalAlloc - before.TotalAlloc; got > 40<<20 {
				t.Fatalf("allocated %d bytes", got)
			}
			if out, err := d.Decompress(c, compress(t, c, zeros[:8<<20])); c != Snappy && (err != nil && !errors.Is(err, ErrTooLarge) || err == nil && len(out) != 8<<20) {
				t.Fatalf("at the limit: %d bytes, %v", len(out), err)
			}
		})
	}
}

func TestRatio(t *testing.T) {
	d := &Decompressor{Ratio: 100}
	src := compress(t, Zstd, make([]byte, 5<<20))
	if _, err := d.Decompress(Zstd, src); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("%d bytes to 5 MiB: %v", len(src), err)
	}
	if out, err := d.Decompress(Zstd, compress(t, Zstd, make([]byte, 4<<20))); err != nil || len(out) != 4<<20 {
		t.Fatalf("below the floor: %v", err)
	}
}

// A snappy block that states a size it cannot have allocates nothing.
func TestSnappyLies(t *testing.T) {
	lie := binary.AppendUvarint(nil, 60<<20)
	lie = append(lie, 0, 'x')
	if _, err := new(Decompressor).Decompress(Snappy, lie); err == nil {
		t.Fatal("accepted")
	}
	allocs := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = new(Decompressor).Decompress(Snappy, lie)
		}
	}).AllocedBytesPerOp()
	if allocs > 4096 {
		t.Fatalf("%d bytes allocated", allocs)
	}
}
