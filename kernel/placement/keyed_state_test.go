package placement

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func TestKeyedState(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer n.close(g)
	for i := range 5 {
		must(t, g.Put(soon(t), []KV{{Key: fmt.Appendf(nil, "k/%d", i), Value: fmt.Append(nil, i)}, {Key: fmt.Append(nil, "other", i), Value: []byte("x")}}))
	}
	must(t, g.Put(soon(t), []KV{{Key: []byte("k/2")}, {Key: []byte("k/3"), Value: []byte("three")}}))
	var list []string
	must(t, g.Iterate([]byte("k/"), func(key, value []byte) error {
		list = append(list, string(key)+"="+string(value))
		return nil
	}))
	if got := fmt.Sprint(list); got != "[k/0=0 k/1=1 k/3=three k/4=4]" {
		t.Fatal(got)
	}
	code(t, g.Put(soon(t), []KV{{Value: []byte("x")}}), kernel.CodeInvalid)
	code(t, g.Put(soon(t), []KV{{Key: []byte("x"), Value: make([]byte, 17<<20)}}), kernel.CodeTooLarge)
	v := volatileGroup(t, Limits{})
	code(t, v.Put(soon(t), []KV{{Key: []byte("x")}}), kernel.CodeNotAllowed)
}

// TestKeyedStateForgets: that a key was deleted is remembered for as long as the
// log may be applied again from before that, and no longer.
func TestKeyedStateForgets(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 8 << 10
	g := n.open()
	defer n.close(g)
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	key := []byte("k")
	must(t, g.Put(soon(t), []KV{{Key: key, Value: []byte("new")}}))
	must(t, g.Put(soon(t), []KV{{Key: key}}))
	again := func() []byte { // as replay would
		must(t, n.kv.Put(g.keyed.key(key), []byte("old"), 1))
		value, err := g.Get(key)
		must(t, err)
		return value
	}
	if got := again(); got != nil {
		t.Fatalf("%q has come back", got)
	}
	for i := uint64(0); g.Metrics().Checkpoints.Load() < 3; i += 10 {
		publish(t, g, g.Targets(parts...), i, i+10)
	}
	if got := again(); got == nil {
		t.Error("the key is remembered after it was deleted three checkpoints ago")
	}
}

// TestKeyedStateIsRebuilt: checkpoint and log bring all of the keyed state back,
// and nothing else, whatever the store holds at the start.
func TestKeyedStateIsRebuilt(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 8 << 10
	g := n.open()
	parts, _ := queue(t, g, 1, 1, kernel.RetainDay)
	put := func(key, value string) {
		e := KV{Key: []byte(key)}
		if value != "" {
			e.Value = []byte(value)
		}
		must(t, g.Put(soon(t), []KV{e}))
	}
	put("kept", "1")
	put("changed", "1")
	put("gone", "1")
	put("gone", "")
	put("gone later", "1")
	for i := uint64(0); g.Metrics().Checkpoints.Load() < 2; i += 10 {
		publish(t, g, g.Targets(parts...), i, i+10)
	}
	put("changed", "2")
	put("gone later", "")
	put("late", "1")
	n.close(g)

	check := func(g *Group) {
		t.Helper()
		var got []string
		must(t, g.Iterate(nil, func(key, value []byte) error {
			got = append(got, string(key)+"="+string(value))
			return nil
		}))
		if want := "[changed=2 kept=1 late=1]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	must(t, n.kv.Clear(nil)) // as if the folder was lost
	g = n.open()
	check(g)
	n.close(g)
	must(t, n.kv.Put(g.keyed.key([]byte("invented")), []byte("x"), 1<<40)) // or damaged
	must(t, n.kv.Put(g.keyed.key([]byte("kept")), []byte("wrong"), 1<<40))
	must(t, n.kv.Delete(g.keyed.key([]byte("late")), 1<<40))
	g = n.open()
	defer n.close(g)
	check(g)
}

// TestKeyedStateWaitsForRoom: what is in the log and finds no room in the store
// is not answered, and neither is what comes after it; then everything is.
func TestKeyedStateWaitsForRoom(t *testing.T) {
	full := int64(1)
	var free, looks atomic.Int64
	free.Store(1 << 40)
	store, err := kv.Open(t.TempDir(), func() (int64, error) {
		looks.Add(1)
		return free.Load(), nil
	})
	must(t, err)
	defer store.Close()
	n := newNode(t, vfs.NewMem(), "data")
	n.kv = store
	g := n.open()
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("1")}}))
	free.Store(full)
	code(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("2")}}), kernel.CodeUnavailable)
	// The room may go while one is on its way.
	first, err := g.prop.command(putCommand([]KV{{Key: []byte("k"), Value: []byte("3")}}))
	must(t, err)
	second, err := g.prop.command(barrierCommand())
	must(t, err)
	for before := looks.Load(); looks.Load() < before+2; { // it has been refused
		runtime.Gosched()
	}
	if len(first)+len(second) > 0 {
		t.Fatal("answered before it was written")
	}
	free.Store(1 << 40)
	for _, ch := range []<-chan commandResult{first, second} {
		if res := <-ch; res.err != nil {
			t.Fatal(res.err)
		}
	}
	value, err := g.Get([]byte("k"))
	if must(t, err); string(value) != "3" {
		t.Errorf("%q", value)
	}

	free.Store(full) // a stop does not wait for room; the log has it
	third, err := g.prop.command(putCommand([]KV{{Key: []byte("k"), Value: []byte("4")}}))
	must(t, err)
	n.close(g)
	if res := <-third; res.err == nil {
		t.Error("confirmed without being written")
	}
	free.Store(1 << 40)
	g = n.open()
	defer n.close(g)
	if value, err := g.Get([]byte("k")); err != nil || string(value) != "4" {
		t.Errorf("%q, %v", value, err)
	}
}
