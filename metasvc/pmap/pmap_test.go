package pmap

import (
	"maps"
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
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
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
