package placement

import (
	"errors"
	"fmt"
	iofs "io/fs"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestChooseMerge: what is worth a merge.
func TestChooseMerge(t *testing.T) {
	seg := func(id uint64, size, live int64) slog.SegmentStat {
		st := slog.SegmentStat{SegmentMeta: slog.SegmentMeta{ID: id, Size: size}, LiveBytes: live, Runs: 1}
		if live == 0 {
			st.Runs = 0
		}
		return st
	}
	var small, missing []slog.SegmentStat
	for i := range uint64(8) {
		small = append(small, seg(i, 10, 10))
		missing = append(missing, seg(i, 10, 10))
	}
	missing[3].Missing = true
	for i, c := range []struct {
		list    []slog.SegmentStat
		spoiled map[uint64]bool
		room    int64
		want    string
	}{
		{nil, nil, 1000, "[]"},
		{[]slog.SegmentStat{seg(1, 100, 90), seg(2, 100, 80)}, nil, 1000, "[]"},                   // mostly alive
		{[]slog.SegmentStat{seg(1, 100, 10), seg(2, 100, 20)}, nil, 1000, "[1 2]"},                // mostly dead
		{[]slog.SegmentStat{seg(1, 100, 10), seg(2, 100, 0), seg(3, 90, 20)}, nil, 1000, "[1 3]"}, // a dead one between
		{[]slog.SegmentStat{seg(1, 100, 10), seg(2, 100, 20)}, nil, 15, "[1]"},                    // little room
		{[]slog.SegmentStat{seg(1, 100, 10), seg(2, 100, 20)}, map[uint64]bool{1: true}, 1000, "[2]"},
		{[]slog.SegmentStat{seg(1, 10, 2)}, nil, 1000, "[]"}, // too little
		{small, nil, 1000, "[0 1 2 3 4 5 6 7]"},
		{small[:7], nil, 1000, "[]"},
		{missing, nil, 1000, "[]"},
	} {
		if got := fmt.Sprint(chooseMerge(c.list, c.spoiled, 100, c.room)); got != c.want {
			t.Errorf("case %d: %s, want %s", i, got, c.want)
		}
	}
}

// files returns how many segments there are, and their bytes.
func files(t *testing.T, fs vfs.FS) (n int, bytes int64) {
	t.Helper()
	names, err := fs.List("data/p1/segments")
	must(t, err)
	for _, name := range names {
		size, err := fs.Size("data/p1/segments/" + name)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed since it was listed
		}
		must(t, err)
		n, bytes = n+1, bytes+size
	}
	return n, bytes
}

// TestMergeGivesBack: one queue is consumed, the other is not. What the first had
// leaves the disk although it lies between what stays; readers in the middle of it
// go on, and it all holds after a restart.
func TestMergeGivesBack(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	n.limits.SealBytes = 64 << 10
	g := n.open()
	gone, id := queue(t, g, 1, 1, kernel.RetainUsed)
	stay, other := queue(t, g, 2, 1, kernel.RetainUsed)
	big := func(k uint64) *kernel.Record {
		r := numbered(k)
		r.Key = make([]byte, 1000)
		return r
	}
	count := uint64(0)
	a := newAnswers()
	for ; g.Metrics().Checkpoints.Load() < 6; count += 10 {
		for k := count; k < count+10; k++ {
			must(t, g.Append(g.Targets(gone...), big(k), a, k))
		}
		must(t, g.Append(g.Targets(stay...), numbered(count), a, 1<<32+count))
		a.wait(t, int(count+10+count/10+1))
		sealsDone(t, g)
	}
	lp := g.machine.partition(stay[0]).log
	cursor := lp.Cursor() // stands in a segment that will go
	v, err := cursor.Next()
	if err != nil || v == nil {
		t.Fatal(v, err)
	}
	_, before := files(t, fs)
	consume(t, g, id, int(count))
	for try := 0; ; try++ {
		g.tick()
		must(t, g.Put(soon(t), nil))
		if n, after := files(t, fs); after < before/10 && g.Metrics().Merges.Load() > 0 && n <= 3 {
			break
		}
		if try == 1<<15 {
			n, after := files(t, fs)
			t.Fatalf("%d files of %d bytes, were %d bytes; %d merges", n, after, before, g.Metrics().Merges.Load())
		}
	}
	for k := uint64(10); k < count; k += 10 {
		v, err := cursor.Next()
		if err != nil || v == nil || numberOf(&kernel.View{Value: v.Value}) != k {
			t.Fatalf("record %d: %+v, %v", k, v, err)
		}
	}
	n.close(g)
	g = n.open()
	defer n.close(g)
	consume(t, g, other, int(count/10))
}

// TestMergeMeetsDamage: a segment that cannot be read whole is not merged. It stays,
// and its records are lost loudly, not in silence.
func TestMergeMeetsDamage(t *testing.T) {
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	n.limits.SealBytes = 64 << 10
	g := n.open()
	defer func() { n.close(g) }()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	sealed(t, g, g.Targets(parts...), 2)
	n.close(g)
	g = n.open()
	list := g.machine.log.Segments()
	f, err := fs.OpenFile("data/p1/segments/" + slog.SegmentName(list[0].ID))
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], 100) // in the first batch
	must(t, err)
	b[0]++
	_, err = f.WriteAt(b[:], 100)
	must(t, err)
	must(t, f.Close())
	for ctx := soon(t); ; {
		ch, err := g.prop.command(mergeCommand([]uint64{list[0].ID, list[1].ID}))
		must(t, err) // one beside a seal does nothing
		<-ch
		g.sealer.mu.Lock()
		spoiled := len(g.sealer.spoiled)
		g.sealer.mu.Unlock()
		if spoiled > 0 {
			break
		}
		must(t, g.Put(ctx, nil))
	}
	if after := g.machine.log.Segments(); fmt.Sprint(after[:2]) != fmt.Sprint(list[:2]) || g.Metrics().Merges.Load() != 0 {
		t.Fatalf("%v, were %v", after, list)
	}
	p, err := g.Partition(parts[0])
	must(t, err)
	_, err = p.Read(0, 1, nil)
	code(t, err, kernel.CodeCorrupt)
	if ready, _, _ := g.Count(id); ready == 0 {
		t.Error("the records are gone")
	}
	made, ctx := g.Metrics().Checkpoints.Load(), soon(t) // seals go on
	g.sealer.ask()
	for g.Metrics().Checkpoints.Load() == made {
		must(t, g.Put(ctx, nil))
	}
}
