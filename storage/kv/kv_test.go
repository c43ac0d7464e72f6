package kv

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/storage/vfs"
)

func memory(t testing.TB) *Store {
	t.Helper()
	s, err := OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t rapid.TB, s *Store, key, value string, index uint64) {
	t.Helper()
	v, at, ok, err := s.Get([]byte(key))
	must(t, err)
	if value == "" {
		if ok {
			t.Fatalf("%s: %q of %d, want none", key, v, at)
		}
		return
	}
	if !ok || string(v) != value || at != index {
		t.Fatalf("%s: %q of %d (%v), want %q of %d", key, v, at, ok, value, index)
	}
}

func TestIndexOrder(t *testing.T) {
	s := memory(t)
	k := []byte("k")
	must(t, s.Put(k, []byte("new"), 10))
	must(t, s.Put(k, []byte("old"), 9))
	want(t, s, "k", "new", 10)
	must(t, s.Put(k, []byte("again"), 10))
	want(t, s, "k", "again", 10)
	must(t, s.Delete(k, 9))
	want(t, s, "k", "again", 10)
	must(t, s.Delete(k, 12))
	want(t, s, "k", "", 0)
	must(t, s.Put(k, []byte("late"), 11))
	want(t, s, "k", "", 0)
	must(t, s.Put(k, []byte("next"), 13))
	want(t, s, "k", "next", 13)
	must(t, s.Delete(k, 14))
	must(t, s.Forget([]byte("k"), 13))
	must(t, s.Put(k, []byte("late"), 11))
	want(t, s, "k", "", 0)
	must(t, s.Forget([]byte("k"), 14))
	must(t, s.Put(k, []byte("late"), 11))
	want(t, s, "k", "late", 11)
}

func TestIterate(t *testing.T) {
	s := memory(t)
	for i := range 20 {
		must(t, s.Put(fmt.Appendf(nil, "a/%02d", i), fmt.Appendf(nil, "%d", i), uint64(i+1)))
		must(t, s.Put(fmt.Appendf(nil, "b/%02d", i), nil, 1))
	}
	must(t, s.Delete([]byte("a/03"), 50))
	var got []string
	must(t, s.Iterate([]byte("a/"), func(key, value []byte, index uint64) error {
		got = append(got, fmt.Sprintf("%s=%s@%d", key, value, index))
		return nil
	}))
	if len(got) != 19 || got[0] != "a/00=0@1" || got[3] != "a/04=4@5" {
		t.Fatal(got)
	}
	n := 0
	must(t, s.Iterate(nil, func(_, _ []byte, _ uint64) error {
		if n++; n == 5 {
			return ErrStop
		}
		return nil
	}))
	if n != 5 {
		t.Fatal(n)
	}
	bad := errors.New("bad")
	if err := s.Iterate(nil, func(_, _ []byte, _ uint64) error { return bad }); !errors.Is(err, bad) {
		t.Fatal(err)
	}
}

// A log applied again from any point ends in the same state.
func TestReplay(t *testing.T) {
	s := memory(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		rng := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		key := func(i int) []byte { return fmt.Appendf(nil, "%d/%d", run, i) }
		model := map[int]string{}
		var story []func(*Batch)
		for index := range 40 {
			k, remove := rng.Intn(6), rng.Intn(3) == 0
			if remove {
				delete(model, k)
				story = append(story, func(b *Batch) { b.Delete(key(k), uint64(index)) })
			} else {
				model[k] = fmt.Sprint("v", index)
				story = append(story, func(b *Batch) { b.Put(key(k), fmt.Appendf(nil, "v%d", index), uint64(index)) })
			}
		}
		apply := func(from int) {
			var b Batch
			for _, step := range story[from:] {
				step(&b)
				if b.Len() > 5 {
					must(t, s.Commit(&b))
					b.Reset()
				}
			}
			must(t, s.Commit(&b))
		}
		apply(0)
		apply(rng.Intn(len(story)))
		got := map[string]string{}
		must(t, s.Iterate(fmt.Appendf(nil, "%d/", run), func(k, v []byte, _ uint64) error {
			got[string(k)] = string(v)
			return nil
		}))
		if len(got) != len(model) {
			t.Fatalf("got %v, want %v", got, model)
		}
		for k, v := range model {
			if got[string(key(k))] != v {
				t.Fatalf("%d: %q, want %q", k, got[string(key(k))], v)
			}
		}
	})
}

// A store has what this process wrote, and nothing of one before it.
func TestLargeValuesAndReopen(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, nil)
	must(t, err)
	var b Batch
	large := bytes.Repeat([]byte("x"), 300<<10)
	for i := range 30 { // far beyond one transaction
		b.Put(fmt.Appendf(nil, "large/%d", i), large, 5)
	}
	for i := range 20_000 {
		b.Put(fmt.Appendf(nil, "small/%d", i), large[:100], 6)
	}
	must(t, s.Commit(&b))
	_, err = s.Collect()
	must(t, err)
	n := 0
	count := func(_, _ []byte, _ uint64) error { n++; return nil }
	must(t, s.Iterate(nil, count))
	if n != 20_030 {
		t.Fatal(n)
	}
	want(t, s, "large/29", string(large), 5)
	must(t, s.Close())

	s, err = Open(dir, nil)
	must(t, err)
	n = 0
	if must(t, s.Iterate(nil, count)); n != 0 {
		t.Errorf("%d keys of another process", n)
	}
	must(t, s.Close())
	must(t, os.WriteFile(filepath.Join(dir, "MANIFEST"), []byte("nonsense"), 0o600))
	s, err = Open(dir, nil)
	must(t, err)
	must(t, s.Close())
}

func TestClear(t *testing.T) {
	s := memory(t)
	for i := range 20 {
		must(t, s.Put(fmt.Appendf(nil, "a/%02d", i), []byte("v"), 7))
		must(t, s.Put(fmt.Appendf(nil, "b/%02d", i), []byte("v"), 7))
	}
	must(t, s.Delete([]byte("a/03"), 50))
	must(t, s.Clear([]byte("a/")))
	want(t, s, "a/04", "", 0)
	want(t, s, "b/04", "v", 7)
	must(t, s.Put([]byte("a/03"), []byte("w"), 1)) // not even a deletion is known
	want(t, s, "a/03", "w", 1)
}

// TestNoRoom: with little space left writes are refused before anything is
// touched, and may be repeated later; the store closes, and is not opened.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	room := int64(Room + 1<<20)
	free := func() (int64, error) { return room, nil }
	s, err := Open(dir, free)
	must(t, err)
	must(t, s.Put([]byte("k"), []byte("v"), 1))
	room = Room + 100
	var b Batch
	b.Put([]byte("k"), make([]byte, 100), 2)
	if err := s.Commit(&b); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatalf("commit: %v", err)
	}
	want(t, s, "k", "v", 1)
	room = Room + 1<<20
	must(t, s.Commit(&b))
	want(t, s, "k", string(make([]byte, 100)), 2)
	room = 0
	if err := s.Clear(nil); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("clear: %v", err)
	}
	must(t, s.Close())
	if _, err := Open(dir, free); !errors.Is(err, vfs.ErrNoSpace) {
		t.Errorf("open: %v", err)
	}
}

func TestMemory(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	s, err := Open(t.TempDir(), nil)
	must(t, err)
	for i := range 100 {
		must(t, s.Put(fmt.Appendf(nil, "%d", i), make([]byte, 100), 1))
	}
	if grew := int64(heap()) - int64(before); grew > 30<<20 {
		t.Errorf("an idle store takes %d bytes", grew)
	} else {
		t.Logf("%d KiB", grew>>10)
	}
	must(t, s.Close())
}

// TestCloseWithoutFiles: a store whose directory has gone does not keep the node from
// stopping.
func TestCloseWithoutFiles(t *testing.T) {
	closeTime = 300 * time.Millisecond
	defer func() { closeTime = 10 * time.Second }()
	dir := filepath.Join(t.TempDir(), "kv")
	s, err := Open(dir, func() (int64, error) { return 1 << 40, nil })
	must(t, err)
	must(t, s.Put([]byte("a"), []byte("b"), 1))
	must(t, os.RemoveAll(dir))
	if err := s.Close(); !errors.Is(err, ErrNotClosed) {
		t.Errorf("close: %v", err)
	}
}
