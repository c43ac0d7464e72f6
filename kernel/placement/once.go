package placement

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"

	"github.com/trivium-mq/trivium/kernel"
)

// maxSession is the longest name of a session.
const maxSession = 2 * maxName

// AppendOnce is Append of a record that is stored once: the use of the number is
// noted in the entry that carries the record, and the machine drops a record whose
// use it has noted before. Its id is noted for each target by itself, and the targets
// drop it that have it. A dropped one completes without error. If a target is
// full and rejects a record with a number, or that is Whole, nobody gets it, and the
// number stays unused: the error is that of IsQueueFull.
func (g *Group) AppendOnce(set *TargetSet, r *kernel.Record, once kernel.Once, done kernel.Completion, token uint64) error {
	if g.volatile { // what a number would be a repeat of goes with the process
		once = kernel.Once{ID: once.ID, Whole: once.Session != "" || once.Whole}
		if err := g.partitionRoom(set); err != nil {
			return err
		}
	}
	return g.publish(&publication{set: set, r: r, once: once, done: done, token: token})
}

// ReleaseOnce frees numbers of a session: they may be used again. Releasing twice
// changes nothing. done.Completed(token) follows when that is committed; an error
// means that it is not called.
func (g *Group) ReleaseOnce(session string, numbers []uint16, done kernel.Completion, token uint64) error {
	b := appendString([]byte{cmdRelease}, session)
	b = binary.AppendUvarint(b, uint64(len(numbers)))
	for _, n := range numbers {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return g.prop.post(b, done, token)
}

// ForgetSession drops all that is kept of the numbers of a session. What is pinned to
// it is refused. A missing one is no error.
func (g *Group) ForgetSession(ctx context.Context, session string) error {
	if !g.machine.hasLedger(session) {
		return nil
	}
	_, err := g.do(ctx, appendString([]byte{cmdForget}, session))
	return err
}

// Used returns the numbers of a session that are in use, with the count of the
// use, and the highest count of all its uses. What is under way at the time of the
// call is waited for.
func (g *Group) Used(ctx context.Context, session string) (used map[uint16]uint64, high uint64, err error) {
	if _, err := g.do(ctx, barrierCommand()); err != nil {
		return nil, 0, err
	}
	g.machine.mu.Lock()
	defer g.machine.mu.Unlock()
	if l := g.machine.ledgers[session]; l != nil {
		return maps.Clone(l.used), l.high, nil
	}
	return nil, 0, nil
}

// Sessions lists the sessions of whose numbers something is kept.
func (g *Group) Sessions() []string {
	g.machine.mu.Lock()
	defer g.machine.mu.Unlock()
	list := make([]string, 0, len(g.machine.ledgers))
	for session := range g.machine.ledgers {
		if !isOrphanage(session) {
			list = append(list, session)
		}
	}
	return list
}

func (m *machine) hasLedger(session string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledgers[session] != nil
}

// post adds a command whose outcome goes to a completion.
func (p *proposer) post(body []byte, done kernel.Completion, token uint64) error {
	p.mu.Lock()
	if p.stopped || p.term == 0 {
		defer p.mu.Unlock()
		if p.stopped {
			return errStopped
		}
		return errNotLeading
	}
	d := p.draftFor(len(body))
	d.post(body, done, token)
	p.added(d, len(body))
	due := p.due()
	p.mu.Unlock()
	if due {
		p.seal()
	}
	return nil
}

// post adds a command that a completion hears of.
func (d *draft) post(body []byte, done kernel.Completion, token uint64) {
	d.commands = append(d.commands, body)
	d.flight.commands = append(d.flight.commands, nil) // keeps the answers in step
	if done != nil {
		d.flight.pend = append(d.flight.pend, pending{done, token, noBatch, 0})
	}
}

// appendOnceSection says which use of a number the batch that follows is.
func appendOnceSection(dst []byte, o *kernel.Once) []byte {
	dst = appendString(append(dst, sectionOnce), o.Session)
	dst = binary.AppendUvarint(dst, uint64(o.Number))
	return binary.AppendUvarint(dst, o.Count)
}

// onceSize is an upper bound of what is said before a batch that is stored once.
func onceSize(o *kernel.Once) (n int) {
	if o.Session != "" {
		n = 1 + 3 + len(o.Session) + 3 + binary.MaxVarintLen64
	}
	if o.ID != (kernel.DedupID{}) {
		n += idSize
	}
	return n
}

// once reads what appendOnceSection wrote after the kind byte.
func (d *decoder) once() kernel.Once {
	return kernel.Once{Session: d.string(), Number: d.number(), Count: d.uvarint()}
}

// repeated takes the use that the next batch is of, if it is one, and says whether
// it has been noted before; if not, it is now.
func (m *machine) repeated() bool {
	once := m.once
	m.once = kernel.Once{}
	return once.Session != "" && !m.ledgers.of(once.Session).note(once.Number, once.Count)
}

// note notes a use. It returns false for one that is not new.
func (l *ledger) note(number uint16, count uint64) bool {
	if count <= l.high {
		return false
	}
	l.high = count
	l.use(number, count)
	return true
}

func (l *ledger) use(number uint16, count uint64) {
	if l.used == nil {
		l.used = make(map[uint16]uint64)
	}
	l.used[number] = count
}

func (m *machine) release(d *decoder) {
	l := m.ledgers[d.string()]
	for n := d.count(1); n > 0 && d.err == nil; n-- {
		if number := d.number(); l != nil {
			delete(l.used, number)
		}
	}
	if l != nil && len(l.used) == 0 {
		l.used = nil // a map does not shrink
	}
}

// checkOnce refuses what cannot be logged.
func checkOnce(o *kernel.Once) error {
	if o.Session == "" || len(o.Session) > maxSession || o.Count == 0 {
		return fmt.Errorf("%w: use of a number", errFormat)
	}
	return nil
}
