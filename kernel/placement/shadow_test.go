package placement

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/kv"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// recording is what a history has committed, and what its node had made of it at some
// places in the log.
type recording struct {
	entries []raftgroup.Entry
	digests map[uint64]digest
	rng     *rand.Rand
	err     error
}

// digest is the state of a replica as of one index.
type digest struct {
	tables, windows, keys, records uint64
}

// recorder notes what a machine applies. After a crash entries are applied again.
type recorder struct {
	raftgroup.Machine
	record *recording
}

func (r recorder) Apply(entries []raftgroup.Entry) {
	known := r.record
	for _, e := range entries {
		i, found := slices.BinarySearchFunc(known.entries, e.Index, func(k raftgroup.Entry, index uint64) int { return int(k.Index) - int(index) })
		switch {
		case !found && i == len(known.entries):
			known.entries = append(known.entries, raftgroup.Entry{Index: e.Index, Term: e.Term, Data: bytes.Clone(e.Data)})
		case !found || known.entries[i].Term != e.Term || !bytes.Equal(known.entries[i].Data, e.Data):
			known.err = fmt.Errorf("entry %d was applied and is another one now", e.Index)
		}
	}
	r.Machine.Apply(entries)
}

// replica is the machine of a history, whose entries are recorded if somebody wants
// them.
func (h *history) replica() raftgroup.Machine {
	if h.record == nil {
		return h.g.machine
	}
	return recorder{h.g.machine, h.record}
}

// look notes the state of the node, which has nothing to do, now and then.
func (r *recording) look(h *history) {
	if len(r.entries) == 0 || r.rng.Intn(3) > 0 {
		return
	}
	d, err := digestOf(h.g)
	if h.left != nil { // the power went
		return
	}
	r.err = errors.Join(r.err, err)
	if h.g.machine.index < r.entries[len(r.entries)-1].Index {
		d.keys = 0 // after a start they may be ahead
	}
	r.digests[h.g.machine.index] = d
}

func digestOf(g *Group) (d digest, err error) {
	all := capture{}
	for _, s := range g.shards {
		all.windows = append(all.windows, s.durable())
	}
	d.tables, d.windows, d.keys = xxhash.Sum64(g.machine.appendTo(nil)), xxhash.Sum64(all.appendWindows(nil)), g.keyed.sum()
	sum := xxhash.New()
	for _, id := range slices.Sorted(maps.Keys(g.machine.parts)) {
		p := g.machine.parts[id].log
		_, _ = fmt.Fprintln(sum, id, p.Start(), p.End())
		for at, end := p.Start(), p.End(); at < end; {
			b, err := p.Read(at, 1, nil)
			if err != nil {
				return d, fmt.Errorf("partition %d at %d: %w", id, at, err)
			}
			if len(b) == 0 {
				break
			}
			_, _ = sum.Write(b)
			at = int64(binary.BigEndian.Uint64(b)) + int64(binary.BigEndian.Uint32(b[23:])) + 1
		}
	}
	d.records = sum.Sum64()
	return d, nil
}

// shadow is a replica that follows a history: another number of shards, another clock,
// its parts work when they like. It restarts now and then, or gets a checkpoint of
// another replica, whose segments it pulls bit by bit.
type shadow struct {
	t      *testing.T
	rng    *rand.Rand
	record *recording
	keys   *kv.Store
	id     uint32
	shards int
	peer   *shadow // to get checkpoints from; nil: none
	disk   *vfs.MemFS
	wal    *wal.WAL
	store  *checkpoint.Store
	g      *Group
	terms  map[uint64]uint64
	base   uint64 // index before the log
	ahead  uint64 // up to which keys may have been written
	next   int    // in the record
	pulls  int
	full   int // seals without room
	sent   int // checkpoints taken from the peer
}

func (s *shadow) open() {
	s.t.Helper()
	now := func() time.Time { return time.UnixMilli(int64(s.rng.Intn(1 << 40))) }
	disk := vfs.NewFault(s.disk)
	if s.rng.Intn(2) == 0 { // of one node only
		disk.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.seg.tmp", After: s.rng.Intn(6), Times: 1 + s.rng.Intn(3), Err: vfs.ErrNoSpace})
	}
	log, err := wal.Open(disk, "wal", wal.Options{FileSize: 16 << 10, NoAhead: true, Rand: s.rng, Now: now})
	must(s.t, err)
	s.wal = log
	cfg := Config{ID: s.id, FS: disk, Dir: "p1", WAL: log.Group(1), KV: s.keys, Boot: 1 << 40, Shards: s.shards,
		Logger: zerolog.Nop(), Now: now, Limits: Limits{SealBytes: 3 << 10}}
	cfg.Raft.Transport = func() (raft.Transport, error) { return nil, nil } // it has peers
	if s.peer != nil {
		cfg.Raft.Source = s
	}
	g, store, meta, err := openState(cfg)
	must(s.t, err)
	for _, sh := range g.shards {
		sh.manual = true
	}
	g.prop.log, g.sealer.log = s, s
	g.under.bury = func(*Burial) { s.t.Error("a follower buries") }
	s.g, s.store, s.base = g, store, meta.Index
	s.next, _ = slices.BinarySearchFunc(s.record.entries, meta.Index+1, func(e raftgroup.Entry, index uint64) int { return int(e.Index) - int(index) })
}

// apply applies the next entries.
func (s *shadow) apply(n int) {
	group := s.wal.Group(1)
	list := s.record.entries[s.next:min(s.next+n, len(s.record.entries))]
	for _, e := range list {
		last, err := group.LastIndex()
		must(s.t, err)
		for i := max(last, s.base) + 1; i < e.Index; i++ {
			must(s.t, group.StoreLog(&raft.Log{Index: i, Term: e.Term, Type: raft.LogNoop}))
		}
		if e.Index > last {
			must(s.t, group.StoreLog(&raft.Log{Index: e.Index, Term: e.Term, Type: raft.LogCommand, Data: e.Data}))
		}
		s.terms[e.Index] = e.Term
	}
	s.next += len(list)
	s.g.machine.Apply(slices.Clone(list))
	s.ahead = max(s.ahead, s.g.machine.index)
}

// quiet has the shards and the keyed state come as far as the machine.
func (s *shadow) quiet() {
	for busy := true; busy; {
		busy = s.g.out.step()
		for _, sh := range s.g.shards {
			busy = sh.step() || busy
		}
	}
}

func (s *shadow) seal() {
	if _, err := s.g.sealer.step(); errors.Is(err, vfs.ErrNoSpace) {
		s.full++
	} else if err != nil && !errors.Is(err, slog.ErrMissing) {
		s.t.Fatal(err)
	}
}

// act does one thing at random.
func (s *shadow) act() {
	switch n := s.rng.Intn(100); {
	case n < 30:
		s.apply(1 + s.rng.Intn(4))
	case n < 45:
		s.g.shards[s.rng.Intn(len(s.g.shards))].step()
	case n < 55:
		s.g.out.step()
	case n < 65:
		s.seal()
	case n < 75 && s.peer != nil:
		_ = s.g.puller.step(context.Background()) // it is broken off now and then
	case n < 76:
		s.restart()
	case n < 81 && s.peer != nil:
		s.restore()
	case n < 90:
		s.check()
	}
}

// check compares with what the node of the history had made of it, if that is known
// here.
func (s *shadow) check() {
	want, ok := s.record.digests[s.g.machine.index]
	if !ok || !s.g.Whole() {
		return
	}
	s.quiet()
	got, err := digestOf(s.g)
	must(s.t, err)
	if want.keys == 0 || s.g.machine.index < s.ahead {
		want.keys, got.keys = 0, 0
	}
	if got != want {
		s.t.Fatalf("at %d of %d shards the state is %x, that of the node %x", s.g.machine.index, s.shards, got, want)
	}
}

func (s *shadow) restart() {
	if s.g.sent.any() {
		return // nobody else has what was sent
	}
	must(s.t, errors.Join(s.g.machine.log.Close(), s.wal.Close()))
	s.open()
}

// restore takes the newest checkpoint of the peer, if it is newer than the own state.
func (s *shadow) restore() {
	list := s.peer.store.List()
	if len(list) == 0 || list[0].Index <= s.g.machine.index {
		return
	}
	meta, r, err := s.peer.store.Export(list[0].ID())
	must(s.t, err)
	w, err := s.store.Create(checkpoint.Meta{Index: meta.Index, Term: meta.Term})
	must(s.t, err)
	payload, err := io.ReadAll(r)
	must(s.t, errors.Join(err, r.Close()))
	_, err = w.Write(payload)
	must(s.t, errors.Join(err, w.Commit()))
	s.quiet()
	must(s.t, s.withCompleter(func() error { return s.g.machine.Restore(meta, bytes.NewReader(payload)) }))
	group := s.wal.Group(1)
	first, err := group.FirstIndex()
	must(s.t, err)
	last, err := group.LastIndex()
	must(s.t, err)
	if last > 0 {
		must(s.t, group.DeleteRange(first, last))
	}
	s.next, _ = slices.BinarySearchFunc(s.record.entries, meta.Index+1, func(e raftgroup.Entry, index uint64) int { return int(e.Index) - int(index) })
	s.base, s.ahead = meta.Index, s.peer.ahead
	s.sent++
}

// withCompleter runs what waits for the completer.
func (s *shadow) withCompleter(fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	for {
		select {
		case err := <-done:
			return err
		case <-s.g.out.box.wake:
			for s.g.out.step() {
			}
		}
	}
}

// Segment is Source.Segment.
func (s *shadow) Segment(_ context.Context, _ uint32, id uint64, from int64) (io.ReadCloser, error) {
	f, size, err := s.peer.g.OpenSegment(id)
	if err != nil {
		return nil, err
	}
	s.pulls++
	length := size - from
	if s.rng.Intn(2) == 0 {
		length = s.rng.Int63n(length + 1)
	}
	return &answer{io.NewSectionReader(f, from, length), f}, nil
}

// Propose is replicator.Propose: a follower proposes nothing.
func (s *shadow) Propose(_ []byte, failed func(error)) { failed(raftgroup.ErrNotApplied) }

// Candidacy is replicator.Candidacy.
func (s *shadow) Candidacy() uint64 { return 0 }

// CheckpointMeta is replicator.CheckpointMeta.
func (s *shadow) CheckpointMeta(index uint64) (checkpoint.Meta, error) {
	return checkpoint.Meta{Index: index, Term: s.terms[index]}, nil
}

// Cut is replicator.Cut.
func (s *shadow) Cut(index uint64) error {
	group := s.wal.Group(1)
	first, err := group.FirstIndex()
	if err != nil || first == 0 || index <= first {
		return err
	}
	return group.DeleteRange(first, index-1)
}

// finish brings all to its end: everything applied, sealed and pulled.
func (s *shadow) finish() {
	s.apply(len(s.record.entries))
	for s.quiet(); ; s.quiet() {
		before := s.g.metrics.Checkpoints.Load() + s.g.metrics.Merges.Load()
		err := s.g.puller.step(context.Background())
		if errors.Is(err, fs.ErrNotExist) {
			s.t.Fatalf("a segment is nowhere any more: %v", err)
		}
		s.seal()
		if s.g.sealer.front() == nil && s.g.Whole() && before == s.g.metrics.Checkpoints.Load()+s.g.metrics.Merges.Load() {
			return
		}
	}
}

// segments lists what lives.
func (s *shadow) segments() (list []string) {
	for _, st := range s.g.machine.log.Segments() {
		if st.Runs > 0 {
			list = append(list, fmt.Sprintf("%x %d %x", st.ID, st.Size, st.Checksum))
		}
	}
	return list
}

// TestReplicasAreEqual: replicas with other numbers of shards and other clocks, that
// restart, and get checkpoints and pull segments at any time, come to the same state at
// each place in the log, and to the same segment files.
func TestReplicasAreEqual(t *testing.T) {
	keys, err := kv.OpenMemory()
	must(t, err)
	defer keys.Close()
	n, first := setting("TRIVIUM_HISTORIES", 30), setting("TRIVIUM_SEED", 1)
	var sent, pulls, digests int
	var merges uint64
	var full int
	for seed := first; seed < first+n; seed++ {
		h := newHistory(seed, keys)
		h.record = &recording{digests: make(map[uint64]digest), rng: rand.New(rand.NewSource(seed))}
		if err := errors.Join(h.run(), h.record.err); err != nil {
			t.Fatalf("TRIVIUM_SEED=%d TRIVIUM_HISTORIES=1: %v", seed, err)
		}
		a := newShadow(t, h, seed, 1, nil)
		b := newShadow(t, h, seed, 3, a)
		for a.next < len(h.record.entries) || b.next < len(h.record.entries) {
			for range 1 + b.rng.Intn(60) { // they are far apart now and then
				a.act()
			}
			for range 1 + b.rng.Intn(40) {
				b.act()
			}
		}
		a.finish()
		b.finish()
		a.check()
		b.check()
		one, two := a.segments(), b.segments()
		if !slices.Equal(one, two) {
			t.Fatalf("TRIVIUM_SEED=%d: segments %v and %v", seed, one, two)
		}
		full += a.full + b.full
		sent, pulls, digests, merges = sent+b.sent, pulls+b.pulls, digests+len(h.record.digests), merges+b.g.metrics.Merges.Load()
		for _, s := range []*shadow{a, b} {
			must(t, errors.Join(s.g.machine.log.Close(), s.wal.Close()))
		}
	}
	t.Logf("%d checkpoints sent, %d answers, %d places compared, %d merges, %d seals without room", sent, pulls, digests, merges, full)
	if n >= 30 && (sent < int(n)/8 || pulls < int(n) || digests < 3*int(n) || merges == 0 || full < int(n)/4) {
		t.Error("that is too little")
	}
}

func newShadow(t *testing.T, h *history, seed int64, shards int, peer *shadow) *shadow {
	s := &shadow{t: t, rng: rand.New(rand.NewSource(seed<<8 + int64(shards))), record: h.record, keys: h.keys,
		id: h.keyID + 1 + uint32(shards), shards: shards, peer: peer, disk: vfs.NewMem(), terms: make(map[uint64]uint64)}
	s.open()
	return s
}
