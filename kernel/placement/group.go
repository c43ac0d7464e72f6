package placement

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// Group is one placement group on this node. Its methods are safe for
// concurrent use. Those that wait must not be called from a Consumer, a
// Completion or any other function that the group calls.
type Group struct {
	cfg      Config
	limits   Limits
	clock    clock
	volatile bool

	metrics Metrics
	prop    *proposer
	out     *completer
	under   *undertaker
	machine *machine
	shards  []*shard
	sealer  *sealer
	disk    disk
	budget  budget
	keyed   *keyed
	puller  *puller // nil: nothing is sealed
	sent    sentCheckpoints
	turn    turn
	sole    bool                            // as of the start, see alone
	raft    atomic.Pointer[raftgroup.Group] // nil: not open yet, volatile, or a simulation
	sets    setTable

	leading atomic.Uint64 // term of the leadership, 0 = none; ready follows when the shards do
	ready   readiness
	drivers drivers
	close   sync.Once
	closing func() error // ends the log under the group
}

// newGroup makes the parts and wires them, without a log and goroutines.
func newGroup(cfg Config) *Group {
	if cfg.Shards <= 0 {
		cfg.Shards = runtime.GOMAXPROCS(0)
	}
	if cfg.Boot == 0 {
		cfg.Boot = randomBoot()
	}
	g := &Group{cfg: cfg, limits: cfg.Limits.withDefaults(), clock: newClock(cfg.Now), under: newUndertaker(cfg.Bury)}
	g.out = newCompleter(g.clock, &g.metrics.CommitTime)
	g.prop = newProposer(cfg.Boot, g.limits.InFlightBytes, g.out, g.clock)
	for i := range cfg.Shards {
		s := newShard(i, g.clock, g.prop, &g.metrics)
		s.budget = &g.budget
		s.log, s.under = cfg.Logger, g.under
		g.shards = append(g.shards, s)
	}
	g.machine = newMachine(g.shards, &g.metrics)
	g.machine.prop, g.machine.out, g.machine.fail = g.prop, g.out, g.fail
	g.machine.sealBytes, g.machine.nextSeal = g.limits.SealBytes, g.limits.SealBytes
	g.out.failed = g.fail
	g.out.landed = func(flights []*flight) {
		g.changed(flights)
		g.prop.landed(flights)
		g.disk.wrote(g.metrics.Bytes.Load())
	}
	g.out.write = func(list []keyedWrite) error {
		if err := g.keyed.write(list); err != nil {
			return err
		}
		return g.told(list)
	}
	g.keyed = &keyed{}
	g.ready.init(g.leading.Load)
	return g
}

// OpenVolatile opens a group that lives in memory: what is published to it is
// confirmed when it is in memory, and gone when the process ends. Its topics
// should have retention Delete; keyed state is refused.
func OpenVolatile(cfg Config) (*Group, error) {
	g := newGroup(cfg)
	g.volatile = true
	g.machine.log = slog.NewVolatile()
	g.machine.shown.Store(g.machine.log)
	g.prop.room = g.volatileRoom
	l := newMemLog(g.machine)
	g.prop.log = l
	g.closing = l.Close
	g.drivers.start(g)
	go l.run() // until Close
	g.onLead(memTerm)
	return g, nil
}

func (g *Group) volatileRoom() error {
	if g.machine.log.Bytes() > g.limits.VolatileBytes {
		return errFull
	}
	return g.held()
}

// onLead begins to serve: everything committed before term has been applied.
func (g *Group) onLead(term uint64) {
	g.onUnlead()
	g.machine.mu.Lock()
	g.clock.notBefore(g.machine.time)
	g.machine.mu.Unlock()
	g.leading.Store(term)
	g.disk.led()
	g.prop.reached(term)
	g.prop.lead(term)
	// Others are told when the shards and the keyed state have come as far.
	left := new(atomic.Int32)
	left.Store(int32(len(g.shards)) + 1)
	come := func() {
		if left.Add(-1) == 0 {
			g.ready.set(term)
		}
	}
	for _, s := range g.shards {
		s.post([]event{{kind: evLead, n: int64(term), call: come}})
	}
	g.out.box.post(errand{call: come})
}

// onUnlead ends serving.
func (g *Group) onUnlead() {
	if g.leading.Swap(0) == 0 {
		return
	}
	g.ready.set(0)
	g.prop.unlead()
	for _, s := range g.shards {
		s.post([]event{{kind: evUnlead}})
	}
}

// fail stops the group for good: it cannot follow its log.
func (g *Group) fail(err error) {
	g.cfg.Logger.Error().Err(err).Uint32("placement", g.cfg.ID).Msg("placement group has failed")
	g.leading.Store(0)
	g.ready.set(0)
	// The caller holds locks of the machine; whoever is told may close us.
	g.drivers.once(func() {
		g.prop.unlead()
		if g.cfg.OnFailure != nil {
			g.cfg.OnFailure(err)
		}
	})
}

// Close stops the group: publishes in flight whose outcome is not known are
// completed with CodeUnknown, consumers get Ended. Nothing is left running.
// Idempotent.
func (g *Group) Close() {
	g.close.Do(func() {
		g.flush()
		g.sealLast()
		g.ready.close()
		g.prop.stop()
		if err := g.closing(); err != nil {
			g.cfg.Logger.Warn().Err(err).Uint32("placement", g.cfg.ID).Msg("closing the log")
		}
		g.drivers.stop(g)
		if err := g.machine.log.Close(); err != nil {
			g.cfg.Logger.Warn().Err(err).Uint32("placement", g.cfg.ID).Msg("closing the segments")
		}
	})
}

// flush ends hand-outs, and has what members have settled logged before the end,
// and what was handed out.
func (g *Group) flush() {
	if g.leading.Load() == 0 {
		return
	}
	for range 2 { // the second is served after all that was there at the first
		for _, s := range g.shards {
			s.call(s.finish)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	g.commitSettled(ctx)
}

// Flush has what members have settled logged, and waits for that until ctx ends: before
// the leadership is passed on, as what waits for company then would come again. Members
// go on, also when the leadership stays.
func (g *Group) Flush(ctx context.Context) {
	if g.leading.Load() == 0 {
		return
	}
	for range 2 { // as in flush
		for _, s := range g.shards {
			s.call(func() {})
		}
	}
	g.commitSettled(ctx)
}

// commitSettled sends what the shards have settled, and waits for its commit.
func (g *Group) commitSettled(ctx context.Context) {
	if _, err := g.do(ctx, barrierCommand()); err != nil {
		g.cfg.Logger.Warn().Err(err).Uint32("placement", g.cfg.ID).Msg("what was settled last may come again")
	}
}

// Ready returns nil while the group leads and serves, else CodeUnavailable.
func (g *Group) Ready() error { return g.ready.err() }

// WaitReady waits until the group leads and serves: the whole log has been
// applied, to the groups and to the keyed state.
func (g *Group) WaitReady(ctx context.Context) error { return g.ready.wait(ctx) }

// Metrics returns the group's counters.
func (g *Group) Metrics() *Metrics { return &g.metrics }

// Append adds r to every partition of set, in the order of the calls. It
// copies r. An error (CodeTooLarge; CodeUnavailable: not leading or stopped;
// CodePressure: the disk is low, or Config.Hold says so; CodeLimit: a volatile group is full, or far too much is in
// flight) means that nothing happened; otherwise done.Completed(token) follows
// exactly once, on a goroutine of the group. done may be nil; its dynamic type
// must be comparable (a pointer). It does not wait: see Wait. A target that is
// full and rejects (IsQueueFull) is left out and is the outcome, perhaps from
// within the call.
func (g *Group) Append(set *TargetSet, r *kernel.Record, done kernel.Completion, token uint64) error {
	if g.volatile {
		if err := g.partitionRoom(set); err != nil {
			return err
		}
	}
	return g.publish(&publication{set: set, r: r, done: done, token: token})
}

func (g *Group) partitionRoom(set *TargetSet) error {
	for _, id := range set.parts {
		if p := g.machine.partition(id); p != nil && p.log.Bytes() > g.limits.VolatilePartitionBytes {
			return errFull
		}
	}
	return nil
}

// AppendBatch adds a ready RecordBatch, which the caller has validated and the
// group copies, to a partition. A batch with a producer id is checked when
// applied: a repeated one completes with the offset of the first, else
// CodeSequenceGap or CodeFenced. Errors as for Append, CodeCorrupt for bytes that
// are not exactly one batch, and CodeLimit for a full group that rejects.
func (g *Group) AppendBatch(p PartitionID, batch []byte, done kernel.Completion, token uint64) error {
	if len(batch) > g.limits.RecordBytes {
		return errTooLarge
	}
	if err := checkBatch(batch); err != nil {
		return kernel.Errorf(kernel.CodeCorrupt, "batch", "", "%v", err)
	}
	set := g.Targets(p)
	if g.volatile {
		if err := g.partitionRoom(set); err != nil {
			return err
		}
	}
	return g.prop.appendBatch(set, batch, done, token)
}

// Wait holds a publisher back while more bytes are in flight than the budget
// allows, at most two seconds or until stop is closed; then it is Append's to
// refuse. It returns CodeUnavailable if the group has stopped.
func (g *Group) Wait(stop <-chan struct{}) error { return g.prop.wait(stop) }

// Topics lists the topics in the group.
func (g *Group) Topics() []TopicInfo { return g.machine.topicInfos() }

// Groups lists the share groups in the group.
func (g *Group) Groups() []GroupInfo { return g.machine.groupInfos() }

// Published returns how many records were appended to a topic since the
// process started (replayed ones included).
func (g *Group) Published(id kernel.TopicID) uint64 {
	if t := g.machine.topic(id); t != nil {
		return t.published.Load()
	}
	return 0
}

// Stats returns the state of a share group: records available, records held,
// members (pull members not counted), and how many records were handed out
// and settled since the process started. Zeros if it does not exist. It is
// cheap.
func (g *Group) Stats(id GroupID) (ready, held int64, members int, delivered, settled uint64) {
	sh := g.machine.share(id)
	if sh == nil {
		return 0, 0, 0, 0, 0
	}
	st := &sh.stat
	ready = st.ready.Load()
	if seen := st.seen.Load(); seen >= 0 {
		ready += max(0, sh.topic.ends.Load()-seen)
	}
	return ready, st.held.Load(), int(st.consumers.Load()), st.delivered.Load(), st.settled.Load()
}

// Count is Stats without its haste: it asks the group's goroutine, so that all
// publishes completed and settlements made before are counted.
func (g *Group) Count(id GroupID) (ready, held int64, members int) {
	sh := g.machine.share(id)
	if sh == nil {
		return 0, 0, 0
	}
	s := sh.topic.shard
	s.call(func() { // what members have said before is taken in before
		if !sh.gone {
			sh.extend()
			if s.touch(sh); sh.minded {
				s.tend(sh)
			}
			sh.publish()
		}
	})
	return sh.stat.ready.Load(), sh.stat.held.Load(), int(sh.stat.consumers.Load())
}

// Join adds a member to a share group: CodeNotFound, CodeAccessRefused (one
// side wants to be alone). Of opt it reads AutoSettle, Exclusive, Pull and
// Tag. to may be nil with Pull.
func (g *Group) Join(id GroupID, opt kernel.MemberOptions, to kernel.Consumer) (*Member, error) {
	sh := g.machine.share(id)
	if sh == nil {
		return nil, noGroup(id)
	}
	if to == nil && !opt.Pull {
		return nil, kernel.Errorf(kernel.CodeInvalid, "group", sh.spec.Address.Group, "a member without consumer can only pull")
	}
	var m *Member
	err := error(errStopped)
	s := sh.topic.shard
	s.call(func() { m, err = s.join(sh, opt, to) })
	return m, err
}

// Partition opens a partition for reading: CodeNotFound.
func (g *Group) Partition(id PartitionID) (*Partition, error) {
	p := g.machine.partition(id)
	if p == nil {
		return nil, kernel.Errorf(kernel.CodeNotFound, "partition", fmt.Sprint(id), "it is not in the placement group")
	}
	return &Partition{p}, nil
}
