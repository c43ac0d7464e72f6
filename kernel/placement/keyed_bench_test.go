package placement

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// BenchmarkKeyedStart is what keyed state costs with a million keys of 40 bytes
// with values of 200 on a real disk: the base, a delta of 1,000 keys and one of
// more than are remembered, and loading them into an empty store at a start.
func BenchmarkKeyedStart(b *testing.B) {
	const keys = 1_000_000
	for range b.N {
		cfg := Config{ID: 1, FS: vfs.OS(), Dir: b.TempDir()}
		var err error
		if cfg.KV, err = kv.Open(b.TempDir(), nil); err != nil {
			b.Fatal(err)
		}
		k := newKeyed(&cfg)
		index := uint64(1)
		put := func(from, to int) {
			for i := from; i < to; index++ {
				var list []KV
				for ; i < to && len(list) < 1000; i++ {
					key := fmt.Appendf(nil, "a key that is some forty bytes: %08d", i)
					value := make([]byte, 200)
					for at := 0; at < 200; at += 8 {
						binary.LittleEndian.PutUint64(value[at:], uint64(i*at)*0x9E3779B97F4A7C15)
					}
					list = append(list, KV{Key: key, Value: value})
				}
				if err := k.write([]keyedWrite{{index, [][]byte{putCommand(list)[1:]}}}); err != nil {
					b.Fatal(err)
				}
			}
		}
		save := func(name string) keyChain {
			begin := time.Now()
			chain, err := k.save(index)
			if err != nil {
				b.Fatal(err)
			}
			k.saved(chain, index)
			index++
			b.ReportMetric(time.Since(begin).Seconds(), name+"-s")
			b.ReportMetric(float64(chain[len(chain)-1].Size)/(1<<20), name+"-MiB")
			return chain
		}
		put(0, keys)
		save("base")
		put(5000, 6000)
		save("delta")
		put(keys-100_000, keys)
		chain := save("scanned")
		if err := cfg.KV.Close(); err != nil {
			b.Fatal(err)
		}
		if cfg.KV, err = kv.Open(b.TempDir(), nil); err != nil {
			b.Fatal(err)
		}
		k = newKeyed(&cfg)
		begin := time.Now()
		if err := k.load(&saved{chain: chain}, bufio.NewReader(strings.NewReader("")), index); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(time.Since(begin).Seconds(), "start-s")
		n := 0
		if err := cfg.KV.Iterate(k.prefix, func(_, _ []byte, _ uint64) error { n++; return nil }); err != nil || n != keys {
			b.Fatalf("%d keys: %v", n, err)
		}
		if err := cfg.KV.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
