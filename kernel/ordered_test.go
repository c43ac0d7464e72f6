package kernel

import (
	"slices"
	"testing"
)

// TestOrdered: what is left is listed as it came, and what comes again is behind.
func TestOrdered(t *testing.T) {
	var set Ordered[int]
	var all []*int
	for i := range 100 {
		all = append(all, new(i))
		set.Add(all[i])
	}
	set.Remove(new(7))
	for _, v := range all[10:20] {
		set.Remove(v)
	}
	set.Remove(all[0])
	set.Add(all[0])
	if set.Has(func(v *int) bool { return *v == 15 }) || !set.Has(func(v *int) bool { return *v == 25 }) {
		t.Error("what was taken out is there, or what was not is not")
	}
	want := slices.Concat(all[1:10], all[20:], all[:1])
	if got := set.List(); !slices.Equal(got, want) || set.Len() != len(want) {
		t.Errorf("%d, want %d in their order", len(got), len(want))
	}
}
