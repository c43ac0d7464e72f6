package raftgroup

import (
	"errors"
	"fmt"
	"io"
	"math/rand"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// simTally is a replica of a simulated group with the machine of these tests.
type simTally struct {
	disk    *vfs.MemFS
	fault   *vfs.Fault
	left    *vfs.MemFS // set when the power has failed
	node    *SimNode   // nil: it is down
	machine *tally
	store   *checkpoint.Store
}

type simWorld struct {
	rng       *rand.Rand
	net       *SimNet
	nodes     []*simTally
	committed map[uint64]string
	failed    map[string]bool // certainly not in the log
	proposed  int
	last      bool // nothing more goes wrong
	err       error
}

func newSimWorld(seed int64, size int) *simWorld {
	w := &simWorld{rng: rand.New(rand.NewSource(seed)), committed: map[uint64]string{}, failed: map[string]bool{}}
	ids := []string{"a", "b", "c", "d", "e"}[:size]
	w.net = NewSimNet(w.rng, ids...)
	w.net.Seen = func(l *raft.Log) {
		if w.committed[l.Index] = string(l.Data); w.failed[string(l.Data)] {
			w.err = fmt.Errorf("%s was refused and is committed", l.Data)
		}
	}
	for range ids {
		w.nodes = append(w.nodes, &simTally{disk: vfs.NewMem()})
	}
	return w
}

func (w *simWorld) start(i int) error {
	n := w.nodes[i]
	disk := vfs.NewFault(n.disk)
	if n.fault = disk; !w.last && w.rng.Intn(2) == 0 {
		disk.Add(vfs.Rule{After: w.rng.Intn(150), Err: io.ErrClosedPipe, Before: func(vfs.Op, string) {
			if n.left == nil {
				n.left = n.disk.CrashClone(w.rng)
			}
		}})
	}
	log, err := wal.Open(disk, "wal", wal.Options{FileSize: 8 << 10, NoAhead: true, Rand: w.rng})
	if err != nil {
		return err
	}
	if n.store, err = checkpoint.Open(disk, "checkpoints"); err != nil {
		return err
	}
	n.machine = newTally()
	meta, r, err := n.store.Latest()
	if err == nil {
		err = errors.Join(n.machine.Restore(meta, r), r.Close())
	}
	if err != nil && !errors.Is(err, checkpoint.ErrNone) {
		return err
	}
	began, rate := w.net.Now(), int64(95+w.rng.Intn(11))
	n.node, err = w.net.Start(i, SimConfig{Log: log.Group(1), Checkpoints: n.store, Machine: n.machine, Restored: meta, KeepBytes: 1,
		Mono:  func() int64 { return int64(w.net.Now()-began) * rate / 100 },
		Watch: func(Leadership) {}})
	return err
}

func (w *simWorld) crash(i int) {
	n := w.nodes[i]
	w.net.Drop(i)
	if n.left == nil {
		n.left = n.disk.CrashClone(w.rng)
	}
	n.disk, n.left, n.node = n.left, nil, nil
}

// act does one thing at random with one node.
func (w *simWorld) act(i int) {
	n := w.nodes[i]
	if n.left != nil || n.node != nil && w.rng.Intn(60) == 0 {
		w.crash(i)
		return
	}
	if n.node == nil {
		if w.rng.Intn(4) == 0 {
			w.revive(i)
		}
		return
	}
	switch k := w.rng.Intn(20); {
	case k < 6:
		w.proposed++
		data := fmt.Sprint(w.proposed)
		n.node.Propose([]byte(data), func(err error) {
			if errors.Is(err, ErrNotApplied) {
				w.failed[data] = true
			}
		})
	case k < 12:
		_, _ = n.node.Step(1 + w.rng.Intn(5)) // the disk says when it has failed
	case k < 15:
		n.node.Call()
	case k < 16:
		n.node.Transfer(w.rng.Intn(len(w.nodes)))
	case k < 17:
		n.node.Sleep(time.Duration(w.rng.Intn(200)) * time.Millisecond)
	case k < 18:
		l := w.net.Link(i, w.rng.Intn(len(w.nodes)))
		*l = SimLink{Cut: w.rng.Intn(3) == 0, Loss: w.rng.Intn(40), Delay: time.Duration(w.rng.Intn(60)) * time.Millisecond}
	default:
		w.checkpoint(n)
	}
}

func (w *simWorld) revive(i int) {
	if err := w.start(i); err != nil && w.nodes[i].left == nil {
		w.err = err
	}
}

func (w *simWorld) checkpoint(n *simTally) {
	index, state := n.machine.encode()
	if index == 0 {
		return
	}
	meta, err := n.node.CheckpointMeta(index)
	if err == nil {
		err = n.store.Write(meta, func(w io.Writer) error { _, err := w.Write(state); return err })
	}
	if err == nil {
		err = n.node.Cut(index)
	}
	if err != nil && n.left == nil {
		w.err = err
	}
}

func (w *simWorld) run() error {
	for range 400 {
		w.act(w.rng.Intn(len(w.nodes)))
		if w.rng.Intn(3) == 0 {
			w.net.Advance(time.Duration(w.rng.Intn(30)) * time.Millisecond)
		}
		if w.err != nil || w.net.Broken != "" {
			return fmt.Errorf("%w %s", w.err, w.net.Broken)
		}
	}
	w.net.Heal()
	w.last = true
	for _, n := range w.nodes {
		if n.fault != nil {
			n.fault.Clear()
		}
	}
	for range 300 {
		for i, n := range w.nodes {
			if n.left != nil {
				w.crash(i)
			}
			if n.node == nil {
				w.revive(i)
				continue
			}
			_, _ = n.node.Step(100)
			n.node.Call()
		}
		w.net.Advance(20 * time.Millisecond)
	}
	return w.same()
}

// same compares the replicas, at the end.
func (w *simWorld) same() error {
	errs := []error{w.err}
	first := w.nodes[0].machine
	for i, n := range w.nodes {
		errs = append(errs, n.machine.errs...)
		if index, _, sum := n.machine.state(); n.node == nil || index != first.index || sum != first.sum {
			errs = append(errs, fmt.Errorf("node %d is at %d (%x), the first one at %d (%x)", i, index, sum, first.index, first.sum))
		}
		for data, at := range n.machine.seen {
			if w.committed[at] != data {
				errs = append(errs, fmt.Errorf("node %d has applied %s at %d, committed is %s", i, data, at, w.committed[at]))
			}
		}
	}
	return errors.Join(errs...)
}

// TestSimNet: replicas that crash, sleep and lose messages come to the same state, and
// nobody ever applies what was not committed.
func TestSimNet(t *testing.T) {
	var all SimNet
	for seed := range int64(300) {
		w := newSimWorld(seed, 3+int(seed%2)*2)
		if err := w.run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		all.Elections += w.net.Elections
		all.Truncations += w.net.Truncations
		all.Installs += w.net.Installs
		all.Transfers += w.net.Transfers
		all.committed += w.net.committed
	}
	t.Logf("%d elections, %d ends of logs cut off, %d checkpoints sent, %d transfers, %d entries", all.Elections, all.Truncations, all.Installs, all.Transfers, all.committed)
	if all.Elections < 1000 || all.Truncations < 30 || all.Installs < 50 || all.Transfers < 100 {
		t.Error("that is too little")
	}
}
