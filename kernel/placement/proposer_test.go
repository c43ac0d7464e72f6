package placement

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/record"
)

// fakeLog is a log whose outcomes a test decides.
type fakeLog struct {
	term    uint64
	entries []fakeEntry
}

type fakeEntry struct {
	data   []byte
	failed func(error)
}

func (l *fakeLog) Propose(data []byte, failed func(error)) {
	l.entries = append(l.entries, fakeEntry{data, failed})
}
func (l *fakeLog) Candidacy() uint64 { return l.term }
func (l *fakeLog) Cut(uint64) error  { return nil }
func (l *fakeLog) CheckpointMeta(uint64) (checkpoint.Meta, error) {
	return checkpoint.Meta{}, nil
}

// stepped is a volatile group that a test steps, on a fakeLog.
type stepped struct {
	*Group
	log     *fakeLog
	now     time.Time
	index   uint64
	delayed int
}

func newStepped(t testing.TB) *stepped {
	s := &stepped{log: &fakeLog{term: 1}, now: time.UnixMilli(1_700_000_000_000)}
	g := newGroup(Config{Shards: 1, Boot: 7, Now: func() time.Time { return s.now }})
	g.machine.log = newVolatileLog()
	g.prop.log = s.log
	g.prop.delay = func() { s.delayed++ }
	g.shards[0].manual = true
	s.Group = g
	g.onLead(1)
	s.step()
	return s
}

// commit applies the i-th entry proposed, in a term.
func (s *stepped) commit(i int, term uint64) {
	s.index++
	s.machine.Apply([]raftgroup.Entry{{Index: s.index, Term: term, Data: s.log.entries[i].data}})
	s.step()
}

func (s *stepped) step() {
	for s.shards[0].step() || s.out.step() {
	}
}

// command proposes one and applies it in the present term.
func (s *stepped) command(t testing.TB, body []byte) commandResult {
	t.Helper()
	ch, err := s.prop.command(body)
	must(t, err)
	s.commit(len(s.log.entries)-1, s.log.term)
	return <-ch
}

func (s *stepped) topic(t testing.TB, parts int) []PartitionID {
	specs := make([]PartitionSpec, parts)
	for i := range specs {
		specs[i].Index = int32(i)
	}
	var ids []PartitionID
	for _, id := range s.command(t, createPartitionsCommand(topicN(1), specs, 1)).ids {
		ids = append(ids, PartitionID(id))
	}
	return ids
}

func TestOutcomes(t *testing.T) {
	type act func(s *stepped, i int)
	fail := func(err error) act { return func(s *stepped, i int) { s.log.entries[i].failed(err) } }
	commit := func(term uint64) act { return func(s *stepped, i int) { s.commit(i, term) } }
	other := func(term uint64) act { // an entry of somebody else
		return func(s *stepped, _ int) {
			h := header{boot: 99, counter: 1, term: term}
			s.machine.Apply([]raftgroup.Entry{{Index: 100, Term: term, Data: appendCommandSection(h.append(nil), barrierCommand())}})
		}
	}
	later := func(s *stepped, _ int) { s.now = s.now.Add(giveUpAfter); s.tick() }
	lost := func(s *stepped, _ int) { s.onUnlead() }
	lead := func(term uint64) act { return func(s *stepped, _ int) { s.onLead(term) } }
	stood := func(term uint64) act { return func(s *stepped, _ int) { s.log.term = term } }
	installed := func(s *stepped, _ int) { must(t, s.machine.restore(&saved{})) }
	end := func(s *stepped, _ int) { s.prop.stop(); s.prop.abandon() }
	const none = kernel.Code(255)
	notApplied, unknown := fail(raftgroup.ErrNotApplied), fail(raftgroup.ErrUnknown)
	for name, c := range map[string]struct {
		acts []act
		want kernel.Code // CodeInternal: success; none: no answer yet
	}{
		"committed":                          {[]act{commit(1)}, kernel.CodeInternal},
		"refused":                            {[]act{notApplied}, kernel.CodeUnavailable},
		"unknown":                            {[]act{unknown}, none},
		"unknown for too long":               {[]act{unknown, later}, kernel.CodeUnknown},
		"not known to be unknown":            {[]act{later}, none},
		"unknown, then committed":            {[]act{unknown, commit(1)}, kernel.CodeInternal},
		"unknown, lost, then committed":      {[]act{unknown, lost, commit(1)}, kernel.CodeInternal},
		"committed, then unknown":            {[]act{commit(1), unknown, later}, kernel.CodeInternal},
		"given up, then committed":           {[]act{unknown, later, commit(1)}, kernel.CodeUnknown},
		"unknown, a later term goes on":      {[]act{unknown, lost, other(2)}, kernel.CodeUnavailable},
		"a later term goes on, then unknown": {[]act{lost, other(2), unknown}, kernel.CodeUnavailable},
		"proposed again in a later term, which goes on, then unknown": {[]act{lost, stood(2), other(2), unknown}, none},
		"unknown, a checkpoint comes instead, a later term goes on":   {[]act{unknown, lost, installed, other(2)}, none},
		"the same, for too long":                                      {[]act{unknown, lost, installed, other(2), later}, kernel.CodeUnknown},
		"a checkpoint comes before it is known to be unknown":         {[]act{lost, installed, unknown, other(2)}, none},
		"a checkpoint comes, then it is committed":                    {[]act{unknown, lost, installed, commit(1)}, kernel.CodeInternal},
		"a checkpoint comes, then it is refused":                      {[]act{lost, installed, notApplied}, kernel.CodeUnavailable},
		"unknown, this term goes on":                                  {[]act{unknown, other(1)}, none},
		"unknown, we lead again":                                      {[]act{unknown, lost, lead(2)}, kernel.CodeUnavailable},
		"we lead again without an outcome":                            {[]act{lost, lead(2)}, none},
		"the end":                                                     {[]act{end}, kernel.CodeUnknown},
		"the end after a commit":                                      {[]act{commit(1), end}, kernel.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStepped(t)
			set := s.Targets(s.topic(t, 1)...)
			a := newAnswers()
			must(t, s.Append(set, numbered(0), a, 0))
			i := len(s.log.entries) - 1
			for _, do := range c.acts {
				do(s, i)
			}
			s.step()
			res, answered := a.results[0]
			switch {
			case answered != (c.want != none):
				t.Fatalf("answered: %v, %+v", answered, res)
			case !answered:
			case kernel.CodeOf(res.Err) != c.want || (res.Err == nil) != (c.want == kernel.CodeInternal) || res.Err == nil && res.Offset != 0:
				t.Fatalf("%+v", res)
			}
			if a.twice > 0 {
				t.Fatal("answered twice")
			}
		})
	}
}

// TestUnsent: what waits behind the entries in flight is refused for certain
// when the leadership ends.
func TestUnsent(t *testing.T) {
	s := newStepped(t)
	set := s.Targets(s.topic(t, 1)...)
	a := newAnswers()
	for n := range uint64(3) {
		must(t, s.Append(set, numbered(n), a, n))
	}
	s.onUnlead()
	s.step()
	if len(a.results) != 2 || kernel.CodeOf(a.results[1].Err) != kernel.CodeUnavailable {
		t.Fatalf("%+v", a.results)
	}
	code(t, s.Append(set, numbered(9), a, 9), kernel.CodeUnavailable)
	if s.prop.bytes.Load() == 0 {
		t.Fatal("nothing is in flight")
	}
	s.commit(len(s.log.entries)-1, 1)
	if n := s.prop.bytes.Load(); n != 0 {
		t.Fatalf("%d bytes are in flight for ever", n)
	}
}

// TestGroupCommit: one entry at once, the next gathers meanwhile; large ones go
// side by side, four at most.
func TestGroupCommit(t *testing.T) {
	s := newStepped(t)
	set := s.Targets(s.topic(t, 1)...)
	base := len(s.log.entries)
	sent := func(want int) {
		t.Helper()
		if n := len(s.log.entries) - base; n != want {
			t.Fatalf("%d entries, want %d", n, want)
		}
	}
	add := func(size int) {
		t.Helper()
		must(t, s.Append(set, &kernel.Record{Value: make([]byte, size)}, nil, 0))
	}
	add(8)
	sent(1)
	for range 1000 {
		add(8)
	}
	sent(1)
	s.commit(base, 1)
	sent(2)
	for i := range 3 {
		add(entryTarget)
		sent(3 + i)
	}
	for range 20 {
		add(entryTarget)
	}
	sent(5)
	for i := 1; i < len(s.log.entries)-base; i++ {
		if n := len(s.log.entries[base+i].data); n > entryCap+1000 {
			t.Fatalf("entry %d has %d bytes", i, n)
		}
		s.commit(base+i, 1)
	}
	p := s.machine.parts[1]
	if p.log.End() != 1024 {
		t.Fatalf("%d records", p.log.End())
	}
	add(2 << 20) // larger than an entry: it gets one of its own
	s.commit(len(s.log.entries)-1, 1)
	if p.log.End() != 1025 {
		t.Fatalf("%d records", p.log.End())
	}
}

// TestSettlementsWait: they go with a publish, or after the delay.
func TestSettlementsWait(t *testing.T) {
	s := newStepped(t)
	set := s.Targets(s.topic(t, 1)...)
	id := GroupID(s.command(t, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1)).ids[0])
	must(t, s.Append(set, numbered(0), nil, 0))
	must(t, s.Append(set, numbered(1), nil, 0))
	s.commit(len(s.log.entries)-1, 1)
	s.commit(len(s.log.entries)-1, 1)
	m, err := s.Join(id, kernel.MemberOptions{}, newSink())
	must(t, err)
	m.Credit(10)
	s.step()
	if s.delayed != 1 { // what was handed out is to be noted, some time
		t.Fatalf("%d delays", s.delayed)
	}
	before := len(s.log.entries)
	m.Settle(kernel.Accept, 0, 0, 0)
	s.step()
	if len(s.log.entries) != before {
		t.Fatal("a settlement did not wait")
	}
	s.prop.settleTimeout()
	if len(s.log.entries) != before+1 {
		t.Fatal("a settlement waits for ever")
	}
	w := s.machine.groups[id].windows[0]
	s.commit(before, 2) // logged under another term than it was made in
	if w.Settled(0) {
		t.Fatal("a settlement of an old leadership counts")
	}
	m.Settle(kernel.Accept, 0, 1, 1)
	s.step()
	must(t, s.Append(set, numbered(2), nil, 0))
	if len(s.log.entries) != before+2 {
		t.Fatal("a publish did not take the settlement along")
	}
	s.log.entries[before+1].failed(raftgroup.ErrNotApplied)
	s.prop.settleTimeout()
	if len(s.log.entries) != before+3 {
		t.Fatal("a settlement that was not applied is not proposed again")
	}
	s.commit(before+2, 1)
	if !w.Settled(1) || w.part.log.End() != 2 {
		t.Fatalf("settled: %v, %d records", w.Settled(1), w.part.log.End())
	}
}

// TestOrder: whatever sets records are published to, each partition has them
// in the order of the calls.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStepped(t)
		parts := s.topic(t, 4)
		sets := []*TargetSet{
			s.Targets(parts...), s.Targets(parts[0]), s.Targets(parts[1]), s.Targets(parts[1], parts[2], parts[1]),
			s.Targets(parts[2], parts[3]), s.Targets(parts[0], 99),
		}
		want := make(map[PartitionID][]uint64)
		next := len(s.log.entries)
		a := newAnswers()
		for n := range uint64(rapid.IntRange(1, 60).Draw(rt, "records")) {
			set := sets[rapid.IntRange(0, len(sets)-1).Draw(rt, "set")]
			for _, p := range set.Partitions() {
				want[p] = append(want[p], n)
			}
			r := numbered(n)
			r.Key = make([]byte, rapid.SampledFrom([]int{0, 100, entryTarget / 3}).Draw(rt, "size"))
			must(t, s.Append(set, r, a, n))
			if next < len(s.log.entries) && rapid.Bool().Draw(rt, "commit") {
				s.commit(next, 1)
				next++
			}
		}
		for ; next < len(s.log.entries); next++ {
			s.commit(next, 1)
		}
		for _, id := range parts {
			if got := contents(t, s.machine.parts[id]); !slices.Equal(got, want[id]) {
				rt.Fatalf("partition %d: %v, want %v", id, got, want[id])
			}
		}
		for n, res := range a.results {
			if res.Err != nil {
				rt.Fatalf("record %d: %v", n, res.Err)
			}
		}
	})
}

func contents(t testing.TB, p *partition) (numbers []uint64) {
	c := p.log.Cursor()
	for {
		v, err := c.Next()
		must(t, err)
		if v == nil {
			return numbers
		}
		numbers = append(numbers, numberOf(v))
	}
}

func TestTargetsAreInterned(t *testing.T) {
	s := newStepped(t)
	a, b := s.Targets(3, 1, 2), s.Targets(1, 2, 3, 2)
	one, same := s.Targets(1), s.Targets(1)
	if a != b || one != same || one == s.Targets(2) {
		t.Fatal("equal sets are not one")
	}
	if fmt.Sprint(a.Partitions()) != "[1 2 3]" {
		t.Fatal(a.Partitions())
	}
}

// TestBatchesAreShared: records of one set gather in one batch.
func TestBatchesAreShared(t *testing.T) {
	s := newStepped(t)
	parts := s.topic(t, 2)
	both, one := s.Targets(parts...), s.Targets(parts[0])
	must(t, s.Append(both, numbered(0), nil, 0)) // goes out alone
	for n := range uint64(10) {
		must(t, s.Append(both, numbered(n), nil, 0))
	}
	must(t, s.Append(one, numbered(10), nil, 0))
	must(t, s.Append(both, numbered(11), nil, 0)) // not into its first batch
	must(t, s.Append(s.Targets(parts[1]), numbered(12), nil, 0))
	s.commit(len(s.log.entries)-1, 1)
	var r entryReader
	must(t, r.reset(s.log.entries[len(s.log.entries)-1].data))
	var counts []string
	for r.next() {
		counts = append(counts, fmt.Sprint(record.Count(r.body), r.targets))
	}
	if got := fmt.Sprint(counts); got != "[10 [1 2] 1 [1] 1 [1 2] 1 [2]]" || r.err != nil {
		t.Fatal(got, r.err)
	}
}
