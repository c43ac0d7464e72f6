package placement

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestAppendKeyed: a publish and its keyed write are one entry; the value is that
// of the last publish in the order of the log, also after a restart.
func TestAppendKeyed(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.Retention{})
	type write struct {
		index uint64
		value string
	}
	var told []write
	g.cfg.Watch = func(index uint64, written []KV) {
		for _, e := range written {
			told = append(told, write{index, string(e.Value)})
		}
	}
	set, a, key := g.Targets(parts[0]), newAnswers(), []byte("k")
	const count = 100
	entries := g.metrics.Entries.Load()
	for i := range uint64(count) {
		value := binary.BigEndian.AppendUint64(nil, i)
		must(t, g.AppendKeyed(set, numbered(i), []KV{{Key: key, Value: value}}, kernel.Once{}, a, i))
	}
	must(t, g.AppendKeyed(nil, nil, []KV{{Key: []byte("alone"), Value: []byte("x")}}, kernel.Once{}, a, count))
	for token, res := range a.wait(t, count+1) {
		if want := int64(token); res.Err != nil || token < count && res.Offset != want || token == count && res.Offset != -1 {
			t.Errorf("publish %d: %+v", token, res)
		}
	}
	if made := g.metrics.Entries.Load() - entries; made > count/2 {
		t.Errorf("%d entries for %d publishes", made, count)
	}
	if len(told) != count+1 || told[count-1].value != string(binary.BigEndian.AppendUint64(nil, count-1)) {
		t.Errorf("told %d times", len(told))
	}
	code(t, g.AppendKeyed(set, numbered(1), []KV{{}}, kernel.Once{}, a, 1000), kernel.CodeInvalid)
	code(t, g.AppendKeyed(set, &kernel.Record{Value: make([]byte, 18<<20)}, []KV{{Key: key}}, kernel.Once{}, a, 1000), kernel.CodeTooLarge)
	code(t, volatileGroup(t, Limits{}).AppendKeyed(nil, nil, []KV{{Key: key}}, kernel.Once{}, a, 1000), kernel.CodeNotAllowed)
	n.close(g)
	must(t, n.kv.Clear(nil))
	g = n.open()
	defer n.close(g)
	value, err := g.Get(key)
	if err != nil || !bytes.Equal(value, binary.BigEndian.AppendUint64(nil, count-1)) {
		t.Errorf("got %x, %v", value, err)
	}
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(2 * count)
	if got := s.wait(t, count); got[count-1].number != count-1 {
		t.Errorf("the last record is %d", got[count-1].number)
	}
}

// TestDeleteUpTo: a deletion that is decided by what was read does not hit what
// was written meanwhile.
func TestDeleteUpTo(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	var index uint64
	g.cfg.Watch = func(i uint64, written []KV) { index = i }
	key := []byte("k")
	put := func(e KV) uint64 {
		t.Helper()
		must(t, g.Put(soon(t), []KV{e}))
		return index
	}
	want := func(want string) {
		t.Helper()
		if v, err := g.Get(key); err != nil || string(v) != want {
			t.Errorf("got %q, %v, want %q", v, err, want)
		}
	}
	first := put(KV{Key: key, Value: []byte("old")})
	second := put(KV{Key: key, Value: []byte("new")})
	put(KV{Key: key, UpTo: first})
	want("new")
	put(KV{Key: key, UpTo: second})
	want("")
	put(KV{Key: key, Value: []byte("again")})
	put(KV{Key: key, UpTo: second})
	want("again")
	n.close(g)
	must(t, n.kv.Clear(nil))
	g = n.open()
	defer n.close(g)
	want("again")
}
