package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/storage/record"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// machine is a state machine in small: it applies entries of its own log to
// the log under test and to a model, writes checkpoints and starts again from
// them.
type machine struct {
	t      rapid.TB
	fs     vfs.FS
	wal    *wal
	log    *Log
	cache  int64
	plan   *Plan // a seal not yet installed
	kept   []*Manifest
	model  map[uint64]*modelPart
	closed bool
}

type modelPart struct {
	start, end int64
	recs       []rec
	times      []int64 // of recs
}

// Entries: kind, number of targets, targets, then a batch or an offset.
const (
	cmdCreate = iota
	cmdDrop
	cmdPublish
	cmdTrim
	cmdSeal
	cmdMerge
)

func (m *machine) propose(kind byte, targets []byte, rest []byte) {
	data := append([]byte{kind, byte(len(targets))}, targets...)
	data = append(data, rest...)
	index := m.wal.append(data)
	m.apply(index, data)
	m.applyModel(data)
}

func (m *machine) apply(index uint64, data []byte) {
	targets, off := data[2:2+data[1]], 2+int(data[1])
	rest := data[off:]
	switch data[0] {
	case cmdCreate:
		if _, err := m.log.Create(uint64(targets[0]), 0); err != nil {
			m.t.Fatal(err)
		}
	case cmdDrop:
		m.log.Drop(uint64(targets[0]))
	case cmdPublish:
		body := m.log.NewBody(index, 3, data)
		for _, id := range targets {
			p := m.log.Partition(uint64(id))
			p.Link(p.End(), body, off, len(rest), record.LastOffsetDelta(rest), record.MaxTimestamp(rest))
		}
	case cmdTrim:
		p := m.log.Partition(uint64(targets[0]))
		p.Trim(p.Start() + int64(rest[0]))
	case cmdSeal:
		if m.plan != nil {
			m.finishSeal()
		}
		if !m.closed {
			m.plan = m.log.Capture(index)
		}
	case cmdMerge:
		if m.plan != nil {
			m.finishSeal()
		}
		if !m.closed {
			m.plan = m.merge(index, rest)
		}
	}
}

func (m *machine) merge(index uint64, ids []byte) *Plan {
	var segments []uint64
	for ; len(ids) > 0; ids = ids[8:] {
		segments = append(segments, binary.BigEndian.Uint64(ids))
	}
	return m.log.Merge(index, segments...)
}

// neighbours draws a few segments that follow one another.
func (m *machine) neighbours(rng *rand.Rand) []byte {
	var ids []byte
	segments := m.log.Segments()
	if len(segments) == 0 {
		return nil
	}
	from := rng.Intn(len(segments))
	for _, s := range segments[from:min(len(segments), from+1+rng.Intn(4))] {
		ids = binary.BigEndian.AppendUint64(ids, s.ID)
	}
	return ids
}

func (m *machine) applyModel(data []byte) {
	targets := data[2 : 2+data[1]]
	rest := data[2+len(targets):]
	switch data[0] {
	case cmdCreate:
		m.model[uint64(targets[0])] = &modelPart{}
	case cmdDrop:
		delete(m.model, uint64(targets[0]))
	case cmdPublish:
		var it record.Iter
		if err := it.Reset(rest, nil); err != nil {
			m.t.Fatal(err)
		}
		for it.Next() {
			for _, id := range targets {
				p := m.model[uint64(id)]
				p.recs = append(p.recs, rec{p.end, string(it.View().Value)})
				p.times = append(p.times, it.View().Timestamp)
				p.end++
			}
		}
	case cmdTrim:
		p := m.model[uint64(targets[0])]
		p.start = min(p.end, p.start+int64(rest[0]))
		for len(p.recs) > 0 && p.recs[0].offset < p.start {
			p.recs, p.times = p.recs[1:], p.times[1:]
		}
	}
}

// checkpointFile holds the last manifest.
const checkpointFile = "data/checkpoint"

// finishSeal takes a captured plan through segment, checkpoint and log cut.
// An error closes the machine, as a node stops.
func (m *machine) finishSeal() {
	if err := m.trySeal(); err != nil {
		m.closed = true
	}
}

func (m *machine) trySeal() error {
	plan := m.plan
	m.plan = nil
	if err := plan.Write(); err != nil {
		return err
	}
	if err := m.log.Install(plan); err != nil {
		return err
	}
	if plan.merge {
		plan.Release()
		return m.log.Sweep(m.kept...)
	}
	manifest, err := plan.Manifest()
	if err != nil {
		return err
	}
	if err := writeFile(m.fs, checkpointFile, manifest.Append(nil)); err != nil {
		return err
	}
	plan.Release()
	m.kept = []*Manifest{manifest}
	m.wal.cut(manifest.Index + 1)
	return m.log.Sweep(m.kept...)
}

func writeFile(fs vfs.FS, name string, data []byte) error {
	f, err := fs.Create(name + ".tmp")
	if err != nil {
		return err
	}
	if _, err = f.WriteAt(data, 0); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	return fs.SyncDir("data")
}

// start opens the log from the last checkpoint and applies what came after.
func (m *machine) start() {
	m.closed, m.plan = false, nil
	manifest := &Manifest{}
	if f, err := m.fs.Open(checkpointFile); err == nil {
		size, _ := f.Size()
		b := make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil {
			m.t.Fatal(err)
		}
		if manifest, _, err = DecodeManifest(b); err != nil {
			m.t.Fatal(err)
		}
		_ = f.Close()
	}
	l, err := Open(m.fs, dir, Options{Cache: NewCache(m.cache), Source: m.wal}, manifest)
	if err != nil {
		m.t.Fatal(err)
	}
	if missing := l.Missing(); len(missing) > 0 {
		m.t.Fatalf("missing after restart: %v\n%v", missing, m.fs)
	}
	m.log, m.kept = l, []*Manifest{manifest}
	if m.wal.first > manifest.Index+1 {
		m.t.Fatalf("log begins at %d, checkpoint is of %d", m.wal.first, manifest.Index)
	}
	for index := manifest.Index + 1; index <= m.wal.last && !m.closed; index++ {
		m.apply(index, m.wal.entries[index])
	}
}

// check compares everything readable with the model.
func (m *machine) check(rng *rand.Rand) {
	for id, want := range m.model {
		p := m.log.Partition(id)
		if p == nil {
			m.t.Fatalf("partition %d is gone", id)
		}
		if p.Start() != want.start || p.End() != want.end {
			m.t.Fatalf("partition %d: [%d,%d), want [%d,%d)", id, p.Start(), p.End(), want.start, want.end)
		}
		c := p.Cursor()
		from := want.start
		if n := want.end - want.start; n > 0 {
			from += rng.Int63n(n)
		}
		c.SeekTo(from)
		for _, r := range want.recs {
			if r.offset < from {
				continue
			}
			v, err := c.Next()
			if err != nil || v == nil || v.Offset != r.offset || string(v.Value) != r.value {
				m.t.Fatalf("partition %d: got %v, %v, want %v", id, v, err, r)
			}
		}
		if v, err := c.Next(); v != nil || err != nil {
			m.t.Fatalf("partition %d beyond the end: %v %v", id, v, err)
		}
		m.checkRead(p, want, from)
		m.checkTime(p, want, rng)
	}
}

// checkTime looks for times as a scan of all records would.
func (m *machine) checkTime(p *Partition, want *modelPart, rng *rand.Rand) {
	for range 4 {
		ts := rng.Int63n(times + 20)
		offset, timestamp := want.end, int64(-1)
		if i := slices.IndexFunc(want.times, func(t int64) bool { return t >= ts }); i >= 0 {
			offset, timestamp = want.recs[i].offset, want.times[i]
		}
		if at, found, err := p.TimeOffset(ts); at != offset || found != timestamp || err != nil {
			m.t.Fatalf("time %d: offset %d at %d, %v, want %d at %d", ts, at, found, err, offset, timestamp)
		}
	}
}

// times is how many times batches begin at, in no order.
const times = 500

func (m *machine) checkRead(p *Partition, want *modelPart, from int64) {
	raw, err := p.Read(from, 300, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	if (len(raw) == 0) != (from == want.end) {
		m.t.Fatalf("read at %d of %d: %d bytes", from, want.end, len(raw))
	}
	for len(raw) > 0 {
		b, rest, err := record.Split(raw)
		if err != nil {
			m.t.Fatal(err)
		}
		if record.BaseOffset(b) > from || record.LastOffset(b) < from {
			m.t.Fatalf("batch [%d,%d] does not hold %d", record.BaseOffset(b), record.LastOffset(b), from)
		}
		from, raw = record.LastOffset(b)+1, rest
	}
}

// values makes a batch of n records, compressed if asked.
func values(index uint64, n int, packed bool) []byte {
	b := batch(fmt.Sprintf("%d-%s", index, bytes.Repeat([]byte("y"), int(index%40))), n, int64(index*7919%times))
	if !packed {
		return b
	}
	return packBatch(b)
}

func packBatch(b []byte) []byte {
	out := append(bytes.Clone(b[:record.HeaderSize]), s2.EncodeSnappy(nil, b[record.HeaderSize:])...)
	return reseal(out, record.Snappy)
}

func (m *machine) ids() []byte {
	var ids []byte
	for id := range m.model {
		ids = append(ids, byte(id))
	}
	slices.Sort(ids)
	return ids
}

// step draws and runs one command.
func (m *machine) step(rng *rand.Rand, next *byte) {
	ids := m.ids()
	kind := rng.Intn(20)
	switch {
	case len(ids) == 0 || kind == 0 && *next < 200:
		m.propose(cmdCreate, []byte{*next}, nil)
		*next++
	case kind == 1 && len(ids) > 2:
		m.propose(cmdDrop, []byte{ids[rng.Intn(len(ids))]}, nil)
	case kind <= 4:
		m.propose(cmdTrim, []byte{ids[rng.Intn(len(ids))]}, []byte{byte(rng.Intn(12))})
	case kind == 5 && rng.Intn(2) == 0:
		if m.plan != nil {
			m.finishSeal() // what it makes may be merged
		}
		if !m.closed {
			m.propose(cmdMerge, nil, m.neighbours(rng))
		}
	case kind <= 6:
		m.propose(cmdSeal, nil, nil)
	case kind <= 8 && m.plan != nil:
		m.finishSeal()
	default:
		rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		n := 1 + rng.Intn(len(ids))
		if rng.Intn(3) > 0 {
			n = 1
		}
		m.propose(cmdPublish, ids[:n], values(m.wal.last+1, 1+rng.Intn(8), rng.Intn(4) == 0))
	}
}

// Any run of commands, with a cache that forgets nearly everything, reads as
// the model says, before and after restarts.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		m := &machine{t: t, fs: vfs.NewMem(), wal: newWAL(), cache: 4000, model: map[uint64]*modelPart{}}
		m.start()
		var next byte
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			m.step(rng, &next)
			switch rng.Intn(20) {
			case 0:
				m.check(rng)
			case 1:
				if err := m.log.Close(); err != nil {
					t.Fatal(err)
				}
				m.start()
			}
		}
		m.check(rng)
	})
}

// A power loss at every single operation on the disk, during segment,
// checkpoint, cut and sweep, leaves the old state or the new one.
func TestCrashEverywhere(t *testing.T) {
	for story := range int64(3) {
		t.Run(fmt.Sprint("story=", story), func(t *testing.T) { crashEverywhere(t, story) })
	}
}

func crashEverywhere(t *testing.T, story int64) {
	for crash := 0; ; crash++ {
		rng := rand.New(rand.NewSource(int64(crash)))
		mem := vfs.NewMem()
		m := &machine{t: t, fs: mem, wal: newWAL(), cache: 4000, model: map[uint64]*modelPart{}}
		m.start()
		fault := vfs.NewFault(mem, vfs.Rule{After: crash, Err: errors.New("power loss"), Short: rng.Intn(600)})
		m.fs, m.log.fs = fault, fault
		var next byte
		script := rand.New(rand.NewSource(story)) // the same every time
		for range 120 {
			if m.closed {
				break
			}
			m.step(script, &next)
		}
		if !m.closed {
			if crash < 50 {
				t.Fatalf("the story has only %d disk operations", crash)
			}
			t.Logf("%d crashes survived", crash)
			return
		}
		m.fs = mem.CrashClone(rng)
		m.start()
		m.check(rng)
		m.propose(cmdSeal, nil, nil)
		m.finishSeal()
		m.check(rng)
		if m.closed {
			t.Fatal("cannot seal after the crash")
		}
	}
}

// Replicas that apply the same entries write the same segment files and
// manifests, whatever their caches hold and whenever they install.
func TestDeterministic(t *testing.T) {
	first := &machine{t: t, fs: vfs.NewMem(), wal: newWAL(), cache: 1, model: map[uint64]*modelPart{}}
	first.start()
	rng := rand.New(rand.NewSource(5))
	var next byte
	var story [][]byte
	for range 600 {
		first.step(rng, &next)
		if n := int(first.wal.last); n > len(story) {
			story = append(story, first.wal.entries[first.wal.last])
		}
	}
	all := newWAL()
	for _, data := range story {
		all.append(data)
	}
	l, err := Open(vfs.NewMem(), dir, Options{Source: all}, &Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	second := &machine{t: t, log: l}
	var plans []*Plan
	var manifests []*Manifest
	merges := 0
	install := func() {
		for _, p := range plans {
			if err := errors.Join(p.Write(), l.Install(p)); err != nil {
				t.Fatal(err)
			}
			if !p.merge {
				m, err := p.Manifest()
				if err != nil {
					t.Fatal(err)
				}
				manifests = append(manifests, m)
			}
			p.Release()
		}
		plans = nil
	}
	for i, data := range story {
		index := uint64(i + 1)
		switch data[0] {
		case cmdSeal:
			plans = append(plans, l.Capture(index))
		case cmdMerge: // what it merges may not be installed yet
			plans = append(plans, second.merge(index, data[2:]))
			merges++
		default:
			second.apply(index, data)
		}
		if len(plans) == 3 {
			install() // late, and several at once
		}
	}
	install()
	want := first.kept[0]
	found := false
	for _, m := range manifests {
		found = found || m.Index == want.Index
		if m.Index == want.Index && fmt.Sprint(m) != fmt.Sprint(want) {
			t.Fatalf("replicas differ:\n%v\n%v", m, want)
		}
	}
	if len(want.Segments) == 0 || merges == 0 || !found {
		t.Fatal("nothing was compared")
	}
}
