package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// TestCoordinator: groups are shared out evenly, and when a node goes or comes only those
// of that node change theirs.
func TestCoordinator(t *testing.T) {
	nodes := []Tenure{{"1-aaaa", 1}, {"2-bbbb", 2}, {"3-cccc", 3}}
	count, moved := map[Tenure]int{}, 0
	const groups = 3000
	for i := range groups {
		name := fmt.Sprint("group-", i)
		at := Coordinator(nodes, "/", name)
		count[at]++
		now := Coordinator([]Tenure{nodes[0], nodes[2]}, "/", name)
		if at != nodes[1] && now != at {
			t.Fatalf("%s has moved from %v to %v, and both are there", name, at, now)
		}
		if now != at {
			moved++
		}
		if Coordinator([]Tenure{nodes[2], nodes[0], nodes[1]}, "/", name) != at || Ranked(nodes, "/", name)[0] != at.Node {
			t.Fatal("the order of the nodes counts")
		}
	}
	for _, n := range nodes {
		if count[n] < groups/4 || count[n] > groups*5/12 {
			t.Errorf("%v has %d of %d", n, count[n], groups)
		}
	}
	if moved != count[nodes[1]] {
		t.Errorf("%d have moved, %d had to", moved, count[nodes[1]])
	}
}

// TestTenures: who stays goes on, and who comes back begins anew: also at the next facade.
func TestTenures(t *testing.T) {
	var o tenures
	for _, step := range []struct {
		nodes []string
		want  []Tenure
	}{
		{[]string{"a", "b"}, []Tenure{{"a", 1}, {"b", 2}}}, {[]string{"b"}, []Tenure{{"b", 2}}},
		{[]string{"a", "b", "c"}, []Tenure{{"a", 3}, {"b", 2}, {"c", 4}}}, {[]string{"a", "b", "c"}, []Tenure{{"a", 3}, {"b", 2}, {"c", 4}}},
	} {
		if o.last, o.list = o.next(step.nodes); !slices.Equal(o.list, step.want) {
			t.Errorf("%v: %v, want %v", step.nodes, o.list, step.want)
		}
	}

	n, b := serveNode(t)
	self := n.ID()
	ask := func(b *Broker, want ...Tenure) {
		t.Helper()
		if got, err := b.Coordinators(soon(t), "kafka"); err != nil || !slices.Equal(got.Nodes, want) {
			t.Errorf("%v %v, want %v", got, err, want)
		}
	}
	ask(b, Tenure{self, 0}) // alone from the beginning
	must(t, b.durable.Put(soon(t), []placement.KV{{Key: tenureKey("kafka"), Value: appendTenures(nil, 9, []Tenure{{"gone", 9}, {self, 7}})}}))
	b = serveAgain(t, n)
	ask(b, Tenure{self, 7})
	b = serveAgain(t, n)
	ask(b, Tenure{self, 7})
	c := connect(t, b)
	c.about.Protocol = "kafka"
	must(t, c.Coordinates(soon(t), Tenure{self, 7}, "g"))
	for _, by := range []Tenure{{self, 6}, {"gone", 9}, {}} {
		wantCode(t, c.Coordinates(soon(t), by, "g"), kernel.CodeFenced)
	}
	must(t, b.durable.Put(soon(t), []placement.KV{{Key: tenureKey("kafka"), Value: []byte{99}}}))
	b = serveAgain(t, n)
	if _, err := b.Coordinators(soon(t), "kafka"); err == nil {
		t.Error("a version that is not known was read")
	}
}
