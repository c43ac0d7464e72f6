package placement

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/record"
)

func newVolatileLog() *slog.Log { return slog.NewVolatile() }

func TestEntryRoundTrip(t *testing.T) {
	h := header{time: 1_700_000_000_000, boot: 1 << 63, counter: 5, term: 9}
	data := h.append(nil)
	data = appendBatchSection(data, []PartitionID{1, 300}, []byte("batch"))
	data = appendSettlementSection(data, 7, 300, []byte("settlement"))
	data = appendTrimSection(data, 300, 1<<40)
	data = appendCommandSection(data, []byte("command"))
	var r entryReader
	must(t, r.reset(data))
	if r.header != h {
		t.Fatalf("%+v", r.header)
	}
	var bodies []string
	for r.next() {
		if r.body != nil && !bytes.Equal(data[r.off:r.off+len(r.body)], r.body) {
			t.Fatalf("section %d is said to be at %d", r.kind, r.off)
		}
		switch r.kind {
		case sectionBatch:
			if len(r.targets) != 2 || r.targets[1] != 300 {
				t.Fatalf("%+v", r.targets)
			}
		case sectionSettlement:
			if r.group != 7 || r.partition != 300 {
				t.Fatalf("%+v", r.section)
			}
		case sectionTrim:
			if r.partition != 300 || r.start != 1<<40 {
				t.Fatalf("%+v", r.section)
			}
		}
		bodies = append(bodies, string(r.body))
	}
	if r.err != nil || len(bodies) != 4 || bodies[3] != "command" {
		t.Fatal(bodies, r.err)
	}
	for n := range len(data) {
		must := r.reset(data[:n])
		for r.next() {
		}
		if must == nil && r.err == nil && n < headerSize {
			t.Fatalf("%d bytes are an entry", n)
		}
	}
}

// TestVersions: another version of an entry or a state is refused.
func TestVersions(t *testing.T) {
	data := header{}.append(nil)
	data[0]++
	var r entryReader
	if err := r.reset(data); !errors.Is(err, errFormat) {
		t.Fatal(err)
	}
	if _, err := decodeSaved([]byte{stateVersion + 1, 0, 0, 0}); !errors.Is(err, errFormat) {
		t.Fatal(err)
	}
	if err := newStepped(t).machine.applyCommand([]byte{250}); !errors.Is(err, errFormat) { // row 44 of the faults: refused, not skipped
		t.Fatalf("command of another version: %v", err)
	}
	if err := r.reset(append(header{}.append(nil), 250)); err != nil || r.next() || !errors.Is(r.err, errFormat) {
		t.Fatalf("section of another version: %v, %v", err, r.err)
	}
}

// FuzzApply feeds a machine what no leader ever wrote: it may refuse it, and
// must not panic or allocate without bound.
func FuzzApply(f *testing.F) {
	h := header{time: 5, boot: 1, counter: 1, term: 1}.append(nil)
	var b record.Builder
	b.SetProducer(1, 1, 0)
	b.Append(numbered(1))
	f.Add(appendBatchSection(h, []PartitionID{1, 2}, b.Bytes()))
	f.Add(appendCommandSection(h, createPartitionsCommand(topicN(2), []PartitionSpec{{Index: 3}}, 1)))
	f.Add(appendCommandSection(h, createGroupCommand(GroupSpec{Topic: topicN(1)}, 1)))
	f.Add(appendCommandSection(h, setRetentionCommand(topicN(1), PartitionSpec{}.Retention, 1)))
	f.Add(appendCommandSection(h, topicCommand(cmdDropTopic, topicN(1), 1)))
	f.Add(appendCommandSection(h, dropGroupCommand(1, 1)))
	f.Add(appendCommandSection(h, setOwnerCommand(1, true)))
	f.Add(appendCommandSection(appendTrimSection(h, 1, 1), sealCommand()))
	f.Add(appendSettlementSection(h, 1, 1, []byte{1, 1, 0, 1, 0, 0, 0, 0, 0}))
	f.Add(appendBatchSection(appendOnceSection(h, &kernel.Once{Session: "s", Number: 1, Count: 1}), []PartitionID{1}, b.Bytes()))
	f.Add(appendBatchSection(appendIDSection(h, kernel.NewDedupID([]byte("a"))), []PartitionID{1}, b.Bytes()))
	f.Add(appendCommandSection(h, setRetentionCommand(topicN(1), kernel.Retention{Dedup: time.Second, Bytes: 1}, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newStepped(t)
		s.topic(t, 2)
		s.command(t, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1))
		s.log.entries = append(s.log.entries, fakeEntry{data: data})
		s.commit(len(s.log.entries)-1, 1)
	})
}

func FuzzState(f *testing.F) {
	s := newStepped(f)
	s.topic(f, 2)
	s.command(f, createGroupCommand(GroupSpec{Topic: topicN(1), FromStart: true}, 1))
	state := appendBytes([]byte{stateVersion}, s.machine.appendTo(nil))
	manifest := slog.Manifest{Partitions: []slog.PartitionMeta{{ID: 1}, {ID: 2}}}
	state = appendBytes(state, manifest.Append(nil))
	f.Add(append(state, 0))
	f.Add(append(state, 1, 1, 1, 7, 1, 0, 0, 0, 0, 0, 0))
	s.machine.ids.repeated(s.machine.parts[1], kernel.NewDedupID([]byte("a")), 1)
	noted := appendBytes(nil, s.machine.appendTo(nil))
	f.Add(append(appendBytes(noted, manifest.Append(nil)), 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		sv, err := decodeSaved(data)
		if err != nil {
			return
		}
		g := newGroup(Config{Shards: 1, Boot: 1})
		g.machine.log = newVolatileLog()
		for _, p := range sv.manifest.Partitions {
			if _, err := g.machine.log.Create(p.ID, p.Start); err != nil {
				return
			}
		}
		if g.machine.restore(sv) == nil {
			for g.shards[0].step() {
			}
		}
	})
}
