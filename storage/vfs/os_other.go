//go:build !linux

package vfs

import (
	"math"
	"os"
)

// writevAt writes one buffer after the other.
func writevAt(f *os.File, bufs [][]byte, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		n, err := f.WriteAt(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func datasync(f *os.File) error { return f.Sync() }

func preallocate(f *os.File, size int64) error { return writeZeros(f, size) }

func volume(string) (free, size int64, err error) { return math.MaxInt64, math.MaxInt64, nil }
