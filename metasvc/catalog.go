// Package metasvc runs the catalog: the Raft group that replicates the
// broker's metadata, with the pure state of package catalog in it.
package metasvc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

// CatalogGroup is the number of the catalog's Raft group.
const CatalogGroup = 0

const (
	// checkpointBytes of commands make a checkpoint due.
	checkpointBytes = 1 << 20
	// checkpointSoon is how often a small catalog that has changed gets one anyway, so
	// that it is not in the log alone for long; smallCatalog is up to which size.
	checkpointSoon = 5 * time.Second
	smallCatalog   = 1 << 20
	// keepBytes of log stay behind a checkpoint, for followers.
	keepBytes = 4 << 20
	// batch bounds how many commands share one commit.
	batch = 512
)

// Config opens a catalog.
type Config struct {
	WAL    *wal.WAL
	FS     vfs.FS
	Dir    string // of its checkpoints
	NodeID string
	// Bootstrap lists the first members, for a catalog that has nothing stored yet;
	// nil waits to be added by a leader.
	Bootstrap []raftgroup.Server
	// Transport makes the transport to other nodes; nil: this is the only one.
	Transport func() (raft.Transport, error)
	Timing    raftgroup.Timing
	// OnLead is told who leads, one call after the other. It must not block. May be
	// nil.
	OnLead func(raftgroup.Leadership)
	// OnFailure is called once if the catalog can not go on. May be nil.
	OnFailure func(error)
	Logger    zerolog.Logger
}

// Catalog is the catalog's member on this node. Safe for concurrent use.
type Catalog struct {
	cfg   Config
	store *checkpoint.Store
	group *raftgroup.Group
	log   replicator // the same
	boot  uint64
	view  atomic.Pointer[view]

	since  int64 // bytes applied since the last checkpoint; only Apply
	broken bool  // an entry could not be read, nothing after it is applied; only Apply

	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan<- outcome
	leads   bool
	turned  chan struct{} // closed and replaced when leads changes
	failed  error

	due  chan *view // cap 1: a checkpoint to write
	done chan struct{}
}

// replicator is what a catalog needs of its Raft group, or of a simulated one.
type replicator interface {
	Propose(data []byte, failed func(error))
	CheckpointMeta(index uint64) (checkpoint.Meta, error)
	Cut(index uint64) error
}

// view is the state as of a log index.
type view struct {
	state *catalog.State
	index uint64
}

type outcome struct {
	res catalog.Result
	err error
}

// Open starts the catalog: its state as of the newest checkpoint, with the log
// after it being applied. See WaitReady.
func Open(cfg Config) (*Catalog, error) {
	c, start, err := load(cfg)
	if err != nil {
		return nil, err
	}
	c.group, err = raftgroup.Open(raftgroup.Config{
		Group: cfg.WAL.Group(CatalogGroup), NodeID: cfg.NodeID, Checkpoints: c.store, Machine: machine{c},
		Restored:  start.Index,
		Bootstrap: cfg.Bootstrap,
		Transport: cfg.Transport, Timing: cfg.Timing,
		Watch: c.watch, OnFailure: c.fail, Logger: cfg.Logger,
		KeepBytes: keepBytes, MaxAppendEntries: batch,
	})
	if err != nil {
		return nil, fmt.Errorf("catalog: %w", err)
	}
	c.log = c.group
	go c.checkpoints()
	return c, nil
}

// load makes a catalog with the state of its newest checkpoint. It has no log yet, and
// no goroutine runs.
func load(cfg Config) (*Catalog, checkpoint.Meta, error) {
	c := &Catalog{
		cfg: cfg, waiting: make(map[uint64]chan<- outcome), turned: make(chan struct{}),
		due: make(chan *view, 1), done: make(chan struct{}),
	}
	var boot [8]byte
	_, _ = rand.Read(boot[:]) // never fails
	c.boot = binary.LittleEndian.Uint64(boot[:])
	var err error
	if c.store, err = checkpoint.Open(cfg.FS, cfg.Dir); err != nil {
		return nil, checkpoint.Meta{}, fmt.Errorf("catalog: %w", err)
	}
	start := &view{state: &catalog.State{}}
	meta, payload, err := c.store.Latest()
	switch {
	case errors.Is(err, checkpoint.ErrNone):
	case err != nil:
		return nil, meta, fmt.Errorf("catalog: %w", err)
	default:
		start.index = meta.Index
		start.state, err = catalog.Read(payload)
		if err = errors.Join(err, payload.Close()); err != nil {
			return nil, meta, fmt.Errorf("catalog: %w", err)
		}
	}
	c.view.Store(start)
	return c, meta, nil
}

// State returns the metadata as this node has applied it.
func (c *Catalog) State() *catalog.State { return c.view.Load().state }

// Revision returns the revision of State.
func (c *Catalog) Revision() uint64 { return c.State().Revision() }

// Do commits ops as one command and returns when it is applied here. An error
// of an op (see package catalog) means that nothing was changed, so does
// CodeUnavailable; CodeUnknown says that it may or may not happen: the command
// may be repeated.
func (c *Catalog) Do(ctx context.Context, ops ...catalog.Op) (catalog.Result, error) {
	seq, result, err := c.begin(ops)
	if err != nil {
		return catalog.Result{}, err
	}
	select {
	case o := <-result:
		return o.res, o.err
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.waiting, seq)
		c.mu.Unlock()
		return catalog.Result{}, kernel.Errorf(kernel.CodeUnknown, "", "", "the catalog has not answered yet: %v", ctx.Err())
	}
}

// begin proposes a command. Its outcome comes once, without anybody waiting for it.
func (c *Catalog) begin(ops []catalog.Op) (seq uint64, _ <-chan outcome, err error) {
	result := make(chan outcome, 1)
	c.mu.Lock()
	if c.failed != nil {
		defer c.mu.Unlock()
		return 0, nil, c.failed
	}
	c.seq++
	cmd := catalog.Command{ID: catalog.CommandID{Boot: c.boot, Seq: c.seq}, Ops: ops}
	c.waiting[cmd.ID.Seq] = result
	c.mu.Unlock()
	c.log.Propose(cmd.Append(nil), func(err error) { c.settle(cmd.ID.Seq, outcome{err: proposalError(err)}) })
	if earlyAnswer {
		c.settle(cmd.ID.Seq, outcome{res: catalog.Result{Revision: c.Revision() + 1}})
	}
	return cmd.ID.Seq, result, nil
}

func proposalError(err error) error {
	if errors.Is(err, raftgroup.ErrNotApplied) || unknownIsRefused {
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the catalog has no leader")
	}
	return kernel.Errorf(kernel.CodeUnknown, "", "", "the outcome in the catalog is unknown")
}

// settle tells the caller of a command its outcome, the first one only.
func (c *Catalog) settle(seq uint64, o outcome) {
	c.mu.Lock()
	result := c.waiting[seq]
	delete(c.waiting, seq)
	c.mu.Unlock()
	if result != nil {
		result <- o
	}
}

func (c *Catalog) watch(l raftgroup.Leadership) {
	c.mu.Lock()
	c.leads = l.Leader
	close(c.turned)
	c.turned = make(chan struct{})
	c.mu.Unlock()
	if c.cfg.OnLead != nil {
		c.cfg.OnLead(l)
	}
}

// Raft returns the catalog's Raft group.
func (c *Catalog) Raft() *raftgroup.Group { return c.group }

// Ready returns nil while this node leads the catalog, else why not.
func (c *Catalog) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.failed != nil:
		return c.failed
	case !c.leads:
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the catalog has no leader")
	}
	return nil
}

// WaitReady waits until this node leads the catalog, with everything that was
// committed before applied.
func (c *Catalog) WaitReady(ctx context.Context) error {
	for {
		c.mu.Lock()
		leads, failed, turned := c.leads, c.failed, c.turned
		c.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case leads:
			return nil
		}
		select {
		case <-turned:
		case <-ctx.Done():
			return fmt.Errorf("catalog: wait for a leader: %w", ctx.Err())
		}
	}
}

// fail latches the first failure.
func (c *Catalog) fail(err error) {
	c.mu.Lock()
	first := c.failed == nil
	if first {
		c.failed = fmt.Errorf("catalog: %w", err)
		close(c.turned)
		c.turned = make(chan struct{})
		for seq, result := range c.waiting {
			delete(c.waiting, seq)
			result <- outcome{err: proposalError(err)}
		}
	}
	c.mu.Unlock()
	if first && c.cfg.OnFailure != nil {
		c.cfg.OnFailure(err)
	}
}

// Close stops the catalog, with a checkpoint if there is something new, and waits
// for everything it started. The checkpoint has a small catalog in a second place
// beside the log.
func (c *Catalog) Close() error {
	err := c.group.Close()
	if errors.Is(err, raftgroup.ErrClosed) {
		return err
	}
	c.mu.Lock()
	failed := c.failed
	c.mu.Unlock()
	if failed == nil && err == nil {
		c.due <- c.view.Load()
	}
	close(c.due) // Apply, which sends, runs no more
	<-c.done
	return err
}

// machine is the catalog as its Raft group sees it.
type machine struct{ c *Catalog }

// Apply implements raftgroup.Machine.
func (m machine) Apply(entries []raftgroup.Entry) {
	c := m.c
	v := c.view.Load()
	if c.broken {
		return
	}
	if c.since >= checkpointBytes {
		select {
		case c.due <- v: // everything before this call counts as applied
			c.since = 0
		default:
		}
	}
	next := &view{state: v.state}
	results := make([]outcome, len(entries))
	ids := make([]catalog.CommandID, len(entries))
	for i, e := range entries {
		c.since += int64(len(e.Data))
		next.index = e.Index
		cmd, err := catalog.DecodeCommand(e.Data)
		if err != nil {
			c.broken = true
			c.fail(fmt.Errorf("entry %d: %w", e.Index, err))
			return
		}
		ids[i] = cmd.ID
		next.state, results[i].res, results[i].err = next.state.Apply(cmd.Ops)
	}
	c.view.Store(next)
	for i, id := range ids {
		if id.Boot == c.boot || foreignAnswer {
			c.settle(id.Seq, results[i])
		}
	}
}

// Restore implements raftgroup.Machine.
func (m machine) Restore(meta checkpoint.Meta, payload io.Reader) error {
	s, err := catalog.Read(payload)
	if err != nil {
		return err
	}
	if staleRestore {
		s = m.c.State()
	}
	m.c.view.Store(&view{state: s, index: meta.Index})
	m.c.since = 0
	return nil
}

// checkpoints writes the checkpoints that are due, and those of a small catalog.
func (c *Catalog) checkpoints() {
	defer close(c.done)
	soon := time.NewTicker(checkpointSoon)
	defer soon.Stop()
	seen := c.view.Load() // at the last tick: by now the log knows that it was applied
	for {
		v, open := seen, true
		select {
		case v, open = <-c.due:
			if !open {
				return
			}
		case <-soon.C:
			seen = c.view.Load()
			if list := c.store.List(); len(list) > 0 && list[0].Size > smallCatalog {
				continue
			}
		}
		if err := c.checkpoint(v); err != nil {
			c.cfg.Logger.Error().Err(err).Msg("catalog checkpoint failed; the next one is tried in its turn")
		}
	}
}

func (c *Catalog) checkpoint(v *view) error {
	if list := c.store.List(); v.index == 0 || len(list) > 0 && v.index <= list[0].Index {
		return nil
	}
	at := v.index
	if appliedTwice && len(c.store.List()) > 0 && at-1 > c.store.List()[0].Index {
		at--
	}
	meta, err := c.log.CheckpointMeta(at)
	if err != nil {
		return err
	}
	if err := c.store.Write(meta, v.state.Write); err != nil {
		return err
	}
	return c.log.Cut(at)
}
