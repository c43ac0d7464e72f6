package kv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestLoad: what is loaded is there, in an empty store on disk, in one in memory
// and beside the keys of others, and may be changed afterwards.
func TestLoad(t *testing.T) {
	disk, err := Open(t.TempDir(), nil)
	must(t, err)
	beside, err := Open(t.TempDir(), nil)
	must(t, err)
	must(t, beside.Put([]byte("other"), []byte("1"), 1))
	memory, err := OpenMemory()
	must(t, err)
	const n = 5000
	key := func(i int) []byte { return fmt.Appendf(nil, "p/%06d", i) }
	for i, s := range []*Store{disk, beside, memory} {
		l, err := s.Load(1<<20, true)
		must(t, err)
		if (l.stream != nil) != (i == 0) {
			t.Errorf("store %d: streamed %v", i, l.stream != nil)
		}
		for k := range n {
			must(t, l.Put(key(k), fmt.Append(nil, k), uint64(k+10)))
		}
		must(t, l.Put([]byte("q"), make([]byte, 100<<10), 7)) // in the value log
		must(t, l.Finish())
		must(t, s.Put(key(3), []byte("older"), 12))
		must(t, s.Put(key(4), []byte("newer"), 1<<20))
		must(t, s.Delete(key(5), 1<<20))
		seen := 0
		must(t, s.Iterate([]byte("p/"), func(_, _ []byte, _ uint64) error { seen++; return nil }))
		if seen != n-1 {
			t.Errorf("store %d: %d keys", i, seen)
		}
		for k, want := range map[int]string{3: "3", 4: "newer", 4999: "4999"} {
			if v, _, _, err := s.Get(key(k)); err != nil || string(v) != want {
				t.Errorf("store %d: key %d is %q, %v", i, k, v, err)
			}
		}
		if v, at, ok, err := s.Get([]byte("q")); err != nil || !ok || at != 7 || len(v) != 100<<10 {
			t.Errorf("store %d: large value of %d bytes, %v", i, len(v), err)
		}
		must(t, s.Close())
	}
}

// TestLoadIsStrict: a sorted load takes no other order; one without room is
// refused; one that was given up leaves a store that works.
func TestLoadIsStrict(t *testing.T) {
	free := int64(1 << 40)
	s, err := Open(t.TempDir(), func() (int64, error) { return free, nil })
	must(t, err)
	defer s.Close()
	free = Room + 1<<20
	if _, err := s.Load(8<<20, true); !errors.Is(err, vfs.ErrNoSpace) {
		t.Fatal(err)
	}
	free = 1 << 40
	l, err := s.Load(0, true)
	must(t, err)
	must(t, l.Put([]byte("b"), nil, 1))
	if err := l.Put([]byte("a"), nil, 1); !errors.Is(err, ErrUnsorted) {
		t.Fatal(err)
	}
	if err := l.Delete([]byte("c")); !errors.Is(err, ErrUnsorted) {
		t.Fatal(err)
	}
	must(t, l.Abort())
	must(t, s.Clear(nil))
	must(t, s.Put([]byte("a"), []byte("1"), 1))
	if v, _, ok, err := s.Get([]byte("a")); err != nil || !ok || string(v) != "1" {
		t.Fatal(v, ok, err)
	}
}

// TestChanged: what was written or deleted after an index, in order.
func TestChanged(t *testing.T) {
	s, err := OpenMemory()
	must(t, err)
	defer s.Close()
	for i := range uint64(10) {
		must(t, s.Put(fmt.Append(nil, "k", i), []byte("old"), i+1))
	}
	must(t, s.Delete([]byte("k2"), 20))
	must(t, s.Put([]byte("k1"), []byte("new"), 21))
	must(t, s.Delete([]byte("k9"), 5)) // too old
	must(t, s.Put([]byte("l"), []byte("other"), 30))
	var got []string
	must(t, s.Changed([]byte("k"), 8, func(key, value []byte, index uint64, deleted bool) error {
		got = append(got, fmt.Sprintf("%s=%s@%d %v", key, value, index, deleted))
		return nil
	}))
	if want := "[k1=new@21 false k2=@20 true k8=old@9 false k9=old@10 false]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
