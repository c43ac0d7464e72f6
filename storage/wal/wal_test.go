package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand"
	"slices"
	"sync"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func openTest(t testing.TB, fs vfs.FS, o Options) *WAL {
	t.Helper()
	o.NoAhead = true
	w, err := Open(fs, "wal", o)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func entries(from, to uint64, size int) []*raft.Log {
	var logs []*raft.Log
	for i := from; i <= to; i++ {
		logs = append(logs, &raft.Log{Index: i, Term: 1, Data: bytes.Repeat([]byte{byte(i)}, size)})
	}
	return logs
}

func bounds(g *Group) [2]uint64 {
	first, _ := g.FirstIndex()
	last, _ := g.LastIndex()
	return [2]uint64{first, last}
}

// TestExactErrors: hashicorp/raft compares these.
func TestExactErrors(t *testing.T) {
	w := openTest(t, vfs.NewMem(), Options{})
	defer w.Close()
	g := w.Group(1)
	if err := g.GetLog(1, &raft.Log{}); err != raft.ErrLogNotFound { //nolint:errorlint // exact
		t.Errorf("GetLog: %v", err)
	}
	if _, err := g.Get([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("Get: %v", err)
	}
	if _, err := g.GetUint64([]byte("k")); err == nil || err.Error() != "not found" {
		t.Errorf("GetUint64: %v", err)
	}
}

func TestLog(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{TailCacheBytes: 1000})
	g := w.Group(3)
	must(t, g.StoreLogs(entries(5, 20, 100))) // an empty log begins anywhere
	steps := []struct {
		name   string
		do     func() error
		fails  bool
		expect [2]uint64
	}{
		{"gap", func() error { return g.StoreLogs(entries(22, 23, 1)) }, true, [2]uint64{5, 20}},
		{"again", func() error { return g.StoreLogs(entries(20, 20, 1)) }, true, [2]uint64{5, 20}},
		{"hole in the batch", func() error { return g.StoreLogs([]*raft.Log{{Index: 21}, {Index: 23}}) }, true, [2]uint64{5, 20}},
		{"inside", func() error { return g.DeleteRange(7, 8) }, true, [2]uint64{5, 20}},
		{"below", func() error { return g.DeleteRange(1, 4) }, false, [2]uint64{5, 20}},
		{"above", func() error { return g.DeleteRange(21, 99) }, false, [2]uint64{5, 20}},
		{"prefix", func() error { return g.DeleteRange(1, 7) }, false, [2]uint64{8, 20}},
		{"suffix", func() error { return g.DeleteRange(18, 20) }, false, [2]uint64{8, 17}},
		{"append", func() error { return g.StoreLogs(entries(18, 19, 10)) }, false, [2]uint64{8, 19}},
		{"all", func() error { return g.DeleteRange(8, 19) }, false, [2]uint64{0, 0}},
		{"begin again", func() error { return g.StoreLogs(entries(3, 4, 10)) }, false, [2]uint64{3, 4}},
		{"to zero", func() error { return g.StoreLogs(entries(0, 0, 10)) }, true, [2]uint64{3, 4}},
	}
	for _, s := range steps {
		if err := s.do(); (err != nil) != s.fails {
			t.Errorf("%s: %v", s.name, err)
		}
		if got := bounds(g); got != s.expect {
			t.Errorf("%s: %v, not %v", s.name, got, s.expect)
		}
		must(t, w.Close())
		w = openTest(t, disk, Options{TailCacheBytes: 1000})
		g = w.Group(3)
		if got := bounds(g); got != s.expect {
			t.Errorf("%s, reopened: %v, not %v", s.name, got, s.expect)
		}
	}
	must(t, w.Close())
}

// TestTailCache: the newest entries are served from memory, as they are.
func TestTailCache(t *testing.T) {
	disk := vfs.NewMem()
	fault := vfs.NewFault(disk)
	w := openTest(t, fault, Options{TailCacheBytes: 10 * (1000 + cacheOverhead)})
	defer w.Close()
	g := w.Group(1)
	logs := entries(1, 30, 1000)
	must(t, g.StoreLogs(logs))
	fault.Add(vfs.Rule{Op: vfs.OpRead, Err: io.ErrUnexpectedEOF})
	for i := uint64(21); i <= 30; i++ {
		data, err := g.Data(i)
		must(t, err)
		if &data[0] != &logs[i-1].Data[0] {
			t.Errorf("entry %d was copied", i)
		}
	}
	if _, err := g.Data(20); err == nil {
		t.Error("entry 20 is in memory")
	}
	fault.Clear()
	if data, err := g.Data(20); err != nil || !bytes.Equal(data, logs[19].Data) {
		t.Errorf("entry 20: %v", err)
	}
	if got, want := g.Bytes(11, 20), 10*frameSize(1000, 0); got != want {
		t.Errorf("Bytes %d, not %d", got, want)
	}
	if got, want := g.Bytes(0, 99), 30*frameSize(1000, 0); got != want {
		t.Errorf("Bytes %d, not %d", got, want)
	}
}

// TestDamage flips a byte at every place of a synced log: it is found, or, at
// the end of the log, where no later frame proves anything, cut off.
func TestDamage(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 4 << 10, Rand: rand.New(rand.NewSource(1))})
	g := w.Group(1)
	for i := uint64(1); i <= 12; i++ {
		must(t, g.StoreLogs(entries(i, i, 400)))
	}
	lastEnd := w.cur.end - frameSize(400, 0)
	lastFile := w.cur.name
	if w.Stats().Files < 2 {
		t.Fatal("one file only")
	}
	must(t, w.Close())
	names, err := disk.List("wal")
	must(t, err)
	for _, name := range names {
		name = "wal/" + name
		size, err := disk.Size(name)
		must(t, err)
		for off := int64(0); off < size; off += 7 {
			clone := disk.CrashClone(nil)
			f, err := clone.OpenFile(name)
			must(t, err)
			b := make([]byte, 1)
			_, err = f.ReadAt(b, off)
			must(t, err)
			b[0] ^= 0x40
			_, err = f.WriteAt(b, off)
			must(t, err)
			w, err := Open(clone, "wal", Options{FileSize: 4 << 10, NoAhead: true})
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Fatalf("%s at %d: %v", name, off, err)
				}
				continue
			}
			last, _ := w.Group(1).LastIndex()
			atEnd := name == lastFile && off >= lastEnd
			for i := uint64(1); i <= last; i++ {
				_, err := w.Group(1).Data(i)
				must(t, err)
			}
			if last != 12 && !atEnd {
				t.Errorf("%s at %d: entries after %d vanished without an error", name, off, last)
			}
			must(t, w.Close())
		}
	}
}

// TestBitRot: damage that comes while the log is open is found by the read.
func TestBitRot(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{TailCacheBytes: 1})
	defer w.Close()
	g := w.Group(1)
	must(t, g.StoreLogs(entries(1, 3, 2000)))
	f, err := disk.OpenFile(w.cur.name)
	must(t, err)
	_, err = f.WriteAt([]byte("rot"), fileHeaderSize+frameSize(0, 0)+frameHeaderSize+100)
	must(t, err)
	if _, err := g.Data(1); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged entry: %v", err)
	}
	if _, err := g.Data(2); err != nil {
		t.Error(err)
	}
}

func TestMissingFile(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 4 << 10})
	for i := uint64(1); i <= 30; i++ {
		must(t, w.Group(1).StoreLogs(entries(i, i, 500)))
	}
	must(t, w.Close())
	for _, seq := range []uint64{1, 2} {
		clone := disk.CrashClone(nil)
		must(t, clone.Remove(fileName("wal", seq)))
		if _, err := Open(clone, "wal", Options{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("without file %d: %v", seq, err)
		}
	}
}

func TestVersion(t *testing.T) {
	disk := vfs.NewMem()
	must(t, openTest(t, disk, Options{}).Close())
	f, err := disk.OpenFile(fileName("wal", 1))
	must(t, err)
	_, err = f.WriteAt([]byte{fileVersion + 1}, 4)
	must(t, err)
	if _, err := Open(disk, "wal", Options{}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("damaged version byte: %v", err)
	}
	head := make([]byte, fileHeaderSize)
	_, err = f.ReadAt(head, 0)
	must(t, err)
	binary.LittleEndian.PutUint32(head[20:], crc32.Checksum(head[:20], castagnoli))
	_, err = f.WriteAt(head, 0)
	must(t, err)
	if _, err := Open(disk, "wal", Options{}); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
}

func TestLock(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{})
	if _, err := Open(disk, "wal", Options{}); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
	must(t, w.Close())
	must(t, openTest(t, disk, Options{}).Close())
}

// TestVote: the term of a vote becomes durable together with the candidate.
func TestVote(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{})
	g := w.Group(1)
	must(t, g.SetUint64([]byte(keyVoteTerm), 3))
	must(t, g.Set([]byte(keyVoteCandidate), []byte("a")))
	syncs := w.Stats().Syncs
	must(t, g.SetUint64([]byte(keyVoteTerm), 4))
	if got := w.Stats().Syncs; got != syncs {
		t.Error("the term alone was written")
	}
	reopened := openTest(t, disk.CrashClone(nil), Options{})
	if term, err := reopened.Group(1).GetUint64([]byte(keyVoteTerm)); err != nil || term != 3 {
		t.Errorf("half a vote: term %d %v", term, err)
	}
	must(t, g.Set([]byte(keyVoteCandidate), []byte("b")))
	reopened = openTest(t, disk.CrashClone(nil), Options{})
	if term, err := reopened.Group(1).GetUint64([]byte(keyVoteTerm)); err != nil || term != 4 {
		t.Errorf("whole vote: term %d %v", term, err)
	}
	must(t, w.Close())
}

// TestSkipSync: a power loss takes acknowledged entries from the end, but the
// log opens, without a hole.
func TestSkipSync(t *testing.T) {
	for seed := range int64(100) {
		rng := rand.New(rand.NewSource(seed))
		disk := vfs.NewMem()
		opts := Options{FileSize: 8 << 10, SkipSync: true}
		w := openTest(t, disk, opts)
		last := map[uint32]uint64{}
		for range 20 + rng.Intn(100) {
			id := uint32(1 + rng.Intn(3))
			n := uint64(1 + rng.Intn(3))
			must(t, w.Group(id).StoreLogs(entries(last[id]+1, last[id]+n, rng.Intn(700))))
			last[id] += n
			if rng.Intn(10) == 0 {
				must(t, w.Group(id).DeleteRange(1, last[id]/2))
			}
		}
		w = openTest(t, disk.CrashClone(rng), opts)
		for _, id := range w.Groups() {
			b := bounds(w.Group(id))
			for i := b[0]; i > 0 && i <= b[1]; i++ {
				_, err := w.Group(id).Data(i)
				must(t, err)
			}
			if b[1] > last[id] {
				t.Errorf("seed %d: entry %d was never written", seed, b[1])
			}
		}
		must(t, w.Close())
	}
}

// TestConcurrent: many groups append and cut at once, on files made ahead; the
// power fails in the middle.
func TestConcurrent(t *testing.T) {
	disk := vfs.NewMem()
	w, err := Open(disk, "wal", Options{FileSize: 32 << 10, TailCacheBytes: 4 << 10})
	must(t, err)
	const groups, rounds = 8, 60
	var mu sync.Mutex
	confirmed := map[uint32]uint64{}
	var left *vfs.MemFS
	var promised map[uint32]uint64
	var wg sync.WaitGroup
	for id := uint32(1); id <= groups; id++ {
		wg.Go(func() {
			g := w.Group(id)
			for i := uint64(0); i < rounds; i++ {
				if err := g.StoreLogs(entries(1+3*i, 3+3*i, 300)); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				confirmed[id] = 3 + 3*i
				if id == 1 && i == rounds/2 {
					promised = map[uint32]uint64{}
					for k, v := range confirmed {
						promised[k] = v
					}
					left = disk.CrashClone(rand.New(rand.NewSource(7)))
				}
				mu.Unlock()
				if i%10 == 9 {
					if err := g.DeleteRange(1, 3*i-5); err != nil {
						t.Error(err)
					}
				}
				var l raft.Log
				if err := g.GetLog(3+3*i, &l); err != nil || l.Index != 3+3*i {
					t.Errorf("read back: %v", err)
				}
			}
		})
	}
	wg.Wait()
	s := w.Stats()
	// Nobody need have written for others: where there is one processor they come one by one.
	const calls, files = groups*rounds + groups*rounds/10, 20
	if s.Syncs > calls+files {
		t.Errorf("%d syncs for %d appends and deletions in fewer than %d files", s.Syncs, calls, files)
	}
	must(t, w.Close())
	for _, d := range []*vfs.MemFS{left, disk.CrashClone(nil)} {
		w := openTest(t, d, Options{})
		for id := uint32(1); id <= groups; id++ {
			want := promised[id]
			if d != left {
				want = 3 * rounds
			}
			b := bounds(w.Group(id))
			if b[1] < want {
				t.Errorf("group %d ends at %d, %d was confirmed", id, b[1], want)
			}
			for i := b[0]; i > 0 && i <= b[1]; i++ {
				if data, err := w.Group(id).Data(i); err != nil || len(data) != 300 || data[0] != byte(i) {
					t.Errorf("group %d entry %d: %v", id, i, err)
				}
			}
		}
		must(t, w.Close())
	}
}

func TestGroupsAndClose(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{})
	must(t, w.Group(9).StoreLogs(entries(1, 1, 1)))
	must(t, w.Group(2).SetUint64([]byte("x"), 1))
	must(t, w.Close())
	if err := w.Close(); !errors.Is(err, ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if err := w.Group(9).StoreLogs(entries(2, 2, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	w = openTest(t, disk, Options{})
	if got := w.Groups(); !slices.Equal(got, []uint32{2, 9}) {
		t.Errorf("groups %v", got)
	}
	if r := w.Recovery(); r.Files != 1 || r.Entries != 1 || r.TornFile != "" {
		t.Errorf("recovery %+v", r)
	}
	must(t, w.Close())
}
