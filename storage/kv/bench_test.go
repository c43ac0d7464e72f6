package kv

import (
	"fmt"
	"testing"
)

// BenchmarkIterate reads 100,000 small values, as checkpoints and starts do.
func BenchmarkIterate(b *testing.B) {
	s, err := Open(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	l, err := s.Load(0, true)
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 100)
	for i := range 100_000 {
		if err := l.Put(fmt.Appendf(nil, "key%08d", i), value, 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Finish(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		err := s.Iterate(nil, func(_, _ []byte, _ uint64) error { n++; return nil })
		if err != nil || n != 100_000 {
			b.Fatal(n, err)
		}
	}
}
