package mqtt

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// window against a model: identifiers are unique, the client never has more
// than its maximum, nothing parked is lost or reordered, and whoever is owed
// something gets credit in the end.
func TestWindowModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		w.init(rapid.IntRange(1, 40).Draw(t, "quota"))
		type item struct {
			f *feed
			n int64
		}
		var feeds []*feed
		var parkedItems []item
		wire2 := map[uint16]item{}
		credits := map[*feed]int{}
		feedOf := map[member]*feed{}
		var next int64
		pumpGrants := func() {
			for {
				f, n := w.grant()
				if f == nil {
					return
				}
				if n <= 0 {
					t.Fatalf("granted %d", n)
				}
				credits[f] += n
			}
		}
		send := func(f *feed, n int64) {
			id := w.take(f, 1, 0, n)
			if _, dup := wire2[id]; dup || id == 0 {
				t.Fatalf("identifier %d twice", id)
			}
			wire2[id] = item{f, n}
			if len(wire2) > w.quota {
				t.Fatalf("%d in flight of %d", len(wire2), w.quota)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				if len(feeds) < 10 {
					f := &feed{qos: 1, member: &fakeMember{}}
					feeds = append(feeds, f)
					feedOf[f.member] = f
					w.join(f)
					pumpGrants()
				}
			},
			"deliver": func(t *rapid.T) {
				if len(feeds) == 0 {
					return
				}
				f := rapid.SampledFrom(feeds).Draw(t, "feed")
				deliver := func(f *feed, n int) {
					for range n {
						credits[f]--
						next++
						w.delivered(f, 100)
						if w.open() {
							send(f, next)
						} else {
							w.park(parked{feed: f, offset: next})
							parkedItems = append(parkedItems, item{f, next})
						}
					}
				}
				deliver(f, min(credits[f], rapid.IntRange(1, 50).Draw(t, "n")))
				for open := slices.Clone(w.recall(f, false)); len(open) > 0; open = open[1:] {
					r, f := open[0], feedOf[open[0].to]
					credits[f] += r.n
					if rapid.IntRange(0, 9).Draw(t, "late") == 0 {
						deliver(f, -r.n) // it was on its way
						open = append(open, w.recall(f, false)...)
					}
				}
				if w.inFlight+w.parkedMember >= w.quota && w.credit > 0 {
					t.Fatalf("a full window leaves a credit of %d", w.credit)
				}
				pumpGrants()
			},
			"ack": func(t *rapid.T) {
				if len(wire2) == 0 {
					return
				}
				id := rapid.SampledFrom(slices.Sorted(func(yield func(uint16) bool) {
					for k := range wire2 {
						if !yield(k) {
							return
						}
					}
				})).Draw(t, "id")
				s, ok := w.free(id)
				if !ok || s.feed != wire2[id].f || s.offset != wire2[id].n {
					t.Fatalf("freed %+v, want %+v", s, wire2[id])
				}
				delete(wire2, id)
				for {
					p, ok := w.unpark()
					if !ok {
						break
					}
					if p.offset != parkedItems[0].n {
						t.Fatalf("unparked %d, want %d", p.offset, parkedItems[0].n)
					}
					parkedItems = parkedItems[1:]
					send(p.feed, p.offset)
				}
				pumpGrants()
			},
			"leave": func(t *rapid.T) {
				if len(feeds) < 2 {
					return
				}
				i := rapid.IntRange(0, len(feeds)-1).Draw(t, "i")
				f := feeds[i]
				feeds = slices.Delete(feeds, i, i+1)
				w.leave(f)
				f.gone = true
				delete(credits, f)
				pumpGrants()
			},
			"": func(t *rapid.T) {
				sum := 0
				for _, f := range feeds {
					if f.credit != credits[f] {
						t.Fatalf("credit %d, books say %d", credits[f], f.credit)
					}
					sum += f.credit
				}
				if sum != w.credit || w.inFlight != len(wire2) || w.parkedMember != len(parkedItems) {
					t.Fatalf("books: credit %d/%d in flight %d/%d parked %d/%d", w.credit, sum, w.inFlight, len(wire2), w.parkedMember, len(parkedItems))
				}
				for _, f := range feeds { // a member may starve only behind a full window
					if f.credit <= 0 && w.inFlight+w.parkedMember < w.quota {
						t.Fatalf("member without credit while %d of %d are in flight", w.inFlight, w.quota)
					}
				}
				if len(parkedItems) > 0 && w.inFlight < w.quota {
					t.Fatal("parked beside a free slot")
				}
			},
		})
	})
}
