package placement

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestSettleOfBeforeARewind: what a member says of a record that it had got before the
// group was moved does not settle the record that it has got again since.
func TestSettleOfBeforeARewind(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer func() { n.close(g) }()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 6)
	to := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, to)
	m.Credit(100)
	to.wait(t, 6)
	m.Settle(kernel.Accept, 0, 0, 1) // 2-5 are held
	want := func(step string, ready, held int64) {
		t.Helper()
		barrier(t, g)
		if r, h, _ := g.Count(id); r != ready || h != held {
			t.Fatalf("%s: %d ready, %d held, want %d and %d", step, r, h, ready, held)
		}
	}
	want("before", 0, 4)
	must(t, g.Rewind(soon(t), id, kernel.Position{Kind: kernel.AtStart}))
	to.wait(t, 12)
	want("moved", 0, 6)
	m.Settle(kernel.Accept, 0, 2, 3)
	want("old ones accepted", 0, 6)
	m.Settle(kernel.Release, 0, 4, 4)
	want("an old one given back", 0, 6)
	m.Settle(kernel.Accept, 0, 0, 3) // new ones
	want("new ones accepted", 0, 2)
	m.Settle(kernel.Accept, 0, 4, 5) // 4 is new, 5 old
	want("one of each", 0, 1)
	m.Settle(kernel.Accept, 0, 5, 5)
	want("the last", 0, 0)

	// Moved twice, nothing settled: two old ones of each.
	for i := range 3 {
		must(t, g.Rewind(soon(t), id, kernel.Position{Kind: kernel.AtStart}))
		to.wait(t, 18+6*i)
	}
	m.Settle(kernel.Accept, 0, 0, 5)
	m.Settle(kernel.Accept, 0, 0, 5)
	want("the old ones of two moves", 0, 6)
	m.Settle(kernel.Accept, 0, 0, 5)
	want("all", 0, 0)
	m.Leave()
}

// TestGhosts compares lay with a count for each offset.
func TestGhosts(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	for range 2000 {
		g := ghosts{}
		count := make(map[int64]uint32)
		for range rng.Intn(12) {
			off := rng.Int63n(20)
			g[kernel.Place{Offset: off}]++
			g[kernel.Place{Partition: 1, Offset: off}]++
			count[off]++
		}
		first := rng.Int63n(20)
		a := ack{first: first, last: first + rng.Int63n(20)}
		var got, want []int64
		g.lay(&a, func(r *ack) {
			for off := r.first; off <= r.last; off++ {
				got = append(got, off)
			}
		})
		for off := a.first; off <= a.last; off++ {
			if count[off] == 0 {
				want = append(want, off)
			} else {
				count[off]--
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d-%d: left %d, want %d", a.first, a.last, got, want)
		}
		for off := range int64(40) {
			if g[kernel.Place{Offset: off}] != count[off] {
				t.Fatalf("offset %d: %d ghosts, want %d", off, g[kernel.Place{Offset: off}], count[off])
			}
		}
	}
}
