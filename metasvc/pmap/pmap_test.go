package pmap

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMap compares with a built-in map, in all snapshots of a history.
func TestMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type snapshot struct {
			m    Map[int]
			want map[string]int
		}
		now := snapshot{want: map[string]int{}}
		history := []snapshot{now}
		key := rapid.StringOfN(rapid.RuneFrom([]rune("ab\x00é")), 0, 4, -1)
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			next := snapshot{now.m, maps.Clone(now.want)}
			switch k := key.Draw(t, "key"); rapid.IntRange(0, 3).Draw(t, "op") {
			case 0, 1:
				next.m = next.m.Put(k, i)
				next.want[k] = i
			case 2:
				next.m = next.m.Delete(k)
				delete(next.want, k)
			case 3:
				next.m = next.m.DeletePrefix(k)
				maps.DeleteFunc(next.want, func(o string, _ int) bool { return strings.HasPrefix(o, k) })
			}
			now = next
			history = append(history, now)
		}
		prefix := key.Draw(t, "prefix")
		for _, s := range history {
			check(t, s.m, s.want, prefix)
		}
	})
}

func check(t *rapid.T, m Map[int], want map[string]int, prefix string) {
	if m.Len() != len(want) {
		t.Fatalf("length %d, want %d", m.Len(), len(want))
	}
	var keys, values []string
	got := map[string]int{}
	m.Walk("", func(k string, v int) bool {
		keys = append(keys, k)
		got[k] = v
		return true
	})
	if !maps.Equal(got, want) || !slices.IsSorted(keys) {
		t.Fatalf("got %v, want %v", got, want)
	}
	m.Each(func(int) { values = append(values, "") })
	if len(values) != len(want) {
		t.Fatalf("Each calls %d times", len(values))
	}
	under := 0
	for k, v := range want {
		if g, ok := m.Get(k); !ok || g != v || !m.Has(k) {
			t.Fatalf("%q is %d, %v, want %d", k, g, ok, v)
		}
		if strings.HasPrefix(k, prefix) {
			under++
		}
	}
	n := 0
	m.Walk(prefix, func(k string, _ int) bool { n++; return strings.HasPrefix(k, prefix) })
	if n != under || m.HasPrefix(prefix) != (under > 0) {
		t.Fatalf("%d under %q, want %d", n, prefix, under)
	}
}

// TestMapIsBalanced: thousands of entries, put in order or at random and deleted
// again, keep nodes of few entries at one depth, and old maps as they were.
func TestMapIsBalanced(t *testing.T) {
	for _, order := range []string{"ascending", "descending", "random"} {
		t.Run(order, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			keys := make([]string, 5000)
			for i := range keys {
				keys[i] = fmt.Sprintf("%06d", i)
			}
			switch order {
			case "descending":
				slices.Reverse(keys)
			case "random":
				rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			}
			var m Map[int]
			for i, k := range keys {
				m = m.Put(k, i)
			}
			whole(t, m, len(keys))
			if order == "ascending" && leaves(m.root) > len(keys)/(most-1)+1 {
				t.Errorf("%d leaves for %d keys that came in order", leaves(m.root), len(keys))
			}
			full := m
			rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for n, k := range keys {
				if m = m.Delete(k); m.Has(k) {
					t.Fatalf("%s is still there", k)
				}
				if n%500 == 0 {
					whole(t, m, len(keys)-n-1)
				}
			}
			whole(t, full, len(keys))
			if m.root != nil || m.Len() != 0 {
				t.Fatalf("%d left", m.Len())
			}
		})
	}
}

// whole checks the shape of a map and that its keys ascend.
func whole(t *testing.T, m Map[int], want int) {
	t.Helper()
	last, n := "", 0
	m.Walk("", func(k string, _ int) bool {
		if k <= last {
			t.Fatalf("%q after %q", k, last)
		}
		last, n = k, n+1
		return true
	})
	if n != want || m.Len() != want {
		t.Fatalf("%d entries, Len %d, want %d", n, m.Len(), want)
	}
	depths := make(map[int]bool)
	shape(t, m.root, 0, depths)
	if len(depths) > 1 {
		t.Fatalf("leaves at depths %v", depths)
	}
}

func shape(t *testing.T, n *node[int], depth int, depths map[int]bool) {
	if n == nil {
		return
	}
	if len(n.items) == 0 || len(n.items) > most || n.kids != nil && len(n.kids) != len(n.items)+1 {
		t.Fatalf("a node of %d items and %d children", len(n.items), len(n.kids))
	}
	if n.kids == nil {
		depths[depth] = true
	}
	for _, kid := range n.kids {
		shape(t, kid, depth+1, depths)
	}
}

func leaves(n *node[int]) int {
	if n.kids == nil {
		return 1
	}
	sum := 0
	for _, kid := range n.kids {
		sum += leaves(kid)
	}
	return sum
}

func BenchmarkPut(b *testing.B) {
	keys := make([]string, 100_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range keys {
		keys[i] = fmt.Sprintf("%016x", rng.Uint64())
	}
	b.ReportAllocs()
	for i := 0; i < b.N; {
		var m Map[*int]
		for _, k := range keys {
			m = m.Put(k, nil)
			i++
		}
	}
}

func BenchmarkGet(b *testing.B) {
	keys := make([]string, 100_000)
	rng := rand.New(rand.NewPCG(1, 2))
	var m Map[*int]
	for i := range keys {
		keys[i] = fmt.Sprintf("%016x", rng.Uint64())
		m = m.Put(keys[i], nil)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		m.Get(keys[i*7919%len(keys)])
	}
}
