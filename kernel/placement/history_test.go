package placement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// history is one run of the real group on a simulated log and disk, without a
// goroutine: the same seed does the same, byte for byte. The node loses its
// power now and then, also in the middle of an operation on the disk, and is
// opened again on what that may have left.
type history struct {
	rng   *rand.Rand
	trace hash.Hash64
	now   time.Time
	keys  *kv.Store
	keyID uint32 // prefix of the keys of this life
	boot  uint64

	disk *vfs.MemFS
	left *vfs.MemFS // set once the power is gone
	wal  *wal.WAL
	log  *raftgroup.Sim
	g    *Group
	sets []*TargetSet
	life int

	record *recording // nil: nobody looks

	model model
	churn *churn
	pins  *pinsim
	seen  seen
	subs  []*subscriber
	delay bool // settlements wait

	tomb, limited PartitionID
	last          bool            // the history settles down
	buried        map[uint64]bool // records whose dead letters were confirmed
	err           error
}

var errPower = errors.New("power lost")

// simLog is the log as the group sees it.
type simLog struct {
	*raftgroup.Sim
	h *history
}

func (l simLog) Propose(data []byte, failed func(error)) {
	l.h.note(len(data))
	l.h.trace.Write(data)
	l.Sim.Propose(data, failed)
}

func newHistory(seed int64, keys *kv.Store) *history {
	h := &history{
		rng: rand.New(rand.NewSource(seed)), trace: fnv.New64a(), keys: keys, disk: vfs.NewMem(), buried: make(map[uint64]bool),
		now: time.UnixMilli(1_700_000_000_000), keyID: uint32(seed) << 8,
	}
	h.model.init(h)
	h.churn = newChurn(h)
	h.pins = newPinsim(h)
	return h
}

// note adds numbers to the trace.
func (h *history) note(values ...int) {
	var b [8]byte
	for _, v := range values {
		binary.BigEndian.PutUint64(b[:], uint64(v))
		h.trace.Write(b[:])
	}
}

func (h *history) failf(format string, args ...any) {
	if h.err == nil {
		h.err = fmt.Errorf("life %d: "+format, append([]any{h.life}, args...)...)
	}
}

// run plays the history to its end and returns the first thing that was wrong.
func (h *history) run() error {
	lives := 2 + h.rng.Intn(3)
	for h.life = 1; h.life <= lives && h.err == nil; h.life++ {
		if !h.start(h.life < lives) {
			h.crash()
			continue
		}
		h.check()
		ops := 20 + h.rng.Intn(100)
		for i := 0; i < ops && h.left == nil && h.err == nil; i++ {
			h.act()
		}
		if h.life < lives {
			h.crash()
		}
	}
	if h.err == nil {
		h.settleDown()
	}
	return h.err
}

// start opens the node. With armed it may lose its power while it does, or at
// any operation on the disk later.
func (h *history) start(armed bool) bool {
	h.boot++
	h.left, h.delay = nil, false
	disk := vfs.NewFault(h.disk)
	if armed && h.rng.Intn(3) > 0 {
		disk.Add(vfs.Rule{
			After: h.rng.Intn(400), Err: errPower,
			Before: func(vfs.Op, string) {
				if h.left == nil {
					h.left = h.disk.CrashClone(h.rng)
				}
			},
		})
	}
	if h.rng.Intn(3) == 0 { // the disk is full for a while
		disk.Add(vfs.Rule{
			Op: vfs.OpWrite, Name: []string{"*.seg.tmp", "*.tmp"}[h.rng.Intn(2)],
			After: h.rng.Intn(10), Times: 1 + h.rng.Intn(3), Err: vfs.ErrNoSpace,
		})
	}
	if err := h.open(disk); err != nil {
		if h.left == nil {
			h.failf("open: %v", err)
		}
		h.seen.inOpen++
		return false
	}
	return h.quiet() && h.prepare()
}

func (h *history) open(disk vfs.FS) error {
	clock := func() time.Time { return h.now }
	log, err := wal.Open(disk, "wal", wal.Options{
		FileSize: 8 << 10, NoAhead: true, Rand: h.rng, Now: clock,
	})
	if err != nil {
		return err
	}
	h.wal = log
	cfg := Config{
		ID: h.keyID, FS: disk, Dir: "p1", WAL: log.Group(1), KV: h.keys, Boot: h.boot,
		Shards: 2, Logger: zerolog.Nop(), Now: clock, Limits: Limits{SealBytes: 3 << 10},
	}
	g, _, meta, err := openState(cfg)
	if err != nil {
		return err
	}
	for _, s := range g.shards {
		s.manual = true
	}
	g.disk.cramped = nil // publishes go on beside a seal without room: there is more to get wrong
	g.keyed.dirty.most = 1 + h.rng.Intn(6)
	g.under.bury = h.bury
	g.prop.delay = func() { h.delay = true }
	h.g = g
	if h.log, err = raftgroup.NewSim(log.Group(1), h.replica(), meta, 1<<10); err != nil {
		return err
	}
	g.prop.log, g.sealer.log = simLog{h.log, h}, simLog{h.log, h}
	if meta.Index > 0 {
		h.seen.restored++
	}
	if _, err := h.log.Step(); err != nil { // what the log has
		return err
	}
	g.onLead(h.log.Term())
	return nil
}

// step lets one part of the node work and says whether it had work.
func (h *history) step(part int) bool {
	switch part {
	case 0:
		defer h.powerIn(&h.seen.inLog)()
		n, err := h.log.Step()
		if err != nil && h.left == nil {
			h.failf("step: %v", err)
		}
		h.model.observe()
		return n > 0
	case 1, 2:
		return h.g.shards[part-1].step()
	case 3:
		return h.g.out.step()
	default:
		defer h.powerIn(&h.seen.inSeal)()
		_, err := h.g.sealer.step()
		switch {
		case h.left != nil:
		case errors.Is(err, vfs.ErrNoSpace):
			h.seen.full++
		case err != nil:
			h.failf("seal: %v", err)
		}
		return false
	}
}

// powerIn counts the powers lost in what is done before its result is called.
func (h *history) powerIn(n *int) func() {
	before := h.left
	return func() {
		if before == nil && h.left != nil {
			*n++
		}
	}
}

// seen counts what histories have come across, so that a test that no longer
// tests shows.
type seen struct {
	inOpen, inLog, inSeal int // power lost there
	restored              int // starts from a checkpoint
	full                  int // seals without room
	checkpoints           uint64
	merges                uint64
	delivered, settled    uint64
	buried                int // dead letters confirmed
	once, pinned, orphans int
	repeats, beside       int // of messages with an id: after the first was answered, and before
}

func (s *seen) add(o seen) {
	s.inOpen += o.inOpen
	s.inLog += o.inLog
	s.inSeal += o.inSeal
	s.restored += o.restored
	s.full += o.full
	s.checkpoints += o.checkpoints
	s.merges += o.merges
	s.delivered += o.delivered
	s.settled += o.settled
	s.buried += o.buried
	s.once += o.once
	s.pinned += o.pinned
	s.orphans += o.orphans
	s.repeats += o.repeats
	s.beside += o.beside
}

func (h *history) count() {
	h.seen.checkpoints += h.g.metrics.Checkpoints.Load()
	h.seen.merges += h.g.metrics.Merges.Load()
	h.seen.delivered += h.g.metrics.Delivered.Load()
	h.seen.settled += h.g.metrics.Settled.Load()
}

// quiet lets everything work until nothing is left to do. It returns false
// when the power went.
func (h *history) quiet() bool {
	for busy := true; busy && h.left == nil && h.err == nil; {
		busy = false
		for part := range 4 {
			busy = h.step(part) || busy
		}
		busy = h.g.under.step() || busy
		if !busy && h.delay {
			h.delay, busy = false, true
			h.g.prop.settleTimeout()
		}
	}
	if h.record != nil && h.left == nil && h.err == nil {
		h.record.look(h)
	}
	return h.left == nil && h.err == nil
}

// do runs a command to its end.
func (h *history) do(body []byte) (commandResult, bool) {
	ch, err := h.g.prop.command(body)
	if err != nil {
		h.failf("command: %v", err)
		return commandResult{}, false
	}
	for h.left == nil && h.err == nil {
		select {
		case res := <-ch:
			if res.err != nil {
				h.failf("command: %v", res.err)
			}
			return res, true
		default:
			h.step(0)
			h.step(3)
		}
	}
	return commandResult{}, false
}

// topics of a history: partitions by topic, and how they keep records.
var simTopics = []struct {
	parts     int
	retention kernel.Retention
	groups    int
}{
	{1, kernel.RetainDay, 1},
	{2, kernel.RetainUsed, 2},
	{1, kernel.Retention{Age: 2 * time.Second}, 1},
	{1, kernel.RetainDay, 1}, // with limits and dead letters, see simLimits
}

// prepare makes the topics and groups, as a facade does after every start.
func (h *history) prepare() bool {
	if !h.digTomb() || !h.pins.prepare() {
		return false
	}
	h.model.parts, h.model.groups = nil, nil
	for i, st := range simTopics {
		specs := make([]PartitionSpec, st.parts)
		for k := range specs {
			specs[k] = PartitionSpec{Index: int32(k), Retention: st.retention}
		}
		res, ok := h.do(createPartitionsCommand(topicN(byte(i+1)), specs, 1))
		if !ok {
			return false
		}
		for _, id := range res.ids {
			h.model.parts = append(h.model.parts, PartitionID(id))
		}
		for k := range st.groups {
			spec := GroupSpec{
				Address: kernel.GroupAddress{Tenant: "/", Group: fmt.Sprint(k), Topic: fmt.Sprint(i)},
				Topic:   topicN(byte(i + 1)), Owner: k == 0, FromStart: true,
			}
			command := createGroupCommand(spec, 1)
			if i == simLimited {
				h.limited = h.model.parts[len(h.model.parts)-1]
				spec.Limits = simLimits()
				command = createLimitedCommand(spec, 1)
			}
			res, ok := h.do(command)
			if !ok {
				return false
			}
			h.model.addGroup(GroupID(res.ids[0]), k == 0).dying = i == simLimited
		}
	}
	p := h.model.parts
	h.sets = []*TargetSet{
		h.g.Targets(p[0]), h.g.Targets(p[1]), h.g.Targets(p[2]), h.g.Targets(p[3]), h.g.Targets(p[4]),
		h.g.Targets(p[0], p[1]), h.g.Targets(p...),
	}
	h.subs = nil
	return h.quiet()
}

// act does one thing at random.
func (h *history) act() {
	h.now = h.now.Add(time.Duration(h.rng.Intn(20)) * time.Millisecond)
	switch n := h.rng.Intn(100); {
	case n < 18:
		h.model.publish()
	case n < 21:
		h.model.publishBatch()
	case n < 48:
		h.step(h.rng.Intn(5))
	case n < 53:
		h.quiet()
	case n < 57:
		if h.delay {
			h.delay = false
			h.g.prop.settleTimeout()
		}
	case n < 62:
		h.subscribe()
	case n < 64:
		h.now = h.now.Add(time.Second)
		h.g.tick()
	case n < 66:
		h.model.put()
	case n < 68:
		h.g.prop.command(sealCommand()) //nolint:errcheck // the model does not care
	case n < 69:
		h.model.dropTopic()
	case n < 70:
		h.model.purge()
	case n < 73:
		h.churn.act()
	case n < 76:
		if ids := chooseMerge(h.g.machine.log.Segments(), nil, int64(1+h.rng.Intn(8))<<10, 1<<40); len(ids) > 0 {
			h.g.prop.command(mergeCommand(ids)) //nolint:errcheck // as for the seal
		}
	case n < 85:
		h.pins.act()
	default:
		if len(h.subs) > 0 {
			h.subs[h.rng.Intn(len(h.subs))].act()
		}
	}
}

// crash takes the power and leaves what is on the disk.
func (h *history) crash() {
	if h.left == nil {
		h.left = h.disk.CrashClone(h.rng)
	}
	if h.g != nil {
		h.count()
		h.g.out.step() // what was posted may have been on the wire already
		h.model.remember()
		h.churn.resolve()
	}
	h.model.crash()
	h.pins.crash()
	h.disk, h.g, h.subs = h.left, nil, nil
	h.note(-1, h.life)
}

// settleDown consumes what is left and checks that nothing is missing.
func (h *history) settleDown() {
	h.last = true
	h.quiet()
	for _, s := range h.subs {
		s.leave()
	}
	for i := range h.model.groups {
		s := h.subscribeTo(i, kernel.MemberOptions{})
		if s == nil {
			return
		}
		s.m.Credit(1 << 20)
	}
	h.pins.settleDown()
	for range 4 {
		h.quiet()
		h.g.tick() // what could not be buried is tried again
	}
	h.quiet()
	h.check()
	h.model.nothingLeft()
	for _, s := range h.subs {
		s.acceptAll()
	}
	h.quiet()
	h.check()
	h.model.allSettled()
	h.pins.nothingLeft()
	h.count()
}
