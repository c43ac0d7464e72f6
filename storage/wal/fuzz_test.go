package wal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// nonsense makes a file body of frames whose checksums are right, but whose
// content is up to the fuzzer: 12 bytes for each.
func nonsense(b []byte) []byte {
	var body []byte
	for ; len(b) >= 12; b = b[12:] {
		data := b[8:12][:b[7]%5]
		h := frame{kind: b[0] % (kindDrop + 2), logType: b[1] % 6, group: uint32(b[2] % 3),
			index: uint64(b[3] % 16), term: uint64(b[4] % 16), time: int64(b[5] % 4), durable: uint32(b[6]) * 8,
			length: uint32(len(data)), dataSum: dataSum(data, nil)}
		if b[7] > 250 {
			h.term = -uint64(b[7])
		}
		at := len(body)
		body = append(body, make([]byte, h.size())...)
		h.put(body[at:], 0)
		copy(body[at+frameHeaderSize:], data)
	}
	return body
}

// FuzzRecover opens a log with arbitrary bytes, or with arbitrary frames, behind
// a valid header: there may be an error, but no panic, and what opens can be
// read and appended to.
func FuzzRecover(f *testing.F) {
	disk := vfs.NewMem()
	w := openTest(f, disk, Options{FileSize: 4 << 10, Rand: bytes.NewReader(make([]byte, 100))})
	must(f, w.Group(1).StoreLogs(entries(1, 3, 30)))
	must(f, w.Group(1).Set([]byte("key"), []byte("value")))
	must(f, w.Group(1).DeleteRange(1, 1))
	must(f, w.Group(1).DeleteRange(3, 3))
	seed := make([]byte, w.cur.end-fileHeaderSize)
	_, err := w.cur.ReadAt(seed, fileHeaderSize)
	must(f, err)
	must(f, w.Close())
	f.Add(seed, false)
	f.Add(seed[:len(seed)-20], false)
	f.Add([]byte{}, false)
	f.Add(append(make([]byte, 48), seed...), false)
	program := func(frames ...[12]byte) (b []byte) {
		for _, f := range frames {
			b = append(b, f[:]...)
		}
		return b
	}
	f.Add(program([12]byte{kindRoll, 0, 0, 0, 0, 1}, [12]byte{kindState, 0, 1, 2, 5}, [12]byte{kindEntry, 0, 1, 5},
		[12]byte{kindCopy, 0, 1, 2}, [12]byte{kindCopy, 0, 1, 3}, [12]byte{kindCut, 0, 1, 4}, [12]byte{kindCopy, 0, 1, 4}), true)
	f.Add(program([12]byte{kindRoll, 0, 0, 0, 0, 1}, [12]byte{kindState, 0, 1, 2, 5}, [12]byte{kindTrunc, 0, 1, 3},
		[12]byte{kindCopy, 0, 1, 2}, [12]byte{kindDrop, 0, 1}, [12]byte{kindEntry, 0, 1, 7}), true)
	f.Add(program([12]byte{kindRoll, 0, 0, 0, 0, 1}, [12]byte{kindState, 0, 1, 2, 0, 0, 0, 251}), true)
	f.Fuzz(func(t *testing.T, body []byte, frames bool) {
		if frames {
			body = nonsense(body)
		}
		disk := vfs.NewMem()
		must(t, disk.MkdirAll("wal"))
		file, err := disk.Create(fileName("wal", 1))
		must(t, err)
		_, err = file.WritevAt([][]byte{putFileHeader(1, 0), body}, 0)
		must(t, err)
		w, err := Open(disk, "wal", Options{FileSize: 4 << 10, NoAhead: true})
		if err != nil {
			return
		}
		for _, id := range w.Groups() {
			g := w.Group(id)
			b := bounds(g)
			for i := b[0]; i > 0 && i <= b[1]; i++ {
				_, err := g.Data(i)
				must(t, err)
			}
			must(t, g.StoreLogs(entries(1+b[1], 2+b[1], 10)))
		}
		must(t, w.Close())
		w = openTest(t, disk, Options{FileSize: 4 << 10})
		must(t, w.Close())
	})
}

// FuzzFrame: a frame that decodes encodes to the same bytes.
func FuzzFrame(f *testing.F) {
	b := make([]byte, frameHeaderSize)
	(&frame{kind: kindEntry, index: 5, term: 6, length: 7, group: 8, time: 9}).put(b, 10)
	f.Add(b, uint32(10))
	f.Fuzz(func(t *testing.T, b []byte, salt uint32) {
		h, ok := getFrame(b, salt)
		if !ok {
			return
		}
		out := make([]byte, frameHeaderSize)
		h.put(out, salt)
		if !bytes.Equal(out, b[:frameHeaderSize]) {
			t.Errorf("%x became %x", b[:frameHeaderSize], out)
		}
		kv := map[string][]byte{}
		_ = readPairs(b, kv)
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 4 << 10, 256 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w, err := Open(vfs.OS(), b.TempDir(), Options{})
			must(b, err)
			defer w.Close()
			g := w.Group(1)
			logs := entries(1, 4, size)
			b.SetBytes(int64(4 * size))
			b.ReportAllocs()
			for b.Loop() {
				must(b, g.StoreLogs(logs))
				for _, l := range logs {
					l.Index += 4
				}
				if logs[0].Index%1024 == 1 {
					must(b, g.DeleteRange(1, logs[0].Index-200))
				}
			}
		})
	}
}
