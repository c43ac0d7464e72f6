package broker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/cluster"
)

// Alarm says whether the node is short of something.
type Alarm struct {
	On     bool
	Since  time.Time // of On
	Reason string    // for people, with the figures at that time; Node.Present has those of now
}

// Alarms are what a node may be short of. While one is on, publishes are refused
// (CodePressure); deliveries, settlements, deletions and purges go on. A snapshot
// is immutable.
type Alarms struct {
	Disk   Alarm
	Memory Alarm
	// Replicas: so many nodes are low on disk that soon no majority could write.
	Replicas Alarm
	// Leader: no node serves, as far as this one knows, or the one that does has just
	// begun, see Broker.Gather.
	Leader Alarm
}

// Any reports whether an alarm is on.
func (a *Alarms) Any() bool { return a.Disk.On || a.Memory.On || a.Replicas.On || a.Leader.On }

// Short names what the node is short of, such as "memory & disk"; "" is nothing.
func (a *Alarms) Short() string {
	var short []string
	if a.Leader.On {
		short = append(short, "nodes")
	}
	if a.Memory.On {
		short = append(short, "memory")
	}
	if a.Disk.On || a.Replicas.On {
		short = append(short, "disk")
	}
	return strings.Join(short, " & ")
}

// alarms keeps the alarms of a node.
type alarms struct {
	log zerolog.Logger
	// changed wakes who tells the connections; capacity 1.
	changed chan struct{}

	gathered atomic.Pointer[gathering] // nil = none is under way

	mu     sync.Mutex // one change at a time
	now    atomic.Pointer[Alarms]
	raised [3]atomic.Uint64 // disk, memory, replicas: how often so far

	// For Present: whether it was not for what is free that the disk was low, and what is
	// in use of the memory, and may be, in bytes.
	cramped     atomic.Bool
	used, limit atomic.Int64
}

func newAlarms(log zerolog.Logger) *alarms {
	a := &alarms{log: log, changed: make(chan struct{}, 1)}
	a.now.Store(&Alarms{})
	return a
}

// change makes a new snapshot and has the connections told of it.
func (a *alarms) change(fn func(*Alarms)) {
	a.mu.Lock()
	next := *a.now.Load()
	fn(&next)
	a.now.Store(&next)
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// disk is placement.Config.OnDisk, which logs it as well.
func (a *alarms) disk(low bool, free, floor int64) {
	a.change(func(now *Alarms) {
		now.Disk = Alarm{}
		if low {
			a.raised[0].Add(1)
			a.cramped.Store(free >= floor)
			now.Disk = Alarm{On: true, Since: time.Now(), Reason: a.diskReason(free, floor)}
		}
	})
}

// diskReason says why the disk is low that has so many bytes free.
func (a *alarms) diskReason(free, floor int64) string {
	switch {
	case free < floor:
		return fmt.Sprintf("%d MiB of the disk are free, publishes need %d MiB", free>>20, floor>>20)
	case a.cramped.Load():
		return fmt.Sprintf("%d MiB of the disk are free, but a file could not be written for want of room", free>>20)
	}
	return fmt.Sprintf("%d MiB of the disk are free, publishes that were refused need some more than %d MiB", free>>20, floor>>20)
}

func memoryReason(used, limit int64) string {
	return fmt.Sprintf("%d MiB of memory are in use, the limit is %d MiB", used>>20, limit>>20)
}

// memory raises or ends the memory alarm.
func (a *alarms) memory(on bool, used, limit int64) {
	a.used.Store(used)
	a.limit.Store(limit)
	a.change(func(now *Alarms) {
		now.Memory = Alarm{}
		if on {
			a.raised[1].Add(1)
			now.Memory = Alarm{On: true, Since: time.Now(), Reason: memoryReason(used, limit)}
		}
	})
	if on {
		a.log.Error().Int64("used", used).Int64("limit", limit).Msg("memory is low: publishes are refused")
		return
	}
	a.log.Info().Int64("used", used).Int64("limit", limit).Msg("there is memory again: publishes are taken")
}

// end forgets what concerns only a node that serves: what another one finds, or this one
// when it serves again, may be different.
func (a *alarms) end() {
	a.change(func(now *Alarms) { now.Memory, now.Replicas, now.Leader = Alarm{}, Alarm{}, Alarm{} })
}

// replicas raises or ends the alarm about the disks of nodes: low of them, of those
// that vote, or down.
func (a *alarms) replicas(on bool, low, voters int) {
	if a.now.Load().Replicas.On == on {
		return
	}
	a.change(func(now *Alarms) {
		now.Replicas = Alarm{}
		if on {
			a.raised[2].Add(1)
			now.Replicas = Alarm{On: true, Since: time.Now(), Reason: fmt.Sprintf("%d of %d nodes are low on disk or down", low, voters)}
		}
	})
	if on {
		a.log.Error().Int("low", low).Int("voters", voters).Msg("too few nodes have room on their disks: publishes are refused")
		return
	}
	a.log.Info().Msg("enough nodes have room on their disks again: publishes are taken")
}

var errLowReplicas = &kernel.Error{Code: kernel.CodePressure, Detail: "too few nodes have room on their disks"}

var errLowMemory = &kernel.Error{Code: kernel.CodePressure, Detail: "the node is low on memory"}

// hold is placement.Config.Hold. The disk is the placement group's own to refuse for.
func (a *alarms) hold() error {
	switch now := a.now.Load(); {
	case now.Memory.On:
		return errLowMemory
	case now.Replicas.On:
		return errLowReplicas
	}
	return nil
}

// Present returns what this node itself is short of, whether it serves or not, with the
// figures of now. Of the memory, and of other nodes' disks, only a node that serves refuses
// something for: another one is never said to be short of these.
func (n *Node) Present() *Alarms {
	now := *n.alarms.now.Load()
	if now.Disk.On {
		now.Disk.Reason = n.alarms.diskReason(n.durable.Disk())
	}
	if now.Memory.On {
		now.Memory.Reason = memoryReason(n.alarms.used.Load(), n.alarms.limit.Load())
	}
	return &now
}

// Present is Node.Present.
func (b *Broker) Present() *Alarms { return b.node.Present() }

// Alarms returns what the node is short of now. It costs an atomic load.
func (b *Broker) Alarms() *Alarms { return b.alarms.now.Load() }

// Alarms is Broker.Alarms.
func (c *Conn) Alarms() *Alarms { return c.b.alarms.now.Load() }

// WatchAlarms has fn called, on a goroutine of the kernel, after each change of
// Alarms; it must not block. A publish refused with CodePressure is possible again
// once Alarms says that none is on. Call it once, before publishing.
func (c *Conn) WatchAlarms(fn func()) { c.alarmed.Store(&fn) }

// watchAlarms tells the connections of changes and looks at the memory, until the
// broker closes.
func (b *Broker) watchAlarms(m *memoryGauge) {
	tick, others := time.NewTicker(memoryLook), time.NewTicker(replicasLook)
	defer tick.Stop()
	defer others.Stop()
	defer b.alarms.end()
	m.look(b.alarms)
	b.node.lookAtReplicas()
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-b.alarms.changed:
			b.mu.Lock()
			conns := b.connections()
			b.mu.Unlock()
			for _, c := range conns {
				if fn := c.alarmed.Load(); fn != nil {
					(*fn)()
				}
			}
		case <-tick.C:
			m.look(b.alarms)
		case <-others.C:
			b.node.lookAtReplicas()
		}
	}
}

// replicasLook is how often the node looks at what others have told of their disks.
const replicasLook = time.Second

// lookAtReplicas raises or ends the alarm about the disks of the nodes that vote.
func (n *Node) lookAtReplicas() { n.alarms.replicas(shortOfReplicas(n.Members(), n.lowOnDisk())) }

// shortOfReplicas reports whether the nodes that vote, less those that are low on disk
// or down, are no majority. It takes one that is low: if all that is wrong is that the
// others are not heard, this node may have hung, and does not lead then.
func shortOfReplicas(members []cluster.Member, selfLow bool) (on bool, short, voters int) {
	full := 0
	for _, m := range members {
		if m.Learner {
			continue
		}
		voters++
		low := m.Low
		if m.Self {
			low = selfLow
		}
		if low {
			full++
		}
		if low || !m.Self && !m.Reachable {
			short++
		}
	}
	return full > 0 && voters > 1 && voters-short <= voters/2, short, voters
}

// lowOnDisk is what other nodes are told.
func (n *Node) lowOnDisk() bool { return n.alarms.now.Load().Disk.On }
