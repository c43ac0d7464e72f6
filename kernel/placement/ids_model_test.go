package placement

import (
	"bytes"
	"math/rand"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/record"
)

// idModel is what one partition knows of ids, the plain way.
type idModel struct {
	keep   int64 // ms
	list   []notedID
	stored int64
}

const modelIDs = 20 // bound of a partition

func (m *idModel) publish(id kernel.DedupID, now int64) {
	for _, n := range m.list {
		if n.id == id && now-n.time <= m.keep && m.keep > 0 {
			return
		}
	}
	m.stored++
	if m.keep > 0 {
		m.list = append(m.list, notedID{id, now})
		m.list = m.list[max(0, len(m.list)-modelIDs):]
	}
}

// replica is a machine that a test feeds entries.
type replica struct{ *Group }

func newReplica() replica {
	g := newGroup(Config{Shards: 1, Boot: 1})
	g.machine.log = newVolatileLog()
	g.machine.ids.inPart = modelIDs
	return replica{g}
}

func (r replica) apply(index uint64, data []byte) {
	r.machine.Apply([]raftgroup.Entry{{Index: index, Term: 1, Data: data}})
	for r.shards[0].step() || r.out.step() {
	}
}

// restored is another machine, made of a checkpoint of r.
func (r replica) restored(t *testing.T) replica {
	t.Helper()
	other := newReplica()
	var manifest slog.Manifest
	for id := PartitionID(1); id < r.machine.nextPartition; id++ {
		end := r.machine.parts[id].log.End()
		manifest.Partitions = append(manifest.Partitions, slog.PartitionMeta{ID: uint64(id), Start: end, End: end})
		_, err := other.machine.log.Create(uint64(id), end)
		must(t, err)
	}
	state := appendBytes(nil, r.machine.appendTo(nil))
	sv, err := decodeSaved(append(appendBytes(state, manifest.Append(nil)), 0))
	must(t, err)
	must(t, other.machine.restore(sv))
	return other
}

// idHistory is entries at random, for two replicas and the model.
type idHistory struct {
	rng    *rand.Rand
	a, b   replica
	models []*idModel // by partition, from 1 on
	index  uint64
	clock  int64 // goes back at times
	latest int64
}

func (h *idHistory) entry(sections []byte) {
	h.index++
	h.latest = max(h.latest, h.clock)
	data := append(header{time: h.clock, boot: 9, counter: h.index, term: 1}.append(nil), sections...)
	h.a.apply(h.index, data)
	h.b.apply(h.index, data)
}

// publish makes an entry with several messages, with ids of a few.
func (h *idHistory) publish() {
	h.clock += int64(h.rng.Intn(150)) - 40
	now := max(h.latest, h.clock)
	var sections []byte
	for range 1 + h.rng.Intn(4) {
		id := kernel.NewDedupID([]byte{byte(h.rng.Intn(30))})
		var targets []PartitionID
		for i, m := range h.models {
			if h.rng.Intn(2) == 0 {
				targets = append(targets, PartitionID(i+1))
				m.publish(id, now)
			}
		}
		var b record.Builder
		b.Append(numbered(1))
		sections = appendBatchSection(appendIDSection(sections, id), targets, b.Bytes())
	}
	h.entry(sections)
}

// shorten gives a partition a shorter window: of ids that are too old for a window it is not
// said when they go, so none gets longer.
func (h *idHistory) shorten() {
	i := h.rng.Intn(len(h.models))
	m := h.models[i]
	m.keep -= h.rng.Int63n(m.keep/4 + 2)
	r := kernel.Retention{Dedup: time.Duration(m.keep) * time.Millisecond}
	if m.keep = max(m.keep, 0); m.keep == 0 {
		r.Dedup = -1
	}
	h.entry(appendCommandSection(nil, setRetentionCommand(topicN(byte(i+1)), r, h.index)))
}

func (h *idHistory) check(t *testing.T) {
	t.Helper()
	for i, m := range h.models {
		for _, g := range []replica{h.a, h.b} {
			if end := g.machine.parts[PartitionID(i+1)].log.End(); end != m.stored {
				t.Fatalf("partition %d has %d messages, want %d", i+1, end, m.stored)
			}
		}
	}
	if !bytes.Equal(h.a.machine.appendTo(nil), h.b.machine.appendTo(nil)) {
		t.Fatal("two replicas differ")
	}
}

// TestDedupModel compares the machine with a model, with windows that get shorter, clocks
// that go back and ids that come again; and replicas with each other, of which one is
// made of a checkpoint from time to time: equal ones give equal bytes.
func TestDedupModel(t *testing.T) {
	seeds := int64(100)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		h := &idHistory{rng: rand.New(rand.NewSource(seed)), a: newReplica(), b: newReplica(), clock: 1_700_000_000_000}
		for i := range 3 {
			window := time.Duration(1+h.rng.Intn(4000)) * time.Millisecond
			spec := PartitionSpec{Retention: kernel.Retention{Dedup: window}}
			h.entry(appendCommandSection(nil, createPartitionsCommand(topicN(byte(i+1)), []PartitionSpec{spec}, 1)))
			h.models = append(h.models, &idModel{keep: window.Milliseconds()})
		}
		for range 500 {
			switch h.rng.Intn(40) {
			case 0:
				h.shorten()
			case 1:
				h.b = h.a.restored(t)
			case 2:
				h.clock += h.rng.Int63n(2000)
				h.entry(appendCommandSection(nil, barrierCommand()))
			default:
				h.publish()
			}
			h.check(t)
		}
		if n := h.a.metrics.Repeats.Load(); n < 20 {
			t.Fatalf("%d repeats", n)
		}
	}
}
