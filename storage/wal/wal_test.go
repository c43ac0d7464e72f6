package wal

import (
	"bytes"
	"errors"
	"fmt"
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

func TestFailureIsFinal(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Op: vfs.OpSync, Times: 1, Err: io.ErrUnexpectedEOF},
		{Op: vfs.OpWrite, Times: 1, Err: io.ErrUnexpectedEOF, Short: 100},
	} {
		disk := vfs.NewMem()
		fault := vfs.NewFault(disk)
		var told error
		w := openTest(t, fault, Options{OnFailure: func(err error) { told = err }})
		g := w.Group(1)
		must(t, g.StoreLogs(entries(1, 3, 100)))
		fault.Add(rule)
		if err := g.StoreLogs(entries(4, 5, 100)); !errors.Is(err, ErrFailed) || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("append: %v", err)
		}
		if err := g.StoreLogs(entries(4, 4, 100)); !errors.Is(err, ErrFailed) {
			t.Errorf("next append: %v", err)
		}
		if err := g.Set([]byte("k"), nil); !errors.Is(err, ErrFailed) {
			t.Errorf("set: %v", err)
		}
		if !errors.Is(told, ErrFailed) || !errors.Is(w.Err(), ErrFailed) {
			t.Errorf("told %v, Err %v", told, w.Err())
		}
		if got := bounds(g); got != [2]uint64{1, 3} {
			t.Errorf("holds %v", got)
		}
		_ = w.Close()
	}
}

// TestFullDisk: entries are refused before anything is written; votes and cuts
// still get through; and with space again everything goes on.
func TestFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 16 << 10})
	defer w.Close()
	g := w.Group(1)
	disk.SetFree(0)
	next := uint64(1)
	var err error
	for ; err == nil; next++ {
		err = g.StoreLogs(entries(next, next, 1000))
	}
	next--
	if !errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, ErrFailed) || w.Err() != nil {
		t.Fatalf("full: %v", err)
	}
	must(t, g.SetUint64([]byte("CurrentTerm"), 7))
	must(t, g.DeleteRange(1, next-2))
	if err := g.StoreLogs(entries(next, next, 1000)); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("still full: %v", err)
	}
	disk.SetFree(1 << 20)
	must(t, g.StoreLogs(entries(next, next+20, 1000)))
	must(t, g.DeleteRange(1, next+19))
	if n := w.Stats().Files; n > 2 {
		t.Errorf("%d files remain", n)
	}
}

// TestIdleGroup: a few entries of an idle group do not keep the files of a busy
// one.
func TestIdleGroup(t *testing.T) {
	disk := vfs.NewMem()
	w := openTest(t, disk, Options{FileSize: 16 << 10, TailCacheBytes: 1})
	idle, busy := w.Group(1), w.Group(2)
	must(t, idle.StoreLogs(entries(1, 3, 50)))
	must(t, idle.Set([]byte("vote"), []byte("x")))
	for i := uint64(1); i < 2000; i++ {
		must(t, busy.StoreLogs(entries(i, i, 500)))
		if i == 700 {
			must(t, idle.StoreLogs(entries(4, 5, 50)))
		}
		if i%50 == 0 {
			must(t, busy.DeleteRange(1, i-10))
			if n := w.Stats().Files; n > pinnedFiles+1 {
				t.Fatalf("%d files at %d", n, i)
			}
		}
	}
	for range 2 {
		if got := bounds(idle); got != [2]uint64{1, 5} {
			t.Fatalf("idle group holds %v", got)
		}
		for i := uint64(1); i <= 5; i++ {
			data, err := idle.Data(i)
			if err != nil || !bytes.Equal(data, entries(i, i, 50)[0].Data) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
		if v, err := idle.Get([]byte("vote")); err != nil || string(v) != "x" {
			t.Errorf("vote %q %v", v, err)
		}
		must(t, w.Close())
		w = openTest(t, disk, Options{FileSize: 16 << 10})
		idle = w.Group(1)
	}
	must(t, idle.Drop())
	must(t, w.Close())
	w = openTest(t, disk, Options{})
	if got := bounds(w.Group(1)); got != [2]uint64{} {
		t.Errorf("dropped group holds %v", got)
	}
	must(t, w.Close())
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
	if s.Syncs >= groups*rounds*11/10 {
		t.Errorf("%d syncs for %d appends", s.Syncs, groups*rounds)
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
			for i := b[0]; i <= b[1]; i++ {
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
