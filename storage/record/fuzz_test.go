package record

import "testing"

// FuzzBatch feeds hostile bytes to everything that parses: no panic, and what
// passes ValidateRecords can be walked whole, headers included.
func FuzzBatch(f *testing.F) {
	plain := build(f, sample()...)
	f.Add(plain)
	for _, c := range []Codec{Gzip, Snappy, Lz4, Zstd} {
		f.Add(recompress(plain, c, compress(f, c, plain[HeaderSize:])))
	}
	f.Add(recompress(plain, Snappy, xerialFrame(plain[HeaderSize:], 64)))
	f.Add([]byte{})
	d := &Decompressor{MaxBytes: 1 << 20}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= HeaderSize { // reach the parsers behind the CRC
			b[posMagic] = Magic
			seal(b)
		}
		valid := ValidateRecords(b, d) == nil
		var it Iter
		if err := it.Reset(b, d); err != nil {
			if valid {
				t.Fatalf("valid batch cannot be read: %v", err)
			}
			return
		}
		n := 0
		for it.Next() {
			n++
			v := it.View()
			h := v.Headers()
			for _, _, ok := h.Next(); ok; _, _, ok = h.Next() {
			}
			if valid && h.Err() != nil {
				t.Fatal(h.Err())
			}
			_ = v.Record()
		}
		if valid && (it.Err() != nil || n != int(Count(b))) {
			t.Fatalf("%d of %d records: %v", n, Count(b), it.Err())
		}
		_ = it.Reset(b, d)
		it.SkipTo(BaseOffset(b) + 1)
		it.Next()
	})
}
