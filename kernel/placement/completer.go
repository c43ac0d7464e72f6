package placement

import (
	"errors"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// errand is what the completer is asked to do: answer a flight, or run a
// function in its place in the order.
type errand struct {
	flight *flight
	call   func()
}

// completer answers flights in the order in which they are resolved: it writes
// the keyed state, runs publishers' completions, sends commands' results. One
// goroutine steps it.
type completer struct {
	box    mailbox[errand]
	write  func([]keyedWrite) error // keyed writes of entries, in their order
	landed func([]*flight)
	failed func(error)
	commit *Histogram
	clock  clock
	manual bool // who waits for it has to step it

	flush  []kernel.Completion // told something in this step
	marked map[kernel.Completion]struct{}
	done   []*flight
	writes []keyedWrite
}

// keyedWrite is the keyed writes of one entry.
type keyedWrite struct {
	index uint64
	puts  [][]byte
}

// maxKeyedWrite is how many bytes of keyed writes of several entries are written
// together: one after the other they cost a commit each, which a start that
// replays many has no time for.
const maxKeyedWrite = 256 << 10

func newCompleter(c clock, h *Histogram) *completer {
	return &completer{box: newMailbox[errand](), clock: c, commit: h, marked: make(map[kernel.Completion]struct{})}
}

func (c *completer) post(flights ...*flight) {
	for _, f := range flights {
		c.box.post(errand{flight: f})
	}
}

// run runs fn in its place in the order, and returns its result.
func (c *completer) run(fn func() error) error {
	done := make(chan error, 1)
	if !c.box.post(errand{call: func() { done <- fn() }}) {
		return errStopped
	}
	for c.manual && c.step() {
	}
	return <-done
}

// early answers the publishes of a flight that has not even been proposed.
func (c *completer) early(f *flight) {
	c.post(&flight{pend: slices.Clone(f.pend)})
	f.pend = f.pend[:0]
}

// step answers all that has been posted and says whether that was anything.
func (c *completer) step() bool {
	errands := c.box.take()
	if len(errands) == 0 {
		c.box.give(errands)
		return false
	}
	now := c.clock.mono()
	for i := 0; i < len(errands); {
		if call := errands[i].call; call != nil {
			call()
			i++
			continue
		}
		n, err := c.writeKeyed(errands[i:])
		for _, e := range errands[i : i+n] {
			if err != nil && len(e.flight.keyed) > 0 {
				e.flight.err = err
			}
			c.answer(e.flight, now)
			c.done = append(c.done, e.flight)
		}
		i += n
	}
	for _, done := range c.flush {
		done.Flush()
	}
	clear(c.flush)
	c.flush = c.flush[:0]
	clear(c.marked)
	c.landed(c.done)
	clear(c.done)
	c.done = c.done[:0]
	c.box.give(errands)
	return true
}

// writeKeyed does the keyed writes of the flights at the begin of the list, and
// returns how many flights that are.
func (c *completer) writeKeyed(list []errand) (n int, err error) {
	size := 0
	for n < len(list) && list[n].call == nil && size < maxKeyedWrite {
		f := list[n].flight
		n++
		if len(f.keyed) == 0 {
			continue
		}
		for _, put := range f.keyed {
			size += len(put)
		}
		c.writes = append(c.writes, keyedWrite{f.index, f.keyed})
	}
	if len(c.writes) == 0 {
		return n, nil
	}
	err = c.write(c.writes)
	clear(c.writes)
	c.writes = c.writes[:0]
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, vfs.ErrNoSpace) { // else the group stops anyway
		c.failed(err)
	}
	return n, kernel.Errorf(kernel.CodeUnknown, "", "", "keyed state: %v", err)
}

func (c *completer) answer(f *flight, now int64) {
	if f.born != 0 && f.err == nil {
		c.commit.Observe(now - f.born)
	}
	var last kernel.Completion
	for i := range f.pend {
		p := &f.pend[i]
		p.done.Completed(p.token, f.result(p))
		if p.done != last {
			last = p.done
			c.mark(last)
		}
	}
	for i, ch := range f.commands {
		if ch == nil {
			continue // a completion has been told
		}
		res := commandResult{err: f.err}
		if f.err == nil {
			res = f.answers[i]
		}
		ch <- res
	}
}

// mark notes that a completion is to be flushed, once per step.
func (c *completer) mark(done kernel.Completion) {
	if n := len(c.flush); n > 0 && n <= 8 {
		if slices.Contains(c.flush, done) {
			return
		}
	} else if n > 8 {
		if len(c.marked) == 0 {
			for _, d := range c.flush {
				c.marked[d] = struct{}{}
			}
		}
		if _, ok := c.marked[done]; ok {
			return
		}
		c.marked[done] = struct{}{}
	}
	c.flush = append(c.flush, done)
}
