package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// A record that a member pins is passed to the vault of the member's session: a
// member of the group that nobody pushes to and that stays when connections go. When
// the group is served anew, after a restart or by another leader, the vaults take
// their records before anybody else gets any.

// pinAct is what a member wants of a record it has got.
type pinAct struct {
	op        byte
	refuse    bool // with opTake: the record is refused, and the number free
	id        kernel.PinID
	partition int32
	offset    int64
}

// Pin ties a record that the member holds to its session, under a number of the
// session's: when the consumer, a kernel.Pinner, has heard of it the record is the
// session's through any crash. Take settles it as accepted, and Refuse as refused,
// which frees the number too; Unpin frees the number of one that is taken. Taken
// is told of a Take only. The member must have joined with a Session. None of them
// blocks.
func (m *Member) Pin(id kernel.PinID, partition int32, offset int64) {
	m.pinAct(pinAct{op: opPin, id: id, partition: partition, offset: offset})
}

// Take settles a pinned record: see Pin.
func (m *Member) Take(id kernel.PinID, partition int32, offset int64) {
	m.pinAct(pinAct{op: opTake, id: id, partition: partition, offset: offset})
}

// Refuse refuses a pinned record for good: see Pin.
func (m *Member) Refuse(id kernel.PinID, partition int32, offset int64) {
	m.pinAct(pinAct{op: opTake, refuse: true, id: id, partition: partition, offset: offset})
}

// Unpin frees the number of a pinned record that is taken: see Pin.
func (m *Member) Unpin(id kernel.PinID) { m.pinAct(pinAct{op: opUnpin, id: id}) }

func (m *Member) pinAct(a pinAct) {
	m.mu.Lock()
	m.pins = append(m.pins, a)
	enlist := !m.queued
	m.queued = true
	m.mu.Unlock()
	if enlist {
		m.shard.enlist(m)
	}
}

// Hold makes the member hold records that the session held before, in place of
// getting them handed out anew, where nobody else has got them meanwhile. It waits
// for the group's goroutine, see Member.
func (m *Member) Hold(places []kernel.Place) []bool {
	held := make([]bool, len(places))
	m.shard.call(func() {
		sh := m.share
		if sh.gone || sh.members[m.id] != m {
			return
		}
		for i, p := range places {
			held[i] = sh.group.Hold(m.id, p.Partition, p.Offset)
		}
		m.shard.queue(sh)
	})
	return held
}

// Read calls fn with one record of the group's topic, and reports whether it was
// there. It waits for the group's goroutine, on which fn runs.
func (m *Member) Read(p kernel.Place, fn func(*kernel.View)) (ok bool) {
	m.shard.call(func() {
		w := m.share.window(p.Partition)
		if m.share.gone || w == nil {
			return
		}
		c := w.part.log.Cursor()
		defer c.Release()
		c.SeekTo(p.Offset)
		if v, err := c.Next(); err == nil && v != nil && v.Offset == p.Offset {
			ok = true
			fn(v)
		}
	})
	return ok
}

// pinWait is what a member is to be told when a command of changes is committed.
type pinWait struct {
	member        *Member
	pinned, taken []uint16
	offsets       []kernel.Place // of what is pinned
}

// pin does what a member wants with pins.
func (s *shard) pin(m *Member, acts []pinAct, now int64) {
	if m.session == "" || len(acts) == 0 || s.term == 0 {
		return
	}
	// Members are heard before events, so the group may have gone although the
	// shard has not seen that yet.
	if m.share.group == nil || m.share.going.Load() {
		s.pinOfNone(m, acts)
		return
	}
	sh, wait := m.share, pinWait{member: m}
	changes, n := s.changes[:0], 0
	for i := range acts {
		a := &acts[i]
		switch a.op {
		case opPin:
			w := sh.window(a.partition)
			if w == nil || sh.ghost(m, a.partition, a.offset) || !sh.group.Pass(m.id, s.vault(sh, m.session), a.partition, a.offset) {
				m.tellPinned([]uint16{a.id.Number}, errNotHeld)
				continue
			}
			changes = appendPin(changes, a.id, sh.id, w.part.id, a.offset)
			wait.pinned = append(wait.pinned, a.id.Number)
			wait.offsets = append(wait.offsets, kernel.Place{Partition: a.partition, Offset: a.offset})
		case opTake:
			changes = s.takePin(m, a, changes, &wait, now)
		default:
			changes = appendPinOp(changes, opUnpin, a.id)
		}
		n++
	}
	s.changes = changes
	s.touch(sh)
	if n == 0 {
		return
	}
	s.pins = appendPinRun(s.pins, m.session, n, changes)
	if len(wait.pinned)+len(wait.taken) > 0 {
		s.waits = append(s.waits, wait)
	}
}

// pinOfNone is pin where the group has gone: its pins are taken with it.
func (s *shard) pinOfNone(m *Member, acts []pinAct) {
	for i := range acts {
		a := &acts[i]
		number := []uint16{a.id.Number}
		switch to, _ := m.to.(kernel.Pinner); {
		case a.op == opUnpin || a.refuse:
			s.pins = appendPinRun(s.pins, m.session, 1, appendPinOp(nil, opUnpin, a.id))
		case to == nil:
		case a.op == opPin:
			to.Pinned(number, errNotHeld)
		default:
			to.Taken(number, nil)
		}
	}
}

// takePin settles a pinned record. One that is settled already was so by an earlier
// connection.
func (s *shard) takePin(m *Member, a *pinAct, changes []byte, wait *pinWait, now int64) []byte {
	outcome, op := sharegroup.Accept, byte(opTake)
	if a.refuse {
		outcome, op = sharegroup.Refuse, opUnpin
	} else {
		wait.taken = append(wait.taken, a.id.Number)
	}
	res, err := m.share.group.Settle(a.partition, sharegroup.Ack{
		Member: s.vault(m.share, m.session), First: a.offset, Last: a.offset, Outcome: outcome,
	}, now)
	if err == nil {
		m.share.stat.settled.Add(uint64(res.Records))
		s.metrics.Settled.Add(uint64(res.Records))
	}
	return appendPinOp(changes, op, a.id)
}

// vault returns the member that holds what is pinned to a session.
func (s *shard) vault(sh *share, session string) sharegroup.MemberID {
	if id, ok := sh.vaults[session]; ok {
		return id
	}
	id, err := sh.group.Join(sharegroup.Options{Pull: true})
	if err != nil {
		return 0 // nobody: pulling members are always welcome
	}
	if sh.vaults == nil {
		sh.vaults = make(map[string]sharegroup.MemberID)
	}
	sh.vaults[session] = id
	return id
}

// closeVault ends the vault of a session that holds nothing, or for good.
func (s *shard) closeVault(sh *share, session string, always bool) {
	id, ok := sh.vaults[session]
	if !ok || sh.group == nil || !always && sh.group.Held(id) > 0 {
		return
	}
	delete(sh.vaults, session)
	sh.group.Leave(id, true) //nolint:errcheck // it is a member
	if len(sh.members) == 0 {
		sh.group.Exact()
	}
	s.queue(sh)
	s.touch(sh)
}

// repin has the vaults take their records under a new leadership.
func (s *shard) repin(sh *share) {
	sh.vaults = nil
	for _, p := range placesOf(sh.pinned) {
		sh.group.Hold(s.vault(sh, sh.pinned[p]), p.Partition, p.Offset)
	}
	s.refuseOrphans(sh)
}

// pinEvent follows the machine.
func (s *shard) pinEvent(e *event) {
	sh := e.share
	if e.kind == evForgotten {
		if !sh.gone {
			s.closeVault(sh, e.session, true)
		}
		return
	}
	at := kernel.Place{Partition: e.part.index, Offset: e.n}
	switch {
	case e.kind == evUnpinned:
		delete(sh.pinned, at)
		if _, ok := sh.orphans[at]; ok {
			delete(sh.orphans, at)
			s.mind(sh)
		}
	case isOrphanage(e.session):
		s.orphaned(sh, at, &orphan{name: e.session, id: e.pin})
	default:
		if sh.pinned == nil {
			sh.pinned = make(map[kernel.Place]string)
		}
		sh.pinned[at] = e.session
	}
}

// commitPins has the changes of this step logged, in one entry with the settlements
// that belong to them.
func (s *shard) commitPins() {
	if len(s.pins) == 0 {
		return
	}
	body := append([]byte{cmdPins}, s.pins...)
	s.pins = s.pins[:0]
	f := &pinFlight{shard: s, waits: slices.Clone(s.waits)}
	clear(s.waits)
	s.waits = s.waits[:0]
	if err := s.prop.settleWith(s.term, s.section, body, f, len(f.waits) > 0 || s.urgent); err != nil {
		f.Completed(0, kernel.Result{Err: err})
		return
	}
	s.section, s.urgent = s.section[:0], false
}

// pinFlight is a command of changes on its way.
type pinFlight struct {
	shard *shard
	waits []pinWait
}

// Completed implements kernel.Completion.
func (f *pinFlight) Completed(_ uint64, res kernel.Result) {
	for i := range f.waits {
		w := &f.waits[i]
		if len(w.pinned) > 0 {
			w.member.tellPinned(w.pinned, res.Err)
		}
		if len(w.taken) > 0 {
			if to, ok := w.member.to.(kernel.Pinner); ok {
				to.Taken(w.taken, res.Err)
			}
		}
	}
	if res.Err != nil {
		f.shard.ask(func() { f.shard.undoPins(f.waits) })
	}
}

// Flush implements kernel.Completion.
func (f *pinFlight) Flush() {}

func (m *Member) tellPinned(numbers []uint16, err error) {
	if to, ok := m.to.(kernel.Pinner); ok {
		to.Pinned(numbers, err)
	}
}

// undoPins gives back what could not be pinned, if it is still held.
func (s *shard) undoPins(waits []pinWait) {
	for i := range waits {
		w := &waits[i]
		sh := w.member.share
		id, ok := sh.vaults[w.member.session]
		if sh.gone || sh.group == nil || !ok {
			continue
		}
		for _, p := range w.offsets {
			if _, pinned := sh.pinned[p]; !pinned {
				sh.group.Settle(p.Partition, sharegroup.Ack{ //nolint:errcheck // what it does not hold is none of our business
					Member: id, First: p.Offset, Last: p.Offset, Outcome: sharegroup.Release,
				}, s.clock.mono())
			}
		}
		s.queue(sh)
	}
}

// settleWith adds settlements and a command, in one entry.
func (p *proposer) settleWith(term uint64, section, command []byte, done kernel.Completion, urgent bool) error {
	p.mu.Lock()
	if p.stopped || p.term == 0 || p.term != term { // 0: of a shard that has just ceased to lead
		p.mu.Unlock()
		return errNotLeading
	}
	d := p.draftFor(len(section) + len(command))
	d.settles = append(d.settles, section...)
	d.size += len(section)
	hurry := d.urgent
	d.post(command, done, 0)
	p.added(d, len(command))
	d.urgent = hurry || urgent || len(d.settles) >= settleCap
	p.leave(d)
	return nil
}
