package sharegroup

import (
	"math/rand/v2"
	"testing"
)

// commit logs and applies what a window has gathered.
func commit(w *Window, s *Settlement) {
	for w.Take(s) {
		w.Apply(s)
	}
}

// BenchmarkInOrder acquires and accepts one record at a time, 1000 in flight,
// with a settlement every 256.
func BenchmarkInOrder(b *testing.B) {
	w := New(0)
	w.Lead(1, 1<<40, Policy{})
	var s Settlement
	runs := make([]Run, 0, 16)
	tk := Taker{Member: 1}
	w.Acquire(runs, tk, 1000, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		runs = w.Acquire(runs[:0], tk, 1, 0)
		if _, err := w.Settle(Ack{Member: 1, First: int64(i), Last: int64(i), Outcome: Accept}, 0); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			commit(w, &s)
		}
	}
}

// BenchmarkTimed is BenchmarkInOrder with timed locks.
func BenchmarkTimed(b *testing.B) {
	w := New(0)
	w.Lead(1, 1<<40, Policy{})
	var s Settlement
	runs := make([]Run, 0, 16)
	tk := Taker{Member: 1, Lock: 30e9}
	w.Acquire(runs, tk, 1000, 0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		runs = w.Acquire(runs[:0], tk, 1, int64(i))
		if _, err := w.Settle(Ack{Member: 1, First: int64(i), Last: int64(i), Outcome: Accept}, 0); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			commit(w, &s)
		}
	}
}

// BenchmarkMultiple acquires 500 records and accepts them with one range; ns/op is
// per record.
func BenchmarkMultiple(b *testing.B) {
	const n = 500
	w := New(0)
	w.Lead(1, 1<<40, Policy{})
	var s Settlement
	runs := make([]Run, 0, 16)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%n == 0 {
			runs = w.Acquire(runs[:0], Taker{Member: 1}, n, 0)
			if _, err := w.Settle(Ack{Member: 1, First: runs[0].First, Last: runs[0].Last, Outcome: Accept}, 0); err != nil {
				b.Fatal(err)
			}
			commit(w, &s)
		}
	}
}

// BenchmarkOutOfOrder settles a random one of depth records in flight, and
// acquires the next.
func BenchmarkOutOfOrder(b *testing.B) {
	for _, c := range []struct {
		name  string
		depth int
	}{{"1k", 1000}, {"1M", 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			w := New(0)
			w.Lead(1, 1<<40, Policy{})
			var s Settlement
			runs := make([]Run, 0, 16)
			tk := Taker{Member: 1}
			w.Acquire(runs, tk, c.depth, 0)
			held := make([]int64, c.depth)
			for i := range held {
				held[i] = int64(i)
			}
			rnd := rand.New(rand.NewPCG(1, 2))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				k := rnd.IntN(c.depth)
				if _, err := w.Settle(Ack{Member: 1, First: held[k], Last: held[k], Outcome: Accept}, 0); err != nil {
					b.Fatal(err)
				}
				runs = w.Acquire(runs[:0], tk, 1, 0)
				held[k] = runs[0].First
				if i%256 == 255 {
					commit(w, &s)
				}
			}
		})
	}
}

// BenchmarkStuckHead is BenchmarkInOrder with a million in flight and a record at
// the head that is never settled.
func BenchmarkStuckHead(b *testing.B) {
	w := New(0)
	w.Lead(1, 1<<40, Policy{})
	var s Settlement
	runs := make([]Run, 0, 16)
	tk := Taker{Member: 1}
	w.Acquire(runs, tk, 1<<20, 0)
	b.ReportAllocs()
	for i := int64(1); b.Loop(); i++ {
		runs = w.Acquire(runs[:0], tk, 1, 0)
		if _, err := w.Settle(Ack{Member: 1, First: i, Last: i, Outcome: Accept}, 0); err != nil {
			b.Fatal(err)
		}
		if i%256 == 255 {
			commit(w, &s)
		}
	}
}

// BenchmarkGiveBack gives one record back and hands it out again, over and over.
func BenchmarkGiveBack(b *testing.B) {
	w := New(0)
	w.Lead(1, 1<<40, Policy{CountFailed: true})
	runs := make([]Run, 0, 16)
	tk := Taker{Member: 1}
	w.Acquire(runs, tk, 1000, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Settle(Ack{Member: 1, First: 500, Last: 500, Outcome: Fail}, 0); err != nil {
			b.Fatal(err)
		}
		runs = w.Acquire(runs[:0], tk, 1, 0)
	}
}

// BenchmarkMillion acquires a million records, gives all back, acquires them
// again and accepts them; ns/op is for all of that.
func BenchmarkMillion(b *testing.B) {
	const n = 1 << 20
	var s Settlement
	b.ReportAllocs()
	for b.Loop() {
		w := New(0)
		w.Lead(1, n, Policy{})
		w.Acquire(nil, Taker{Member: 1}, n, 0)
		if got := w.ReleaseAll(1, true); got != n {
			b.Fatal(got)
		}
		w.Acquire(nil, Taker{Member: 1}, n, 0)
		if _, err := w.Settle(Ack{Member: 1, First: 0, Last: n, Outcome: Accept}, 0); err != nil {
			b.Fatal(err)
		}
		commit(w, &s)
		if w.Floor() != n {
			b.Fatal(w.Floor())
		}
	}
}

// BenchmarkThreeMembers pumps records to three consumers in turn, which accept
// them one by one; ns/op is per record.
func BenchmarkThreeMembers(b *testing.B) { benchmarkGroup(b, 3) }

// BenchmarkOneMember is BenchmarkThreeMembers with one.
func BenchmarkOneMember(b *testing.B) { benchmarkGroup(b, 1) }

func benchmarkGroup(b *testing.B, members int) {
	g := NewGroup(Policy{})
	w := New(0)
	g.Lead(0, w, 1, 0)
	for range members {
		id, err := g.Join(Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := g.Grant(id, 1000); err != nil {
			b.Fatal(err)
		}
	}
	var s Settlement
	end := int64(0)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%100 > 0 {
			continue
		}
		end += 100
		w.Extend(end)
		outs, _ := g.Pump(0, 1000)
		for _, out := range outs {
			for _, r := range out.Runs {
				if _, err := g.Settle(0, Ack{Member: out.Member, First: r.First, Last: r.Last, Outcome: Accept}, 0); err != nil {
					b.Fatal(err)
				}
				_ = g.Grant(out.Member, r.Len())
			}
		}
		for w := range g.Dirty() {
			commit(w, &s)
		}
	}
}

// BenchmarkIdlePump pumps a group with a backlog but without credit.
func BenchmarkIdlePump(b *testing.B) {
	g := NewGroup(Policy{})
	g.Lead(0, New(0), 1, 1000)
	b.ReportAllocs()
	for b.Loop() {
		g.Pump(0, 100)
	}
}
