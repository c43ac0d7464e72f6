package kv

import "testing"

// TestKnown: a batch that says what it knows of its keys compares what it must: a
// write that had been done before stays older than what came after it.
func TestKnown(t *testing.T) {
	s, err := OpenMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := []byte("k")
	commit := func(b *Batch) {
		t.Helper()
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want string, at uint64, there bool) {
		t.Helper()
		value, index, ok, err := s.Get(key)
		if err != nil || ok != there || string(value) != want || index != at {
			t.Fatalf("%q at %d, %v, %v; want %q at %d, %v", value, index, ok, err, want, at, there)
		}
	}
	b := &Batch{Known: 5, Undeleted: true}
	b.Put(key, []byte("nine"), 9)
	commit(b)
	check("nine", 9, true)
	b.Reset()
	if b.Known != 0 || b.Undeleted {
		t.Fatal("Reset keeps what is known")
	}
	b.Known, b.Undeleted = 9, true
	b.Put(key, []byte("seven"), 7) // again, as a replay does it
	commit(b)
	check("nine", 9, true)
	b.Reset()
	b.Known = 9
	b.Delete(key, 10)
	b.Put(key, []byte("eleven"), 11)
	b.Delete(key, 12)
	b.Put(key, []byte("thirteen"), 13)
	commit(b)
	check("thirteen", 13, true)
	b.Reset()
	b.Known = 13
	b.Put(key, []byte("twelve"), 12)
	commit(b)
	check("thirteen", 13, true)
}
