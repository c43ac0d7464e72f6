package broker

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// TestGroupSet: few or many groups of a topic are found, replaced and deleted alike.
func TestGroupSet(t *testing.T) {
	var s groupSet
	make := func(i int) *group {
		return &group{spec: catalog.Group{Address: kernel.GroupAddress{Group: fmt.Sprint("g", i)}}}
	}
	const n = 3 * fewGroups
	want := map[string]*group{}
	check := func() {
		t.Helper()
		seen := 0
		for g := range s.all() {
			if want[g.spec.Address.Group] != g {
				t.Fatalf("%s is another one", g.spec.Address.Group)
			}
			seen++
		}
		if seen != len(want) || s.len() != len(want) || s.get("none") != nil {
			t.Fatalf("%d of %d groups, len %d", seen, len(want), s.len())
		}
		for name, g := range want {
			if s.get(name) != g {
				t.Fatalf("%s is not found", name)
			}
		}
	}
	for round := range 2 {
		for i := range n {
			for range 2 { // the second takes the place of the first
				g := make(i)
				s.put(g)
				want[g.spec.Address.Group] = g
			}
			check()
		}
		for i := range n - round {
			name := fmt.Sprint("g", (i*7)%n)
			s.delete(name)
			s.delete(name)
			delete(want, name)
			check()
		}
	}
}
