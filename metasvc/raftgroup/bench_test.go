package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// release is a machine that only counts what is outstanding.
type release chan struct{}

func (r release) Apply(entries []Entry) {
	for range entries {
		<-r
	}
}
func (r release) Restore(checkpoint.Meta, io.Reader) error { return errors.ErrUnsupported }

// BenchmarkPropose is one voter on the real disk.
func BenchmarkPropose(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("size=%dKiB", size>>10), func(b *testing.B) {
			dir := b.TempDir()
			w, err := wal.Open(vfs.OS(), dir+"/wal", wal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			store, err := checkpoint.Open(vfs.OS(), dir+"/checkpoints")
			if err != nil {
				b.Fatal(err)
			}
			outstanding := make(release, 4)
			lead := make(chan struct{}, 1)
			g, err := Open(Config{Group: w.Group(1), NodeID: "a", Checkpoints: store, Machine: outstanding,
				Bootstrap: []Server{{ID: "a", Address: "a"}}, Logger: zerolog.Nop(),
				Watch: func(l Leadership) {
					if l.Leader {
						lead <- struct{}{}
					}
				}})
			if err != nil {
				b.Fatal(err)
			}
			<-lead
			data := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			var before = w.Stats()
			for b.Loop() {
				outstanding <- struct{}{}
				g.Propose(data, func(err error) { b.Error(err) })
				if g.fsm.applied.Load()%512 == 0 { // give space back
					if first, _ := w.Group(1).FirstIndex(); g.AppliedIndex() > first+512 {
						if err := w.Group(1).DeleteRange(first, g.AppliedIndex()-256); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			s := w.Stats()
			b.ReportMetric(float64(s.Syncs-before.Syncs)/float64(b.N), "syncs/op")
			b.ReportMetric(float64((s.SyncTime-before.SyncTime).Microseconds())/float64(s.Syncs-before.Syncs), "µs/sync")
			if err := g.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
