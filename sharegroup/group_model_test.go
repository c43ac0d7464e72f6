package sharegroup

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type place struct {
	partition int32
	offset    int64
}

// crowd drives a Group as a driver would, and keeps book of who holds what.
type crowd struct {
	t       *rapid.T
	g       *Group
	ends    map[int32]int64
	holder  map[place]MemberID
	done    map[place]bool // accepted or auto-accepted
	credit  map[MemberID]int
	options map[MemberID]Options
	stopped map[MemberID]bool
	now     int64
}

func TestGroupAgainstBook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{
			MaxAcquired: rapid.SampledFrom([]int{0, 0, 1, 20}).Draw(t, "maxAcquired"),
			ReadAhead:   rapid.SampledFrom([]int{0, 0, 10}).Draw(t, "readAhead"),
		}
		c := &crowd{
			t: t, g: NewGroup(p), ends: map[int32]int64{}, holder: map[place]MemberID{}, done: map[place]bool{},
			credit: map[MemberID]int{}, options: map[MemberID]Options{}, stopped: map[MemberID]bool{},
		}
		for i := range rapid.Int32Range(1, 3).Draw(t, "partitions") {
			c.g.Lead(i, New(0), 1, 0)
			c.ends[i] = 0
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) { c.t = t; c.check() }, "join": c.join, "grant": c.grant, "grant2": c.grant, "extend": c.extend,
			"settle": c.settle, "stop": c.stop, "leave": c.leave, "pump": c.pump, "pull": c.pull, "expire": c.expire, "log": c.log, "calm": c.calm,
			"hold": c.hold, "pass": c.pass,
		})
		c.finish()
	})
}

func (c *crowd) member(t *rapid.T) (MemberID, bool) {
	var ids []MemberID
	for id := range c.options {
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return 0, false
	}
	slices.Sort(ids)
	return rapid.SampledFrom(ids).Draw(t, "member"), true
}

func (c *crowd) join(t *rapid.T) {
	opt := Options{
		Lock:      rapid.SampledFrom([]int64{0, 0, 10}).Draw(t, "lock"),
		Auto:      rapid.IntRange(0, 4).Draw(t, "auto") == 0,
		Exclusive: rapid.IntRange(0, 9).Draw(t, "exclusive") == 0,
		Pull:      rapid.IntRange(0, 3).Draw(t, "pull") == 0,
	}
	consumers, exclusive := 0, false
	for id, o := range c.options {
		if !o.Pull && !c.stopped[id] {
			consumers++
			exclusive = exclusive || o.Exclusive
		}
	}
	refuse := !opt.Pull && (exclusive || opt.Exclusive && consumers > 0)
	id, err := c.g.Join(opt)
	if (err != nil) != refuse {
		t.Fatalf("join %+v: %v, want refusal %v", opt, err, refuse)
	}
	if err == nil {
		c.options[id] = opt
	}
}

func (c *crowd) grant(t *rapid.T) {
	if id, ok := c.member(t); ok {
		n := rapid.IntRange(-3, 30).Draw(t, "n")
		if err := c.g.Grant(id, n); err != nil {
			t.Fatal(err)
		}
		c.credit[id] = max(0, c.credit[id]+n)
	}
}

func (c *crowd) extend(t *rapid.T) {
	p := rapid.Int32Range(0, int32(len(c.ends)-1)).Draw(t, "partition")
	c.ends[p] += rapid.Int64Range(1, 100).Draw(t, "n")
	c.g.Window(p).Extend(c.ends[p])
}

func (c *crowd) got(id MemberID, runs []Run) (n int) {
	for _, r := range runs {
		for o := r.First; o <= r.Last; o++ {
			at := place{r.Partition, o}
			if c.holder[at] != 0 || c.done[at] {
				c.t.Fatalf("%v handed out to %d while held by %d", at, id, c.holder[at])
			}
			if c.options[id].Auto {
				c.done[at] = true
			} else {
				c.holder[at] = id
			}
			n++
		}
	}
	return n
}

func (c *crowd) pump(t *rapid.T) {
	budget := rapid.IntRange(1, 200).Draw(t, "budget")
	outs, more := c.g.Pump(c.now, budget)
	total := 0
	seen := map[MemberID]bool{}
	for _, out := range outs {
		n := c.got(out.Member, out.Runs)
		opt := c.options[out.Member]
		switch {
		case n == 0, seen[out.Member], n > c.credit[out.Member]:
			t.Fatalf("hand-out of %d to %d with credit %d, %v", n, out.Member, c.credit[out.Member], seen)
		case opt.Pull, c.stopped[out.Member], opt.Auto != out.Auto:
			t.Fatalf("pushed to %+v", opt)
		}
		seen[out.Member] = true
		c.credit[out.Member] -= n
		total += n
	}
	if total > budget || more && total != budget {
		t.Fatalf("%d of a budget of %d, more %v", total, budget, more)
	}
	if more {
		return
	}
	for id, credit := range c.credit {
		for w := range c.g.Windows() {
			if credit > 0 && !c.stopped[id] && !c.options[id].Pull && w.HasAvailable() {
				t.Fatalf("member %d has credit and partition %d records, but no more", id, w.Partition())
			}
		}
	}
}

func (c *crowd) pull(t *rapid.T) {
	id, ok := c.member(t)
	if !ok {
		return
	}
	n := rapid.IntRange(1, 50).Draw(t, "n")
	var runs []Run
	var err error
	if rapid.Bool().Draw(t, "one") {
		runs, err = c.g.AcquireFrom(id, rapid.Int32Range(0, int32(len(c.ends)-1)).Draw(t, "p"), n, c.now)
	} else {
		runs, err = c.g.Acquire(id, n, c.now)
	}
	if got := c.got(id, runs); err != nil || got > n || got > 0 && c.stopped[id] {
		t.Fatalf("pulled %d of %d: %v", got, n, err)
	}
}

func (c *crowd) settle(t *rapid.T) {
	var held []place
	for at := range c.holder {
		held = append(held, at)
	}
	if len(held) == 0 {
		return
	}
	slices.SortFunc(held, func(a, b place) int {
		return compare(int64(a.partition)<<32+a.offset, int64(b.partition)<<32+b.offset)
	})
	at := rapid.SampledFrom(held).Draw(t, "at")
	a := Ack{Member: c.holder[at], First: at.offset, Last: at.offset + rapid.Int64Range(0, 40).Draw(t, "span")}
	a.Outcome = rapid.SampledFrom([]Outcome{Accept, Accept, Release, Refuse}).Draw(t, "outcome")
	n := 0
	for o := a.First; o <= a.Last; o++ {
		if at := (place{at.partition, o}); c.holder[at] == a.Member {
			delete(c.holder, at)
			c.done[at] = a.Outcome != Release
			n++
		}
	}
	if got, err := c.g.Settle(at.partition, a, c.now); err != nil || got.Records != n {
		t.Fatalf("settled %d, %v; want %d", got.Records, err, n)
	}
}

func (c *crowd) stop(t *rapid.T) {
	if id, ok := c.member(t); ok {
		if err := c.g.Stop(id); err != nil {
			t.Fatal(err)
		}
		c.stopped[id] = true
	}
}

func (c *crowd) leave(t *rapid.T) {
	if id, ok := c.member(t); ok {
		c.gone(id)
	}
}

func (c *crowd) gone(id MemberID) {
	want := 0
	for at, h := range c.holder {
		if h == id {
			delete(c.holder, at)
			want++
		}
	}
	if n, err := c.g.Leave(id, true); err != nil || n != want {
		c.t.Fatalf("leave gave back %d, %v; want %d", n, err, want)
	}
	delete(c.options, id)
	delete(c.credit, id)
	delete(c.stopped, id)
}

// expire lets every timed lock end.
func (c *crowd) expire(t *rapid.T) {
	c.now += 10
	want := 0
	for at, id := range c.holder {
		if c.options[id].Lock > 0 {
			delete(c.holder, at)
			want++
		}
	}
	if want > 0 {
		if at, ok := c.g.NextDeadline(); !ok || at > c.now {
			t.Fatalf("deadline %d %v at %d", at, ok, c.now)
		}
	}
	if n := c.g.Expire(c.now); n != want {
		t.Fatalf("expired %d, want %d", n, want)
	}
}

// calm has marks lowered at any moment: nobody may be stuck for it.
func (c *crowd) calm(t *rapid.T) {
	if rapid.Bool().Draw(t, "exact") {
		c.g.Exact()
		return
	}
	for w := range c.g.Windows() {
		w.Calm(c.now)
	}
}

// log takes and applies what is to be logged.
func (c *crowd) log(t *rapid.T) {
	var s Settlement
	for w := range c.g.Dirty() {
		for w.Take(&s) {
			w.Apply(&s)
		}
		w.TakeDead(nil)
	}
	if c.g.IsDirty() {
		t.Fatalf("still dirty")
	}
	for w := range c.g.Windows() {
		if w.Pending() {
			t.Fatalf("pending but not listed")
		}
	}
}

func (c *crowd) check() {
	if c.g.InFlight() != len(c.holder) {
		c.t.Fatalf("in flight %d, want %d", c.g.InFlight(), len(c.holder))
	}
	for _, list := range [][]*Window{c.g.ready, c.g.dirties} {
		seen := map[*Window]bool{}
		for _, w := range list {
			if seen[w] {
				c.t.Fatalf("partition %d listed twice", w.Partition())
			}
			seen[w] = true
		}
	}
	total := int64(0)
	for _, end := range c.ends {
		total += end
	}
	done := 0
	for _, d := range c.done {
		if d {
			done++
		}
	}
	if want := total - int64(done+len(c.holder)); c.g.Ready() != want {
		c.t.Fatalf("ready %d, want %d", c.g.Ready(), want)
	}
	for id := range c.options {
		if c.g.Credit(id) != c.credit[id] {
			c.t.Fatalf("credit of %d is %d, want %d", id, c.g.Credit(id), c.credit[id])
		}
	}
}

// finish lets a last member take everything: nothing may be lost.
func (c *crowd) finish() {
	for id := range c.options {
		c.gone(id)
	}
	id, err := c.g.Join(Options{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.options[id] = Options{}
	for rounds := 0; c.g.Ready() > 0; rounds++ {
		if rounds > 20_000 { // MaxAcquired may allow one record a round
			c.t.Fatalf("%d records stuck", c.g.Ready())
		}
		_ = c.g.Grant(id, 10)
		c.credit[id] += 10
		c.pump(c.t)
		for at := range c.holder {
			if _, err := c.g.Settle(at.partition, Ack{Member: id, First: at.offset, Last: at.offset, Outcome: Accept}, c.now); err != nil {
				c.t.Fatal(err)
			}
			delete(c.holder, at)
			c.done[at] = true
		}
		c.log(c.t)
	}
	c.log(c.t)
	for w := range c.g.Windows() {
		if w.Floor() != c.ends[w.Partition()] {
			c.t.Fatalf("floor %d, want %d", w.Floor(), c.ends[w.Partition()])
		}
	}
}

// offsets lists what a member got, for table tests.
func offsets(runs []Run) string {
	s := ""
	for _, r := range runs {
		for o := r.First; o <= r.Last; o++ {
			s += fmt.Sprintf("%d", o)
			if r.Redelivered {
				s += "r"
			}
			s += " "
		}
	}
	return s
}
