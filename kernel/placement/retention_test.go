package placement

import (
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/record"
)

// TestRetentionOfFresh: what is appended to a partition that had been idle for
// longer than its retention is never taken for old, however the shard that
// decides and the machine that appends run side by side.
func TestRetentionOfFresh(t *testing.T) {
	const wall = 1_700_000_000_000
	g := newGroup(Config{Shards: 1, Logger: zerolog.Nop(), Now: func() time.Time { return time.UnixMilli(wall) }})
	m, s := g.machine, g.shards[0]
	m.log = slog.NewVolatile()
	var b record.Builder
	b.Append(numbered(1))
	m.entry.Data = b.Bytes()
	m.entry.Index = 1
	at := section{kind: sectionBatch, body: m.entry.Data}
	for i := range 3000 {
		lp, err := m.log.Create(uint64(i), 0)
		must(t, err)
		p := &partition{id: PartitionID(i), topic: &topic{shard: s}, log: lp, retention: kernel.Retention{Age: time.Hour}}
		p.cut.retention = p.retention
		m.time = 1
		m.link(p, 0, &at)
		m.time = wall
		var wg sync.WaitGroup
		wg.Go(func() { m.link(p, 1, &at) })
		for ended := false; !ended; {
			ended = lp.End() == 2
			if start := s.deletable(p); start > 1 {
				t.Fatalf("round %d: a record just appended may be deleted", i)
			}
		}
		wg.Wait()
	}
}

// TestRetentionBegins: records from before a topic had a retention by age stay
// for that long from then on.
func TestRetentionBegins(t *testing.T) {
	const wall = 1_700_000_000_000
	g := newGroup(Config{Shards: 1, Logger: zerolog.Nop(), Now: func() time.Time { return time.UnixMilli(wall) }})
	m, s := g.machine, g.shards[0]
	m.log, m.time = slog.NewVolatile(), wall-1000
	must(t, m.applyCommand(createPartitionsCommand(topicN(1), []PartitionSpec{{}}, 1)))
	p := m.parts[1]
	var b record.Builder
	b.Append(numbered(1))
	m.entry.Data = b.Bytes()
	m.link(p, 0, &section{kind: sectionBatch, body: m.entry.Data})
	must(t, m.applyCommand(setRetentionCommand(topicN(1), kernel.Retention{Age: time.Second}, 2)))
	m.post()
	s.step()
	s.clock.now = func() time.Time { return time.UnixMilli(wall - 1) }
	if start := s.deletable(p); start != 0 {
		t.Errorf("before its time the partition may start at %d", start)
	}
	s.clock.now = func() time.Time { return time.UnixMilli(wall) }
	if start := s.deletable(p); start != 1 {
		t.Errorf("after its time the partition may start at %d, want 1", start)
	}
}

// TestTrimAskedAgain: a trim that went with a leadership is asked for by the
// next one, though nothing else happens to the partition.
func TestTrimAskedAgain(t *testing.T) {
	g := newStepped(t)
	part := g.topic(t, 1)[0]
	g.command(t, setRetentionCommand(topicN(1), kernel.RetainUsed, 1))
	must(t, g.Append(g.Targets(part), numbered(1), nil, 0))
	g.commit(len(g.log.entries)-1, 1)
	g.command(t, createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "q"), Topic: topicN(1), Owner: true}, 1))
	trims := func() int {
		g.tick()
		g.step()
		g.prop.settleTimeout()
		return len(g.log.entries)
	}
	before := len(g.log.entries)
	if trims() != before+1 {
		t.Fatal("no trim was asked for")
	}
	g.log.entries[before].failed(raftgroup.ErrUnknown)
	g.onUnlead()
	g.onLead(3) // the entry is lost
	g.step()
	if trims() != before+2 {
		t.Error("the trim was not asked for again")
	}
}

// TestWhoHoldsWhatIsReplaced: a membership that outlives the arrival of a checkpoint, and
// a partition that somebody has opened, are sent to who leads. Nothing was deleted.
func TestWhoHoldsWhatIsReplaced(t *testing.T) {
	g := newStepped(t)
	part := g.topic(t, 1)[0]
	g.command(t, createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "q"), Topic: topicN(1), Owner: true, FromStart: true}, 1))
	p, err := g.Partition(part)
	must(t, err)
	s := newSink()
	_, err = g.shards[0].join(g.machine.groups[1], kernel.MemberOptions{}, s)
	must(t, err)
	g.machine.clear()
	g.machine.post()
	g.step()
	code(t, s.ended, kernel.CodeUnavailable)
	_, err = p.Read(0, 1, nil)
	code(t, err, kernel.CodeUnavailable)
}

// TestTrimOfAReplacedState: a node that has led, and has got a checkpoint since, trims
// nothing by what it had before: its partitions have no groups any more that hold them
// back.
func TestTrimOfAReplacedState(t *testing.T) {
	g := newStepped(t)
	part := g.topic(t, 1)[0]
	g.command(t, setRetentionCommand(topicN(1), kernel.Retention{Age: time.Second}, 1))
	g.command(t, createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "q"), Topic: topicN(1), Owner: true, FromStart: true}, 1))
	must(t, g.Append(g.Targets(part), numbered(1), nil, 0))
	g.commit(len(g.log.entries)-1, 1)
	g.onUnlead()
	g.onLead(2) // it looks at all partitions soon
	g.step()
	g.onUnlead()
	g.step()
	g.machine.clear()
	g.machine.log = newVolatileLog()
	g.machine.nextPartition, g.machine.nextGroup = 1, 1
	before := len(g.log.entries)
	for i := range before { // the same again
		g.commit(i, 1)
	}
	g.now = g.now.Add(time.Minute)
	g.log.term = 3
	g.onLead(3)
	for range 3 {
		g.tick()
		g.step()
		g.prop.settleTimeout()
	}
	if len(g.log.entries) > before {
		t.Error("a record was to go that an owner group has not settled")
	}
}
