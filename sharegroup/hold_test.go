package sharegroup

import (
	"testing"

	"pgregory.net/rapid"
)

// hold hands a record to a member by its offset.
func (c *crowd) hold(t *rapid.T) {
	id, ok := c.member(t)
	if !ok || c.options[id].Auto || c.options[id].Lock > 0 {
		return
	}
	at := place{partition: rapid.Int32Range(0, int32(len(c.ends)-1)).Draw(t, "partition")}
	at.offset = rapid.Int64Range(0, c.ends[at.partition]+2).Draw(t, "offset")
	want := at.offset < c.ends[at.partition] && !c.done[at] && c.holder[at] == 0
	if got := c.g.Hold(id, at.partition, at.offset); got != want {
		t.Fatalf("hold %v: %v, want %v", at, got, want)
	}
	if want {
		c.holder[at] = id
	}
}

// pass gives a record from one member to another.
func (c *crowd) pass(t *rapid.T) {
	to, ok := c.member(t)
	if !ok || c.options[to].Auto || c.options[to].Lock > 0 {
		return
	}
	for at, from := range c.lowest() {
		if !c.g.Pass(from, to, at.partition, at.offset) {
			t.Fatalf("%v was not passed from %d to %d", at, from, to)
		}
		if from != to && c.g.Pass(from, to, at.partition, at.offset) {
			t.Fatalf("%v was passed twice", at)
		}
		c.holder[at] = to
	}
}

// lowest returns the first record that is held, with its holder.
func (c *crowd) lowest() map[place]MemberID {
	var low *place
	for at := range c.holder {
		if low == nil || at.partition < low.partition || at.partition == low.partition && at.offset < low.offset {
			low = &place{at.partition, at.offset}
		}
	}
	if low == nil {
		return nil
	}
	return map[place]MemberID{*low: c.holder[*low]}
}

// TestHold: a record is taken by its offset before others get any, what lies before
// it goes out in order, and the holder keeps it when the one it came from leaves.
func TestHold(t *testing.T) {
	g := NewGroup(Policy{})
	w := New(10)
	g.Lead(3, w, 1, 100)
	a, _ := g.Join(Options{})
	keep, _ := g.Join(Options{Pull: true})
	for _, offset := range []int64{50, 12} {
		if !g.Hold(keep, 3, offset) || g.Hold(a, 3, offset) {
			t.Fatalf("%d", offset)
		}
	}
	for _, offset := range []int64{9, 100} {
		if g.Hold(keep, 3, offset) {
			t.Fatalf("%d is not there", offset)
		}
	}
	if w.InFlight() != 2 || w.Ready() != 88 {
		t.Fatal(w.InFlight(), w.Ready())
	}
	if err := g.Grant(a, 1000); err != nil {
		t.Fatal(err)
	}
	next := int64(10)
	for more := true; more; {
		var outs []Handout
		outs, more = g.Pump(0, 7)
		for _, out := range outs {
			for _, r := range out.Runs {
				for o := r.First; o <= r.Last; o++ {
					for next == 12 || next == 50 {
						next++
					}
					if o != next || r.Redelivered != (o < 50) {
						t.Fatalf("%+v, want %d", r, next)
					}
					next++
				}
			}
		}
	}
	if next != 100 || !g.Pass(a, keep, 3, 20) || g.Pass(a, keep, 3, 12) {
		t.Fatal(next)
	}
	if n, err := g.Leave(a, true); n != 87 || err != nil {
		t.Fatal(n, err)
	}
	if g.Held(keep) != 3 || w.Ready() != 87 {
		t.Fatal(g.Held(keep), w.Ready())
	}
	if res, err := g.Settle(3, Ack{Member: keep, First: 0, Last: 99, Outcome: Accept}, 0); res.Records != 3 || err != nil {
		t.Fatal(res, err)
	}
}
