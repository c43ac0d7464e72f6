package cluster

import (
	"fmt"
	"slices"
	"testing"
)

// TestFiveNodes: three of five vote on data, all in the catalog; when one of the three is
// removed another one takes its place.
func TestFiveNodes(t *testing.T) {
	first, err := start(t, newDir("1"), "")
	if err != nil {
		t.Fatal(err)
	}
	list := []*member{first}
	for i := 2; i <= 5; i++ {
		m, err := start(t, newDir(fmt.Sprint(i)), "", first.address())
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	voters := func(m *member, group int) []string { return m.node.Status().Groups[group].Voters }
	until(t, "five voters in the catalog, three of data", func() bool {
		for _, m := range list {
			if len(voters(m, 0)) != 5 || len(voters(m, 1)) != 3 {
				return false
			}
		}
		return true
	})
	gone := voters(first, 1)[2]
	at := slices.IndexFunc(list, func(m *member) bool { return m.dir.identity.Node == gone })
	if err := list[(at+1)%5].node.Remove(t.Context(), gone, false); err != nil {
		t.Fatal(err)
	}
	rest := slices.Delete(slices.Clone(list), at, at+1)
	until(t, "another one votes", func() bool {
		for _, m := range rest {
			if len(voters(m, 0)) != 4 || len(voters(m, 1)) != 3 || slices.Contains(voters(m, 1), gone) {
				return false
			}
		}
		return true
	})
	propose(t, rest...)
}
