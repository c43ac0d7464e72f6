package forward

import (
	"errors"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// maxFeeders bounds the publishers of a client.
const maxFeeders = 1 << 17

// feeder is the broker's end of a publisher. It implements kernel.Completion.
type feeder struct {
	session *session
	id      uint64
	p       *broker.Publisher
	mistake error // of who publishes: nothing that comes later is done; guarded by pressure.mu

	// guarded by session.out.mu
	runs       []run // outcomes that were not flushed
	came, done uint64
	over       bool                // nothing more comes
	calling    uint64              // the publish to a topic that the broker is given now, 0 = none
	early      bool                // its outcome came meanwhile
	earlyErr   error               // that outcome
	due        bool                // it is among session.due
	unmatched  map[uint64]struct{} // those without target whose outcome is to come
}

// run is a row of publishes with the same outcome.
type run struct {
	first, n uint64
	err      error
}

// feeders makes a publisher, or notes that it is over.
func (c *session) feeders(id uint64, begins bool) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	f := c.publishers[id]
	switch {
	case begins && (f != nil || len(c.publishers) >= maxFeeders):
		return fmt.Errorf("%w: one publisher too many", errMalformed)
	case begins:
		f = &feeder{session: c, id: id}
		f.p = c.conn.Publisher(f)
		c.publishers[id] = f
	case f != nil:
		f.over = true
		f.retire()
	}
	return nil
}

// retire forgets a publisher when it is over and all has its outcome. The caller holds
// out.mu.
func (f *feeder) retire() {
	if f.over && f.came == f.done {
		delete(f.session.publishers, f.id)
	}
}

// Completed implements kernel.Completion.
func (f *feeder) Completed(number uint64, res kernel.Result) {
	f.session.out.mu.Lock()
	defer f.session.out.mu.Unlock()
	if number&ofBatch != 0 {
		f.stored(number&^ofBatch, res)
		return
	}
	if number == f.calling {
		f.early, f.earlyErr = true, res.Err
		return
	}
	if _, none := f.unmatched[number]; none {
		delete(f.unmatched, number)
		res.Err = unmatched(res.Err)
	}
	f.note(number, res.Err)
}

// begin says that the broker is given a publish to a topic: how many targets it has is
// known later than its outcome may be.
func (f *feeder) begin(number uint64) {
	f.session.out.mu.Lock()
	defer f.session.out.mu.Unlock()
	f.calling, f.early = number, false
}

// begun ends begin, with what the broker has returned. An outcome that there is already
// waits for flushDue.
func (f *feeder) begun(number uint64, matched int, err error) {
	c := f.session
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	early, outcome := f.early, f.earlyErr
	f.calling, f.early, f.earlyErr = 0, false, nil
	switch {
	case err != nil: // there is no other outcome
	case !early && matched > 0:
	case !early:
		if f.unmatched == nil {
			f.unmatched = make(map[uint64]struct{})
		}
		f.unmatched[number] = struct{}{}
	default:
		if matched == 0 {
			outcome = unmatched(outcome)
		}
		if f.note(number, outcome); !f.due {
			f.due = true
			c.due = append(c.due, f)
		}
	}
}

// flushDue tells the outcomes that were there at once, of all that came together.
func (c *session) flushDue() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	for i, f := range c.due {
		c.due[i] = nil
		f.due = false
		f.flush()
	}
	c.due = c.due[:0]
}

// errUnmatched is the outcome of a publish to a topic that had no target.
var errUnmatched = errors.New("forward: no target")

func unmatched(err error) error {
	if err == nil {
		return errUnmatched
	}
	return err
}

// note notes an outcome. The caller holds out.mu.
func (f *feeder) note(number uint64, err error) {
	f.done++
	if n := len(f.runs); n > 0 && (err == nil || err == errUnmatched) {
		if last := &f.runs[n-1]; last.err == err && last.first+last.n == number {
			last.n++
			return
		}
	}
	f.runs = append(f.runs, run{number, 1, err})
}

// Flush implements kernel.Completion.
func (f *feeder) Flush() {
	f.session.out.mu.Lock()
	defer f.session.out.mu.Unlock()
	f.flush()
}

// flush tells the outcomes. The caller holds out.mu.
func (f *feeder) flush() {
	if len(f.runs) == 0 {
		return
	}
	o := &f.session.out
	start := o.begin(kindOutcomes)
	o.buf = codec.AppendUint(codec.AppendUint(o.buf, f.id), uint64(len(f.runs)))
	for i := range f.runs {
		r := &f.runs[i]
		o.buf = appendError(codec.AppendUint(codec.AppendUint(o.buf, r.first), r.n), r.err)
		r.err = nil
	}
	o.end(start)
	f.runs = f.runs[:0]
	f.retire()
}

// refuse tells that a publish was refused at once.
func (f *feeder) refuse(number uint64, err error) {
	o := &f.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	f.done++
	start := o.begin(kindDeclined)
	o.buf = appendError(codec.AppendUint(codec.AppendUint(o.buf, f.id), number), err)
	o.end(start)
	f.retire()
}

// mistaken reports whether a refusal is for what the client has asked for, and not for
// the state that the broker is in.
func mistaken(err error) bool {
	switch kernel.CodeOf(err) {
	case kernel.CodeNotFound, kernel.CodeAccessRefused, kernel.CodePrecondition, kernel.CodeInvalidName, kernel.CodeInvalid,
		kernel.CodeNotAllowed, kernel.CodeNotImplemented, kernel.CodeTooLarge:
		return true
	}
	return false
}

// answer tells how many targets a mandatory publish has, or why it was refused.
func (f *feeder) answer(number uint64, matched int, err error) {
	o := &f.session.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if matched == 0 || err != nil {
		f.done++
		f.retire()
	}
	start := o.begin(kindRouted)
	o.buf = codec.AppendUint(codec.AppendUint(o.buf, f.id), number)
	o.buf = appendError(codec.AppendInt(o.buf, int64(matched)), err)
	o.end(start)
}
