package metasvc

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// simulation is one history of three catalogs on a simulated Raft, network and disks.
// The same seed does the same.
type simulation struct {
	rng   *rand.Rand
	net   *raftgroup.SimNet
	nodes []*simNode
	asked []*asked
	boots uint64
	last  bool
	err   error

	confirmed, unknown, refused int
}

type simNode struct {
	s     *simulation
	i     int
	disk  *vfs.MemFS
	left  *vfs.MemFS // set once the power is gone
	fault *vfs.Fault
	c     *Catalog // nil: it is down
	log   *raftgroup.SimNode
}

// asked is a command of a client, and what became of it.
type asked struct {
	node   *Catalog
	topic  kernel.Topic
	count  int64 // of producer ids; 0: it makes the topic
	result <-chan outcome
	got    *outcome
}

func (s *simulation) failf(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (n *simNode) start() {
	s := n.s
	n.fault = vfs.NewFault(n.disk)
	if !s.last && s.rng.Intn(2) == 0 {
		n.fault.Add(vfs.Rule{After: s.rng.Intn(250), Err: errors.New("power lost"), Before: func(vfs.Op, string) {
			if n.left == nil {
				n.left = n.disk.CrashClone(s.rng)
			}
		}})
	}
	if err := n.open(); err != nil {
		if n.left == nil {
			s.failf("node %d: open: %v", n.i, err)
		}
		n.crash()
	}
}

func (n *simNode) open() error {
	log, err := wal.Open(n.fault, "wal", wal.Options{FileSize: 8 << 10, NoAhead: true, Rand: n.s.rng})
	if err != nil {
		return err
	}
	c, meta, err := load(Config{WAL: log, FS: n.fault, Dir: "catalog", NodeID: fmt.Sprint(n.i), Logger: zerolog.Nop(),
		OnFailure: func(err error) { n.s.failf("node %d has failed: %v", n.i, err) }})
	if err != nil {
		return err
	}
	n.s.boots++
	c.boot = n.s.boots
	began, rate := n.s.net.Now(), 960+n.s.rng.Int63n(81)
	n.log, err = n.s.net.Start(n.i, raftgroup.SimConfig{Log: log.Group(CatalogGroup), Checkpoints: c.store, Machine: machine{c}, Restored: meta,
		KeepBytes: 1, Watch: c.watch, Mono: func() int64 { return int64(n.s.net.Now()-began) * rate / 1000 }})
	if err != nil {
		return err
	}
	c.log, n.c = n.log, c
	return nil
}

func (n *simNode) crash() {
	n.s.net.Drop(n.i)
	if n.left == nil {
		n.left = n.disk.CrashClone(n.s.rng)
	}
	n.disk, n.left, n.c, n.log = n.left, nil, nil, nil
}

// alive starts and ends processes, and says whether this one runs.
func (n *simNode) alive() bool {
	if n.left != nil {
		n.crash()
	}
	if n.c == nil && (n.s.last || n.s.rng.Intn(8) == 0) {
		n.start()
	}
	return n.c != nil && n.left == nil && n.log.Awake()
}

// ask has a client make a topic, of which several have the same name, or take producer
// ids.
func (n *simNode) ask() {
	s := n.s
	a := &asked{node: n.c}
	op := catalog.Op(nil)
	if s.rng.Intn(4) == 0 {
		a.count = 1 + s.rng.Int63n(10)
		op = catalog.TakeProducers{Count: a.count}
	} else {
		a.topic = kernel.Topic{ID: kernel.TopicID{0: byte(len(s.asked) >> 8), 1: byte(len(s.asked))}, Tenant: "/", Name: fmt.Sprint("t", s.rng.Intn(40)), Partitions: 1}
		op = catalog.PutTopic{Topic: a.topic}
	}
	var err error
	if _, a.result, err = n.c.begin([]catalog.Op{op}); err != nil {
		s.failf("node %d: %v", n.i, err)
		return
	}
	s.asked = append(s.asked, a)
}

// answers takes in what clients were told, and compares it with the state of who told
// them.
func (s *simulation) answers() {
	for _, a := range s.asked {
		if a.got != nil {
			continue
		}
		select {
		case o := <-a.result:
			a.got = &o
			switch kernel.CodeOf(o.err) {
			case kernel.CodeUnknown:
				s.unknown++
			case kernel.CodeUnavailable:
				s.refused++
			}
			if o.err == nil {
				s.confirmed++
				s.check(a, a.node.State())
			}
		default:
		}
	}
}

// check: what was confirmed is so, and what was refused is not.
func (s *simulation) check(a *asked, state *catalog.State) {
	if a.count > 0 || a.got == nil {
		return
	}
	_, there := state.TopicByID(a.topic.ID)
	switch code := kernel.CodeOf(a.got.err); {
	case a.got.err == nil && !there:
		s.failf("topic %s (%x) was confirmed and is not there", a.topic.Name, a.topic.ID[:2])
	case a.got.err != nil && code != kernel.CodeUnknown && there:
		s.failf("topic %s (%x) was refused and is there: %v", a.topic.Name, a.topic.ID[:2], a.got.err)
	}
}

func (s *simulation) act() {
	n := s.nodes[s.rng.Intn(len(s.nodes))]
	k := s.rng.Intn(100)
	if k < 25 {
		s.net.Advance(time.Duration(s.rng.Intn(20)) * time.Millisecond)
		return
	}
	if !n.alive() {
		return
	}
	switch {
	case k < 45:
		_, _ = n.log.Step(1 + s.rng.Intn(8)) // its disk says when it has failed
	case k < 55:
		n.log.Call()
	case k < 80:
		if n.c.Ready() == nil {
			n.ask()
		}
	case k < 86:
		if err := n.c.checkpoint(n.c.view.Load()); err != nil && n.left == nil {
			s.failf("node %d: checkpoint: %v", n.i, err)
		}
	case k < 88:
		n.log.Transfer(s.rng.Intn(len(s.nodes)))
	case k < 89:
		n.log.Sleep(time.Duration(s.rng.Intn(200)) * time.Millisecond)
	case k < 90:
		n.crash()
	case k < 92:
		*s.net.Link(n.i, s.rng.Intn(len(s.nodes))) = raftgroup.SimLink{Cut: s.rng.Intn(2) == 0, Loss: s.rng.Intn(50), Delay: time.Duration(s.rng.Intn(100)) * time.Millisecond}
	default:
		s.net.Heal()
	}
	s.answers()
}

// settleDown heals everything, and compares the replicas.
func (s *simulation) settleDown() {
	s.last = true
	s.net.Heal()
	for _, n := range s.nodes {
		if n.left != nil {
			n.crash() // or it would go on, on a disk that it has lost
		}
		n.fault.Clear()
	}
	for range 200 {
		s.net.Advance(20 * time.Millisecond)
		for _, n := range s.nodes {
			if n.alive() {
				_, _ = n.log.Step(1 << 10)
				n.log.Call()
			}
		}
		s.answers()
	}
	var first bytes.Buffer
	for i, n := range s.nodes {
		var b bytes.Buffer
		if n.c == nil {
			s.failf("node %d is down", i)
			return
		}
		if err := n.c.State().Write(&b); err != nil {
			s.failf("node %d: %v", i, err)
		}
		if i == 0 {
			first = b
		}
		if !bytes.Equal(first.Bytes(), b.Bytes()) {
			s.failf("node %d is at revision %d and differs from the first one at %d", i, n.c.Revision(), s.nodes[0].c.Revision())
		}
	}
	state := s.nodes[0].c.State()
	taken := make(map[int64]bool)
	revisions := make(map[uint64]bool)
	for _, a := range s.asked {
		s.check(a, state)
		if a.got == nil || a.got.err != nil {
			continue
		}
		if revisions[a.got.res.Revision] {
			s.failf("revision %d was told twice", a.got.res.Revision)
		}
		revisions[a.got.res.Revision] = true
		for id := range a.count {
			if id += a.got.res.Producers; taken[id] {
				s.failf("producer id %d was given twice", id)
			} else {
				taken[id] = true
			}
		}
	}
}

func newSimulation(seed int64) *simulation {
	s := &simulation{rng: rand.New(rand.NewSource(seed))}
	s.net = raftgroup.NewSimNet(s.rng, "a", "b", "c")
	for i := range 3 {
		n := &simNode{s: s, i: i, disk: vfs.NewMem()}
		s.nodes = append(s.nodes, n)
		n.start()
	}
	return s
}

func (s *simulation) run() error {
	for range 1000 {
		if s.act(); s.err != nil {
			return s.err
		}
	}
	s.settleDown()
	if s.net.Broken != "" {
		s.failf("%s", s.net.Broken)
	}
	return s.err
}

// sum is of all that clients were told.
func (s *simulation) sum() uint64 {
	h := fnv.New64a()
	for _, a := range s.asked {
		if a.got != nil {
			fmt.Fprintln(h, a.topic, a.got.res, a.got.err)
		}
	}
	return h.Sum64()
}

// TestCatalogHistories: what three catalogs have confirmed they have, all three alike,
// whatever happens to nodes, disks and the network. TRIVIUM_HISTORIES says how many
// histories, TRIVIUM_SEED with which to begin.
func TestCatalogHistories(t *testing.T) {
	setting := func(name string, def int64) int64 {
		if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
			return n
		}
		return def
	}
	n, first := setting("TRIVIUM_HISTORIES", 300), setting("TRIVIUM_SEED", 1)
	var confirmed, unknown, refused, installs int
	for seed := first; seed < first+n; seed++ {
		s := newSimulation(seed)
		if err := s.run(); err != nil {
			t.Fatalf("TRIVIUM_SEED=%d TRIVIUM_HISTORIES=1: %v", seed, err)
		}
		if seed%50 == 0 {
			if again := newSimulation(seed); again.run() != nil || again.sum() != s.sum() {
				t.Fatalf("seed %d does not replay", seed)
			}
		}
		confirmed, unknown, refused, installs = confirmed+s.confirmed, unknown+s.unknown, refused+s.refused, installs+s.net.Installs
	}
	t.Logf("%d confirmed, %d unknown, %d refused, %d checkpoints sent", confirmed, unknown, refused, installs)
	if n >= 300 && (confirmed < 5*int(n) || unknown < int(n)/20 || refused < int(n)/20 || installs < int(n)/20) {
		t.Error("that is too little")
	}
}
