package placement

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/keyfile"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// spoil writes over the middle of a file.
func spoil(t *testing.T, fs vfs.FS, name string) {
	t.Helper()
	f, err := fs.OpenFile(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	_, err = f.WriteAt([]byte("damage"), size/2)
	must(t, err)
	must(t, f.Close())
}

// loaded is a node whose group has made some checkpoints, with queue and keys.
func loaded(t *testing.T, fs vfs.FS, checkpoints uint64) (n *node, id GroupID, records int, keys map[string]string) {
	n = newNode(t, fs, "data")
	n.limits.SealBytes, n.keep = 8<<10, 1
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	keys = map[string]string{}
	for i := 0; g.Metrics().Checkpoints.Load() < checkpoints; i++ {
		publish(t, g, g.Targets(parts...), uint64(records), uint64(records+10))
		records += 10
		key, value := fmt.Sprint("key ", i%40), fmt.Sprint("value ", i)
		must(t, g.Put(soon(t), []KV{{Key: []byte(key), Value: []byte(value)}, {Key: []byte("gone"), Value: []byte("x")}}))
		must(t, g.Put(soon(t), []KV{{Key: []byte("gone")}}))
		keys[key] = value
		sealsDone(t, g)
	}
	distinct := func() bool { // the newest checkpoint names a file that the other does not
		kept := g.sealer.keeps()
		older, newest := kept[0].chain, kept[1].chain
		return len(newest) > 0 && !slices.Contains(older, newest[len(newest)-1])
	}
	for n.close(g); !distinct(); n.close(g) {
		g = n.open()
		keys["last"] += "x"
		must(t, g.Put(soon(t), []KV{{Key: []byte("last"), Value: []byte(keys["last"])}}))
		g.sealer.ask()
		awaitCheckpoint(t, g)
	}
	return n, id, records, keys
}

func sameKeys(t *testing.T, g *Group, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	must(t, g.Iterate(nil, func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	}))
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("keys %v, want %v", got, want)
	}
}

// TestFallback: when the newest checkpoint, or a file of keyed state that only it
// names, is damaged, the group starts from the one before with nothing lost, and
// goes on.
func TestFallback(t *testing.T) {
	for _, what := range []string{"checkpoints", "keys"} {
		fs := vfs.NewMem()
		n, id, records, keys := loaded(t, fs, 3)
		names, err := fs.List(path.Join("data/p1", what))
		must(t, err)
		newest := slices.MaxFunc(names, strings.Compare)
		spoil(t, fs, path.Join("data/p1", what, newest))
		must(t, n.kv.Clear(nil))

		g := n.open()
		set, err := fs.List("data/p1/checkpoints")
		must(t, err)
		if !slices.ContainsFunc(set, func(s string) bool { return strings.HasSuffix(s, ".damaged") }) {
			t.Fatalf("%s: nothing was damaged: %v", what, set)
		}
		sameKeys(t, g, keys)
		consume(t, g, id, records)
		for made := g.Metrics().Checkpoints.Load(); g.Metrics().Checkpoints.Load() < made+2; {
			publish(t, g, g.Targets(1), 0, 10)
			sealsDone(t, g)
		}
		n.close(g)
		g = n.open()
		sameKeys(t, g, keys)
		n.close(g)
	}
}

// TestDamagedCheckpoints: when both checkpoints are damaged and the log does not
// go back to its begin, the group does not open, however often that is tried, and
// leaves alone what may be rescued: the newest segments are the only copy of their
// records.
func TestDamagedCheckpoints(t *testing.T) {
	fs := vfs.NewMem()
	n, _, _, _ := loaded(t, fs, 4)
	list := func(dir string) []string {
		names, err := fs.List(path.Join("data/p1", dir))
		must(t, err)
		return names
	}
	segments, keys := list("segments"), list("keys")
	for _, name := range list("checkpoints") {
		spoil(t, fs, path.Join("data/p1/checkpoints", name))
	}
	for range 2 {
		if _, err := n.tryOpen(); err == nil {
			t.Fatal("it opened")
		}
		must(t, n.wal.Close())
	}
	if after := list("segments"); !slices.Equal(segments, after) {
		t.Fatalf("of the segments %q there are %q", segments, after)
	}
	if after := list("keys"); !slices.Equal(keys, after) {
		t.Fatalf("of the keyed state %q there is %q", keys, after)
	}
}

// TestKeyedDeltas: a checkpoint writes what has changed; what the files take in all
// stays in proportion to the keys; none stays that no checkpoint names.
func TestKeyedDeltas(t *testing.T) {
	const keys, size = 2000, 200
	fs := vfs.NewMem()
	n := newNode(t, fs, "data")
	g := n.open()
	want := map[string]string{}
	put := func(from, to int, mark byte) {
		var list []KV
		for i := from; i < to; i++ {
			key, value := fmt.Sprintf("key %06d", i%keys), bytes.Repeat([]byte{mark}, size)
			want[key] = string(value)
			list = append(list, KV{Key: []byte(key), Value: value})
		}
		must(t, g.Put(soon(t), list))
	}
	put(0, keys, 'a')
	checkpoint := func() keyChain {
		made := g.Metrics().Checkpoints.Load()
		g.sealer.ask()
		for g.Metrics().Checkpoints.Load() == made {
			must(t, g.Put(soon(t), nil))
		}
		g.keyed.mu.Lock()
		defer g.keyed.mu.Unlock()
		return g.keyed.chain
	}
	base := checkpoint()
	if len(base) != 1 || base[0].Kind != keyfile.Base || base[0].Size < keys*size {
		t.Fatalf("%+v", base)
	}
	if again := checkpoint(); len(again) != 1 || again[0] != base[0] {
		t.Fatalf("nothing has changed: %+v, then %+v", base, again)
	}
	var written int64
	bases := 0
	const rounds = 120
	for i := range rounds {
		put(i*100, i*100+100, byte('b'+i%20))
		if i%10 == 0 {
			key := fmt.Sprintf("key %06d", i*100%keys)
			must(t, g.Put(soon(t), []KV{{Key: []byte(key)}}))
			delete(want, key)
		}
		chain := checkpoint()
		last := chain[len(chain)-1]
		written += last.Size
		if last.Kind == keyfile.Base {
			bases++
		} else if last.Size > 2*100*size {
			t.Fatalf("a delta of %d bytes for 100 keys", last.Size)
		}
		if all := chain.size(); all > 3*base[0].Size {
			t.Fatalf("%d bytes for %d keys of %d", all, keys, size)
		}
	}
	if net := int64(rounds * 100 * size); written > 3*net || bases == 0 {
		t.Errorf("%d bytes written for %d, %d bases", written, net, bases)
	}
	names, err := fs.List("data/p1/keys")
	must(t, err)
	if len(names) > maxChain {
		t.Errorf("files stay: %v", names)
	}
	n.close(g)
	must(t, n.kv.Clear(nil))
	g = n.open()
	defer n.close(g)
	sameKeys(t, g, want)
}
