package sharegroup

import (
	"bytes"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// history runs a window, a follower and the model through the same events.
type history struct {
	t       *rapid.T
	w, f    *Window
	m       *model
	now     int64
	end     int64
	term    uint64
	strict  bool
	flights []Settlement // taken, not applied
	applied []Settlement
	everOut map[int64]bool // handed out, by any leader
}

func drawPolicy(t *rapid.T) Policy {
	p := Policy{
		CountFailed: rapid.Bool().Draw(t, "countFailed"),
		DeadLetter:  rapid.Bool().Draw(t, "deadLetter"),
		MaxAcquired: rapid.SampledFrom([]int{0, 0, 1, 7, 50}).Draw(t, "maxAcquired"),
		ReadAhead:   rapid.SampledFrom([]int{0, 1, 5, 200}).Draw(t, "readAhead"),
	}
	p.Limit.On = rapid.SampledFrom([]Counter{NoLimit, OnFailed, OnAcquired}).Draw(t, "limitOn")
	p.Limit.Max = rapid.Uint32Range(1, 4).Draw(t, "limit")
	return p
}

func TestWindowAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{t: t, w: New(0), f: New(0), m: newModel(), everOut: map[int64]bool{}}
		h.m.policy = drawPolicy(t)
		h.strict = h.m.policy.ReadAhead > 0
		h.lead()
		t.Repeat(map[string]func(*rapid.T){
			"":         func(t *rapid.T) { h.t = t; h.check() },
			"extend":   h.extend,
			"acquire":  h.acquire,
			"acquire2": h.acquire,
			"settle":   h.settle,
			"settle2":  h.settle,
			"settleIn": h.settleInOrder,
			"leave":    h.leave,
			"expire":   h.expire,
			"hole":     h.hole,
			"purge":    h.purge,
			"oldest":   h.buryOldest,
			"policy":   h.policy,
			"trim":     h.trim,
			"seek":     h.seek,
			"take":     h.take,
			"apply":    h.apply,
			"again":    h.applyAgain,
			"bury":     h.bury,
			"exact":    h.exact,
			"calm":     h.calm,
			"stop":     h.stop,
			"crash":    h.crash,
			"snapshot": h.snapshot,
		})
		h.drain()
	})
}

func (h *history) lead() {
	h.term++
	h.w.Lead(h.term, h.end, h.m.policy)
	h.m.lead(h.term, h.end, h.m.policy)
}

func (h *history) extend(t *rapid.T) {
	h.end += rapid.Int64Range(1, 90).Draw(t, "n")
	h.w.Extend(h.end)
	h.m.extend(h.end)
}

var drawMember = rapid.Custom(func(t *rapid.T) MemberID { return MemberID(rapid.IntRange(1, 3).Draw(t, "member")) })

func (h *history) acquire(t *rapid.T) {
	taker := Taker{Member: drawMember.Draw(t, "m")}
	switch taker.Member {
	case 2:
		taker.Lock = rapid.Int64Range(1, 30).Draw(t, "lock")
	case 3:
		taker.Auto = rapid.IntRange(0, 3).Draw(t, "auto") == 0
	}
	n := rapid.IntRange(1, 40).Draw(t, "n")
	could := h.w.HasAvailable()
	want := h.m.acquire(taker, n, h.now)
	got := h.w.Acquire(nil, taker, n, h.now)
	var flat []modelOut
	for _, r := range got {
		for o := r.First; o <= r.Last; o++ {
			flat = append(flat, modelOut{o, r.Acquired, r.Failed, r.Redelivered})
			if h.strict && h.everOut[o] && !r.Redelivered {
				t.Fatalf("offset %d was handed out before and is not marked", o)
			}
			h.everOut[o] = true
		}
	}
	if !slices.Equal(flat, want) {
		t.Fatalf("acquired %v, want %v", flat, want)
	}
	if len(got) > 0 && !could && !taker.Auto {
		t.Fatalf("HasAvailable was false")
	}
}

func (h *history) settle(t *rapid.T) {
	if h.end == 0 {
		return
	}
	a := Ack{
		Member:  drawMember.Draw(t, "m"),
		First:   rapid.Int64Range(0, h.end-1).Draw(t, "first"),
		Outcome: Outcome(rapid.IntRange(int(Accept), int(Renew)).Draw(t, "outcome")),
		Exact:   rapid.IntRange(0, 3).Draw(t, "exact") == 0,
	}
	if list := h.m.heldBy(a.Member); len(list) > 0 && rapid.Bool().Draw(t, "own") {
		a.First = rapid.SampledFrom(list).Draw(t, "held")
	}
	a.Last = a.First + rapid.SampledFrom([]int64{0, 0, 1, 5, 31, 100}).Draw(t, "span")
	a.Term = rapid.SampledFrom([]uint64{0, h.term, h.term, h.term - 1}).Draw(t, "term")
	if rapid.IntRange(0, 3).Draw(t, "acq") == 0 {
		a.Acquisition = rapid.Uint64Range(1, h.m.acquisition+1).Draw(t, "acquisition")
	}
	h.ack(a)
}

// settleInOrder accepts what a member holds, lowest first.
func (h *history) settleInOrder(t *rapid.T) {
	id := drawMember.Draw(t, "m")
	if list := h.m.heldBy(id); len(list) > 0 {
		k := rapid.IntRange(0, len(list)-1).Draw(t, "k")
		h.ack(Ack{Member: id, First: list[0], Last: list[k], Outcome: Accept})
	}
}

func (h *history) ack(a Ack) {
	want := h.m.settle(a, h.now)
	got, err := h.w.Settle(a, h.now)
	if got.Records != want || (err == nil) != (want > 0) {
		h.t.Fatalf("%+v: %d records, %v; want %d", a, got.Records, err, want)
	}
}

func (h *history) leave(t *rapid.T) {
	id, counted := drawMember.Draw(t, "m"), rapid.Bool().Draw(t, "counted")
	if got, want := h.w.ReleaseAll(id, counted), h.m.releaseAll(id, counted); got != want {
		t.Fatalf("released %d, want %d", got, want)
	}
}

func (h *history) expire(t *rapid.T) {
	h.now += rapid.Int64Range(0, 20).Draw(t, "dt")
	if got, want := h.w.Expire(h.now), h.m.expire(h.now); got != want {
		t.Fatalf("expired %d, want %d", got, want)
	}
}

func (h *history) drawSpan(t *rapid.T) (first, last int64) {
	first = rapid.Int64Range(0, h.end).Draw(t, "first")
	return first, first + rapid.Int64Range(0, 60).Draw(t, "span")
}

func (h *history) hole(t *rapid.T) {
	first, last := h.drawSpan(t)
	h.w.Hole(first, last)
	h.m.hole(first, last)
}

func (h *history) purge(t *rapid.T) {
	got, _ := h.w.Purge()
	if want := h.m.purge(); got != want {
		t.Fatalf("purged %d, want %d", got, want)
	}
}

// buryOldest expires records, or drops those beyond a length.
func (h *history) buryOldest(t *rapid.T) {
	below := rapid.Int64Range(0, h.end+5).Draw(t, "below")
	most := rapid.Int64Range(0, 70).Draw(t, "most")
	if most == 70 {
		most = math.MaxInt64
	}
	why := rapid.SampledFrom([]Reason{Expired, MaxLen}).Draw(t, "why")
	got, want := h.w.Bury(below, most, why), h.m.buryOldest(below, most, why)
	if got != want {
		t.Fatalf("buried %d, want %d", got, want)
	}
}

// policy changes what may change while the window leads.
func (h *history) policy(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
		return
	}
	p := drawPolicy(t)
	p.ReadAhead = h.m.policy.ReadAhead
	h.m.policy = p
	h.w.SetPolicy(p)
}

func (h *history) trim(t *rapid.T) {
	start := h.m.floor() + rapid.Int64Range(-3, 40).Draw(t, "start")
	h.end = max(h.end, start)
	h.w.TrimTo(start)
	h.f.TrimTo(start)
	h.m.trim(start)
}

func (h *history) seek(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "rarely") > 0 {
		return
	}
	s, err := h.w.SeekTo(rapid.Int64Range(0, h.end).Draw(t, "to"))
	if err != nil {
		t.Fatal(err)
	}
	h.flights = append(h.flights, s)
}

func (h *history) take(t *rapid.T) {
	pending := h.w.Pending()
	var s Settlement
	if h.w.Take(&s) != pending {
		t.Fatalf("Pending said %v", pending)
	}
	if !pending && len(h.m.accepted)+len(h.m.archived)+len(h.m.failing) > 0 {
		t.Fatalf("nothing to take")
	}
	if !pending {
		return
	}
	if wrong := h.m.take(&s); wrong != "" {
		t.Fatalf("%s: %+v", wrong, s)
	}
	var back Settlement
	if rest, err := DecodeSettlement(s.AppendTo(nil), &back); err != nil || len(rest) > 0 {
		t.Fatalf("decode: %v", err)
	}
	h.flights = append(h.flights, back)
}

// apply commits any of the settlements in flight: re-proposals change the order.
func (h *history) apply(t *rapid.T) {
	if n := len(h.flights); n > 0 {
		i := rapid.IntRange(0, min(n-1, 2)).Draw(t, "which")
		s := h.flights[i]
		h.flights = slices.Delete(h.flights, i, i+1)
		h.commit(s)
	}
}

func (h *history) applyAgain(t *rapid.T) {
	if len(h.applied) > 0 {
		s := rapid.SampledFrom(h.applied).Draw(t, "which")
		if !s.Seek {
			h.commit(s)
		}
	}
}

func (h *history) commit(s Settlement) {
	want := h.m.apply(&s)
	if a, b := h.w.Apply(&s), h.f.Apply(&s); a != want || b != want {
		h.t.Fatalf("apply %+v: %v and %v, want %v", s, a, b, want)
	}
	h.applied = append(h.applied, s)
}

// bury takes the dead and declares some of the dead letters safe.
func (h *history) bury(t *rapid.T) {
	got := h.w.TakeDead(nil)
	if !slices.Equal(got, h.m.dead) {
		t.Fatalf("dead %v, want %v", got, h.m.dead)
	}
	h.m.dead = nil
	for _, o := range slices.Sorted(maps.Keys(h.m.dying)) {
		if rapid.Bool().Draw(t, "safe") {
			h.w.Archive(o, o)
			if !h.m.settled[o] { // by a trim
				h.m.archived[o] = true
			}
			delete(h.m.dying, o)
		}
	}
}

// exact asks for an exact mark, whatever is going on.
func (h *history) exact(*rapid.T) { h.w.Exact() }

func (h *history) calm(t *rapid.T) {
	h.now += rapid.SampledFrom([]int64{0, 1, quickly, 100 * quickly}).Draw(t, "dt")
	h.w.Calm(h.now)
}

// stop is a planned end: the mark becomes exact, whatever is in flight and in
// whatever order that is applied, and the next leader marks exactly what may have
// been seen.
func (h *history) stop(t *rapid.T) {
	if !h.strict || rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
		return
	}
	h.flights = slices.DeleteFunc(h.flights, func(s Settlement) bool { return s.Seek })
	h.w.Exact()
	h.take(t)
	want := h.m.exact()
	for len(h.flights) > 0 {
		h.apply(t)
	}
	if h.w.ReadTo() != want {
		t.Fatalf("stopped at mark %d, want %d", h.w.ReadTo(), want)
	}
	if rapid.Bool().Draw(t, "change") {
		h.w.Unlead()
		h.w, h.f = h.f, h.w
		h.lead()
	}
}

// crash makes the follower the leader. Some of what was in flight gets there.
func (h *history) crash(t *rapid.T) {
	if rapid.IntRange(0, 2).Draw(t, "rarely") > 0 {
		return
	}
	for range rapid.IntRange(0, len(h.flights)).Draw(t, "committed") {
		h.commit(h.flights[0])
		h.flights = h.flights[1:]
	}
	h.flights = nil
	h.w.Unlead()
	h.w, h.f = h.f, h.w
	h.lead()
}

func (h *history) snapshot(t *rapid.T) {
	b := h.f.AppendTo(nil)
	f, rest, err := Decode(append(slices.Clone(b), 7))
	if err != nil || len(rest) != 1 {
		t.Fatalf("decode: %v, %d bytes left", err, len(rest))
	}
	h.f = f
}

func (h *history) check() {
	t, w, m := h.t, h.w, h.m
	if a, b := w.AppendTo(nil), h.f.AppendTo(nil); !bytes.Equal(a, b) {
		t.Fatalf("replicas differ")
	}
	if w.Floor() != m.floor() || w.ReadTo() != m.readTo {
		t.Fatalf("floor %d readTo %d, want %d %d", w.Floor(), w.ReadTo(), m.floor(), m.readTo)
	}
	unsettled, settling := int64(0), int64(0)
	for o := int64(0); o < h.end; o++ {
		if w.Settled(o) != m.settled[o] || w.Failed(o) != int(m.failed[o]) {
			t.Fatalf("offset %d: settled %v failed %d", o, w.Settled(o), w.Failed(o))
		}
		if !m.settled[o] {
			unsettled++
			if m.recs[o].state == gone {
				settling++
			}
		}
	}
	if w.Unsettled(h.end) != unsettled || w.Settling() != settling {
		t.Fatalf("unsettled %d settling %d, want %d %d", w.Unsettled(h.end), w.Settling(), unsettled, settling)
	}
	ready := m.count(unread) + m.count(back)
	if w.Ready() != int64(ready) || w.InFlight() != m.count(held) {
		t.Fatalf("ready %d in flight %d, want %d %d", w.Ready(), w.InFlight(), ready, m.count(held))
	}
	var list []int64
	for sp := range w.Available() {
		for o := sp.First; o <= sp.Last; o++ {
			list = append(list, o)
		}
	}
	if !slices.Equal(list, m.available()) {
		t.Fatalf("available %v, want %v", list, m.available())
	}
	at, ok := w.NextDeadline()
	if wantAt, want := m.nextDeadline(); ok != want || ok && at != wantAt {
		t.Fatalf("deadline %d %v, want %d %v", at, ok, wantAt, want)
	}
	for id := MemberID(1); id <= 3; id++ {
		if w.Held(id) != len(m.heldBy(id)) {
			t.Fatalf("member %d holds %d, want %d", id, w.Held(id), len(m.heldBy(id)))
		}
	}
	h.checkMemory()
}

// checkMemory holds the footprint against what is in flight or out of order.
func (h *history) checkMemory() {
	f := h.w.Footprint()
	tracked := h.m.count(held) + h.m.count(back)
	outOfOrder := tracked + h.m.count(closing)
	for o := h.m.floor(); o < h.end; o++ {
		if h.m.settled[o] {
			outOfOrder++
		}
	}
	timed := 0
	for _, r := range h.m.recs {
		if r.state == held && r.deadline != 0 {
			timed++
		}
	}
	if h.w.o.timed != timed {
		h.t.Fatalf("%d timed locks, want %d", h.w.o.timed, timed)
	}
	switch {
	case f.Slots != tracked, f.Pages > tracked:
		h.t.Fatalf("%+v for %d tracked records", f, tracked)
	case f.Spans > outOfOrder, f.Logged > 4*tracked+4*slack, f.Locks > 4*tracked+slack+1:
		h.t.Fatalf("%+v for %d tracked, %d out of order", f, tracked, outOfOrder)
	}
}

// drain accepts everything: nothing may be lost.
func (h *history) drain() {
	h.m.policy = Policy{ReadAhead: h.m.policy.ReadAhead}
	for _, s := range h.flights {
		h.commit(s)
	}
	h.flights = nil
	h.w.Unlead()
	h.lead()
	for rounds := 0; h.w.Floor() < h.end; rounds++ {
		if rounds > 1000 {
			h.t.Fatalf("floor stuck at %d of %d: %+v", h.w.Floor(), h.end, h.w.Footprint())
		}
		for _, r := range h.w.Acquire(nil, Taker{Member: 9}, 50, h.now) {
			h.m.acquire(Taker{Member: 9}, r.Len(), h.now)
			h.ack(Ack{Member: 9, First: r.First, Last: r.Last, Outcome: Accept, Exact: true})
		}
		h.take(h.t)
		h.apply(h.t)
		h.check()
	}
	if f := h.w.Footprint(); f.Slots+f.Pages+f.Spans+f.Failed+f.Locks+f.Pending > 0 {
		h.t.Fatalf("left over: %+v", f)
	}
}
