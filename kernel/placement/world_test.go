package placement

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/kv"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// world is one history of a cluster: real groups on a simulated Raft, network, disks
// and clocks, and clients that lose their connections and come again elsewhere. Nothing
// runs but what the seed says, in its order.
//
// Not in it, because they are goroutines or outside of this package: the facade, the
// protocols, sessions, and handing over by a replica that is not whole (of which the
// outcome is simulated: somebody whole takes over, or it serves).
type world struct {
	rng     *rand.Rand
	trace   hash.Hash64
	keys    *kv.Store
	keyID   uint32
	net     *raftgroup.SimNet
	nodes   []*wnode
	last    bool // the history settles down: nothing fails any more
	jumps   bool // wall clocks are hours apart
	absence int  // how long nodes are away
	boots   uint64
	err     error

	catalog []catalog.Op // its commands, see hear
	truth   truth
	clients []client
	seen    wseen
}

// client is somebody with a connection to a node.
type client interface {
	act()
	leave() // it loses its connection
	at() *wlife
}

// wseen counts what histories have come across.
type wseen struct {
	crashes, powers, blackouts, sleeps, restored, installs, elections, truncations, transfers int
	unknown, refused, confirmed, delivered, accepted, late, again, buried, pinned, stored     int
	rebased, pulled, merges, checkpoints, pairs, turns, moves                                 int
}

// wnode is a node with its disk; life is its process.
type wnode struct {
	w    *world
	i    int
	disk *vfs.MemFS
	life *wlife // nil: it is down
	// knew is the catalog as of a checkpoint.
	knew *catalog.State
}

// wlife is one process of a node.
type wlife struct {
	*wnode
	fault *vfs.Fault
	left  *vfs.MemFS // set once the power is gone
	raft  *raftgroup.SimNode
	g     *Group
	store *checkpoint.Store
	delay bool // settlements wait
	began time.Duration
	rate  int64 // of the clock, in thousandths
	wall  time.Time
	known map[PartitionID]int64 // how far records were looked at
	knows *catalog.State        // the catalog of this node, now
	gone  bool
	// offered is a leadership that somebody else is to take.
	offered raftgroup.Leadership
}

func newWorld(seed int64, keys *kv.Store) *world {
	w := &world{rng: rand.New(rand.NewSource(seed)), trace: fnv.New64a(), keys: keys, keyID: uint32(seed) << 10}
	ids := []string{"a", "b", "c", "d", "e"}[:3+2*(w.rng.Intn(6)/5)]
	w.jumps = w.rng.Intn(8) == 0
	w.absence = []int{12, 12, 12, 60}[w.rng.Intn(4)]
	w.net = raftgroup.NewSimNet(w.rng, ids...)
	w.truth.init(w)
	w.net.Seen = w.truth.committed
	for i := range ids {
		w.nodes = append(w.nodes, &wnode{w: w, i: i, disk: vfs.NewMem(), knew: &catalog.State{}})
	}
	return w
}

func (w *world) note(values ...int) {
	var b [8]byte
	for _, v := range values {
		binary.BigEndian.PutUint64(b[:], uint64(v))
		w.trace.Write(b[:])
	}
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: "+format, append([]any{w.net.Now()}, args...)...)
	}
}

// now is the clock of the process: another rate, another time of day.
func (n *wlife) now() time.Time {
	return n.wall.Add((n.w.net.Now() - n.began) * time.Duration(n.rate) / 1000)
}

// start runs a node. It may lose its power while it does, or at any operation on the
// disk later.
func (n *wnode) start() {
	w := n.w
	w.boots++
	skew := int64(3 * time.Second)
	if w.jumps {
		skew = int64(5 * time.Hour)
	}
	l := &wlife{wnode: n, fault: vfs.NewFault(n.disk), began: w.net.Now(), rate: 960 + w.rng.Int63n(81), known: make(map[PartitionID]int64), knows: n.knew,
		wall: time.UnixMilli(1_700_000_000_000).Add(w.net.Now() + time.Duration(w.rng.Int63n(2*skew)-skew))}
	n.life = l
	if !w.last {
		l.arm()
	}
	if w.rng.Intn(6) == 0 { // the disk is full for a while
		l.fault.Add(vfs.Rule{Op: vfs.OpWrite, Name: "*.tmp", After: w.rng.Intn(10), Times: 1 + w.rng.Intn(3), Err: vfs.ErrNoSpace})
	}
	if err := l.open(); err != nil {
		if l.left == nil {
			w.failf("node %d: open: %v", n.i, err)
		}
		n.crash()
	}
}

// arm has the power fail at some operation on the disk, perhaps.
func (n *wlife) arm() {
	if n.w.rng.Intn(2) == 0 {
		n.fault.Add(vfs.Rule{After: n.w.rng.Intn(800), Err: errPower, Before: func(vfs.Op, string) {
			if n.left == nil {
				n.w.seen.powers++
				n.left = n.disk.CrashClone(n.w.rng)
			}
		}})
	}
}

func (n *wlife) open() error {
	w := n.w
	log, err := wal.Open(n.fault, "wal", wal.Options{FileSize: 8 << 10, NoAhead: true, Rand: w.rng, Now: n.now})
	if err != nil {
		return err
	}
	cfg := Config{
		ID: w.keyID + uint32(n.i), FS: n.fault, Dir: "p1", WAL: log.Group(1), KV: w.keys, Boot: w.boots,
		Shards: 1 + n.i%3, Logger: zerolog.Nop(), Now: n.now, Limits: Limits{SealBytes: 4 << 10}, Bury: n.buryLetters,
	}
	cfg.Raft.NodeID, cfg.Raft.Source = fmt.Sprint(n.i), n
	cfg.Raft.Transport = func() (raft.Transport, error) { return nil, errors.New("there is none") }
	g, store, meta, err := openState(cfg)
	if err != nil {
		return err
	}
	n.g, n.store = g, store
	g.out.manual = true
	g.disk.cramped = nil
	g.keyed.dirty.most = 1 + w.rng.Intn(6)
	g.prop.delay = func() { n.delay = true }
	g.out.failed, g.machine.fail = n.failed, n.failed
	g.machine.present.know(n.retentionOf)
	n.raft, err = w.net.Start(n.i, raftgroup.SimConfig{
		Log: log.Group(1), Checkpoints: store, Machine: wmachine{n}, Restored: meta, KeepBytes: 1,
		Mono: g.clock.mono, Watch: n.turned, OnLease: g.leased,
	})
	if err != nil {
		return err
	}
	for _, s := range g.shards {
		s.manual, s.lease = true, n.raft.Lease
	}
	if meta.Index > 0 {
		w.seen.restored++
	}
	g.prop.log, g.sealer.log = n, n
	g.puller.setInstall(n.install)
	return nil
}

// failed is told that the group cannot go on.
func (n *wlife) failed(err error) {
	if n.left == nil {
		n.w.failf("node %d has failed: %v", n.i, err)
	}
}

// turned is Group.turned without its goroutine: who is elected and is not whole gives
// the leadership to somebody who is, or serves.
func (n *wlife) turned(l raftgroup.Leadership) {
	n.offered = raftgroup.Leadership{}
	n.w.note(n.i, int(l.Term))
	if l.Leader && !n.g.Whole() {
		for i, o := range n.w.nodes {
			if o.life != nil && o.life.g.Whole() && i != n.i && n.w.rng.Intn(2) == 0 {
				n.raft.Transfer(i)
				n.offered = l
				return
			}
		}
		n.g.puller.hurry()
	}
	n.g.take(l)
}

// keep serves if nobody has taken the leadership that was offered.
func (n *wlife) keep() {
	if l := n.offered; l.Leader && !n.raft.Transferring() {
		n.offered = raftgroup.Leadership{}
		if n.raft.Leads() && n.raft.Term() == l.Term {
			n.g.puller.hurry()
			n.g.take(l)
		}
	}
}

// crash ends the process with the power of the node.
func (n *wnode) crash() {
	l := n.life
	n.w.seen.crashes++
	if l.g != nil {
		n.w.count(l)
	}
	n.w.net.Drop(n.i)
	n.life, l.gone = nil, true
	if l.left == nil {
		l.left = n.disk.CrashClone(n.w.rng)
	}
	n.disk = l.left
	for _, c := range n.w.clients {
		if c.at() == l {
			c.leave()
		}
	}
	n.w.note(-1, n.i)
	if n.w.rng.Intn(2) == 0 {
		n.w.keyID += 8 // an empty store; else one with more than the log has
	}
}

func (w *world) count(l *wlife) {
	w.seen.merges += int(l.g.metrics.Merges.Load())
	w.seen.checkpoints += int(l.g.metrics.Checkpoints.Load())
	w.seen.rebased += int(l.g.metrics.Rebased.Load())
	w.seen.pulled += int(l.g.metrics.Pulled.Load())
}

// alive ends processes whose power has gone, and says whether this one still runs.
func (n *wnode) alive() bool {
	if n.life != nil && n.life.left != nil {
		n.crash()
	}
	return n.life != nil
}

// serves says whether clients are served here.
func (n *wnode) serves() bool {
	return n.life != nil && n.life.left == nil && n.life.g.Ready() == nil
}

// step lets one part of the process work and says whether it had work.
func (n *wlife) step(part int) (busy bool) {
	switch part {
	case 0:
		k, err := n.raft.Step(1 + n.w.rng.Intn(8))
		if err != nil && n.left == nil {
			n.w.failf("node %d: step: %v", n.i, err)
		}
		n.w.truth.observe(n)
		return k > 0 || n.raft.Behind() && err == nil
	case 1:
		n.keep()
		return n.raft.Call()
	case 2:
		return n.g.out.step()
	case 3:
		return n.g.under.step()
	case 4:
		n.seal()
		return false
	default:
		return n.g.shards[part%len(n.g.shards)].step()
	}
}

// wparts is how many parts step knows; the last ones are the shards.
const wparts = 8

func (n *wlife) seal() {
	_, err := n.g.sealer.step()
	if err != nil && n.left == nil && !errors.Is(err, vfs.ErrNoSpace) && n.g.Whole() && n.g.machine.puller != nil {
		n.w.failf("node %d: seal: %v", n.i, err)
	}
}
