package wal

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hashicorp/raft"

	"github.com/trivium-mq/trivium/storage/vfs"
)

// request is one caller's change of one group, waiting for its round.
type request struct {
	group *Group
	kind  uint8
	logs  []*raft.Log // kindEntry, kindCopy
	sums  []uint32    // of logs
	from  []loc       // kindCopy: where the entries are, as far as is known
	index uint64      // kindCut, kindTrunc
	data  []byte      // kindStable

	err  error
	wake chan bool // true: become the writer; false: done
}

func newRequest(g *Group, kind uint8) *request {
	r, _ := g.w.requests.Get().(*request)
	if r == nil {
		r = &request{wake: make(chan bool, 1)}
	}
	r.group, r.kind = g, kind
	return r
}

func (r *request) free() {
	pool := &r.group.w.requests
	clear(r.sums)
	*r = request{wake: r.wake, sums: r.sums[:0]}
	pool.Put(r)
}

func (r *request) control() bool { return r.kind != kindEntry && r.kind != kindCopy }

// size is what the request takes in the file.
func (r *request) size() int64 {
	if r.control() {
		return frameSize(int64(len(r.data)), 0)
	}
	var n int64
	for _, l := range r.logs {
		n += frameSize(int64(len(l.Data)), int64(len(l.Extensions)))
	}
	return n
}

// submit queues r and returns its result once it is durable.
func (w *WAL) submit(r *request) error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return ErrClosed
	}
	w.queue = append(w.queue, r)
	lead := !w.busy
	w.busy = true
	w.mu.Unlock()
	if lead || <-r.wake {
		w.runRound()
	}
	return r.err
}

// runRound writes the head of the queue, whose first request is the caller's
// own, and passes the pen to the next one that waits.
func (w *WAL) runRound() {
	w.mu.Lock()
	batch := w.takeBatch()
	err := w.failed
	if w.closed {
		err = ErrClosed
	}
	w.mu.Unlock()

	if err != nil {
		for _, r := range batch {
			r.err = err
		}
	} else {
		w.write(batch)
	}

	w.mu.Lock()
	for _, r := range batch[1:] {
		r.wake <- false
	}
	w.handOver()
	w.mu.Unlock()
}

// handOver passes the pen to the next one that waits. The caller holds mu.
func (w *WAL) handOver() {
	if len(w.queue) > 0 {
		w.queue[0].wake <- true
	} else {
		w.busy = false
		w.idle.Broadcast()
	}
}

// takeBatch removes from the queue what goes into one round: at most one
// request of a group, so that each is checked against a settled state, and no
// more bytes than one sync should carry.
func (w *WAL) takeBatch() []*request {
	n, bytes := 0, int64(0)
take:
	for n < len(w.queue) {
		r := w.queue[n]
		size := r.size()
		if n > 0 && bytes+size > w.opts.MaxSyncBytes {
			break
		}
		for _, earlier := range w.queue[:n] {
			if earlier.group == r.group {
				break take
			}
		}
		bytes += size
		n++
	}
	w.round.batch = append(w.round.batch[:0], w.queue[:n]...)
	rest := copy(w.queue, w.queue[n:])
	clear(w.queue[rest:])
	w.queue = w.queue[:rest]
	return w.round.batch
}

// write is one round: check, find room, write, sync, publish. It sets the err
// of every request.
func (w *WAL) write(batch []*request) {
	accepted, total := w.round.accept(batch)
	if len(accepted) == 0 {
		return
	}
	defer w.wrote(w.writes())
	target, err := w.room(total, accepted)
	if full(err) {
		// Votes and cuts may still use the reserve of the present file.
		accepted, total = w.round.refuse(accepted, err)
		if len(accepted) == 0 {
			return
		}
		target, err = w.room(total, accepted)
	}
	if err != nil {
		if !full(err) && !errors.Is(err, ErrFailed) {
			err = w.fail(err)
		}
		w.round.refuseAll(accepted, err)
		return
	}
	w.round.begin(target)
	if target.end == fileHeaderSize {
		w.preamble(target)
	}
	for _, r := range accepted {
		w.round.add(r)
	}
	if err := w.flush(target, accepted); err != nil {
		if target != w.cur {
			_ = target.release()
		}
		w.round.refuseAll(accepted, w.fail(err))
		return
	}
	w.publish(target, accepted)
}

// full tells that there is no space or file descriptor for a new file, which is
// harmless, from a write or sync that has failed for whatever reason.
func full(err error) bool {
	return (errors.Is(err, vfs.ErrNoSpace) || errors.Is(err, vfs.ErrNoFiles)) && !errors.Is(err, ErrFailed)
}

// room returns the file that takes total more bytes: the present one or a new
// one. The new file is not yet part of the log.
func (w *WAL) room(total int64, accepted []*request) (*file, error) {
	cur, reserve := w.cur, int64(0)
	for _, r := range accepted {
		if !r.control() {
			reserve = w.opts.reserve()
		}
	}
	begin := int64(0)
	if cur.end == fileHeaderSize {
		begin = w.preambleSize()
	}
	if cur.end+begin+total+reserve <= cur.limit {
		return cur, nil
	}
	if cur.durable < cur.end { // SkipSync: only the last file may be torn
		if err := w.sync(cur); err != nil {
			return nil, w.fail(err)
		}
	}
	need := fileHeaderSize + w.preambleSize() + total + w.opts.reserve()
	return w.nextFile(cur.seq+1, max(need, w.opts.FileSize))
}

// flush writes the round and syncs. SkipSync is for entries only: files are
// removed because of cuts and copies, and a vote is a vote.
func (w *WAL) flush(f *file, accepted []*request) error {
	n, err := f.WritevAt(w.round.buffers(), f.end)
	if err != nil {
		return fmt.Errorf("wal: write %s: %w", f.name, err)
	}
	w.appended.Add(int64(n))
	f.end += int64(n)
	if w.opts.SkipSync && !slices.ContainsFunc(accepted, func(r *request) bool { return r.kind != kindEntry }) {
		return nil
	}
	return w.sync(f)
}

func (w *WAL) sync(f *file) error {
	start := w.age()
	if err := syncFile(f); err != nil {
		return fmt.Errorf("wal: sync %s: %w", f.name, err)
	}
	w.syncs.Add(1)
	w.syncTime.Add(w.age() - start)
	f.durable = f.end
	return nil
}

// fail latches an error and returns what callers get to see.
func (w *WAL) fail(cause error) error {
	err := fmt.Errorf("%w: %w", ErrFailed, cause)
	w.mu.Lock()
	first := w.failed == nil
	if first {
		w.failed = err
	}
	w.mu.Unlock()
	if first && w.opts.OnFailure != nil {
		w.opts.OnFailure(err)
	}
	return err
}

// publish makes a durable round visible to readers.
func (w *WAL) publish(f *file, accepted []*request) {
	if w.cur != f {
		w.mu.Lock()
		w.files = append(w.files, f)
		w.mu.Unlock()
		w.cur = f
	}
	locs := w.round.locs
	for _, r := range accepted {
		locs = locs[r.group.publish(r, locs):]
	}
	w.round.reset()
	w.makeAhead(f)
}
