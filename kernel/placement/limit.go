package placement

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// SetLimits replaces the limits of a share group, unless a call of a higher
// revision was there before: CodeNotFound, CodeInvalid. What is beyond the new
// limits goes at once; the age of records from before the first time to live
// counts from now.
func (g *Group) SetLimits(ctx context.Context, id GroupID, l kernel.Limits, revision uint64) error {
	if err := checkLimits(&l); err != nil {
		return err
	}
	_, err := g.do(ctx, setLimitsCommand(id, &l, revision))
	if err == nil {
		g.takenIn(id)
	}
	return err
}

// takenIn waits until the shard goes by what has been applied to a group.
func (g *Group) takenIn(id GroupID) {
	if sh := g.machine.share(id); sh != nil {
		sh.topic.shard.call(func() {})
	}
}

// Limits returns the limits of a group, false if it does not exist or none were
// ever given.
func (g *Group) Limits(id GroupID) (kernel.Limits, bool) {
	g.machine.table.mu.RLock()
	defer g.machine.table.mu.RUnlock()
	if sh := g.machine.groups[id]; sh != nil && sh.spec.Limits != nil {
		return *sh.spec.Limits, true
	}
	return kernel.NoLimits(), false
}

func checkLimits(l *kernel.Limits) error {
	if len(l.DeadLetterExchange) > maxName || l.DeadLetterKey != nil && len(*l.DeadLetterKey) > maxName {
		return kernel.Errorf(kernel.CodeInvalidName, "exchange", "", "the name or key of the dead letter exchange is too long")
	}
	if l.Overflow > kernel.RejectPublishDeadLetter {
		return kernel.Errorf(kernel.CodeInvalid, "group", "", "overflow mode %d", l.Overflow)
	}
	return nil
}

func setLimitsCommand(id GroupID, l *kernel.Limits, revision uint64) []byte {
	b := binary.AppendUvarint([]byte{cmdSetLimits}, uint64(id))
	return appendLimits(binary.AppendUvarint(b, revision), l)
}

func createLimitedCommand(spec GroupSpec, revision uint64) []byte {
	b := binary.AppendUvarint([]byte{cmdCreateLimited}, revision)
	return appendLimits(appendGroupSpec(b, spec), spec.Limits)
}

func appendLimits(b []byte, l *kernel.Limits) []byte {
	for _, v := range []int64{int64(l.MessageTTL), int64(l.Expires), l.MaxLength, l.MaxBytes, int64(l.DeliveryLimit)} {
		b = binary.AppendVarint(b, max(v, kernel.Unlimited))
	}
	b = append(b, byte(l.Overflow))
	b = appendBool(b, l.DeadLetter)
	b = appendString(b, l.DeadLetterExchange)
	b = appendBool(b, l.DeadLetterKey != nil)
	if l.DeadLetterKey != nil {
		b = appendString(b, *l.DeadLetterKey)
	}
	return appendBool(b, l.AtLeastOnce)
}

func (d *decoder) limits() *kernel.Limits {
	l := &kernel.Limits{
		MessageTTL: time.Duration(d.varint()), Expires: time.Duration(d.varint()),
		MaxLength: d.varint(), MaxBytes: d.varint(), DeliveryLimit: int(d.varint()),
		Overflow: kernel.Overflow(d.byte()), DeadLetter: d.bool(), DeadLetterExchange: d.string(),
	}
	if d.bool() {
		key := d.string()
		l.DeadLetterKey = &key
	}
	l.AtLeastOnce = d.bool()
	return l
}

// setLimits is the machine's part of SetLimits.
func (m *machine) setLimits(d *decoder) (res commandResult) {
	id, revision := GroupID(d.uvarint()), d.uvarint()
	l := d.limits()
	if d.err != nil {
		return res
	}
	g := m.groups[id]
	if g == nil {
		res.err = noGroup(id)
		return res
	}
	if revision < g.limited {
		return res // overtaken by a later command
	}
	m.limit(g, l, revision)
	return res
}

// limit gives a group its limits.
func (m *machine) limit(g *share, l *kernel.Limits, revision uint64) {
	m.table.mu.Lock()
	g.spec.Limits, g.limited = l, revision
	m.table.mu.Unlock()
	g.topic.measure(m.time)
	m.tell(g.topic.shard, event{kind: evLimits, share: g, limits: l})
}

// measure decides what has to be known of the records of a topic: when they
// came, if a group has a time to live, and how large they are, if one refuses
// publishes by size.
func (t *topic) measure(now int64) {
	ttl, sized := time.Duration(math.MaxInt64), false
	for _, g := range t.groups {
		if l := g.spec.Limits; l != nil {
			if l.MessageTTL >= 0 {
				ttl = min(ttl, l.MessageTTL)
			}
			sized = sized || l.MaxBytes >= 0 && l.Overflow != kernel.DropHead
		}
	}
	for _, p := range t.parts {
		if ttl == math.MaxInt64 {
			p.arrivals.stop()
		} else {
			p.arrivals.start(now, p.log.Start(), ttl)
		}
	}
	t.tally.measure(t.parts, sized)
}

// setLimits makes the limits of a share what it goes by. Without limits it has
// those of its spec.
func (sh *share) setLimits(l *kernel.Limits) {
	sh.limits = kernel.NoLimits()
	p := &sh.policy
	p.Limit = sharegroup.Limit{}
	if sh.spec.FailedLimit > 0 {
		sh.limits.DeliveryLimit = sh.spec.FailedLimit
	}
	if l != nil {
		sh.limits = *l
	}
	switch {
	case sh.spec.AcquiredLimit > 0:
		p.Limit = sharegroup.Limit{On: sharegroup.OnAcquired, Max: uint32(sh.spec.AcquiredLimit)}
	case sh.limits.DeliveryLimit >= 0:
		p.Limit = sharegroup.Limit{On: sharegroup.OnFailed, Max: uint32(min(sh.limits.DeliveryLimit, math.MaxUint16-1))}
	}
	p.DeadLetter = sh.limits.DeadLetter
}

// limited follows new limits.
func (s *shard) limited(sh *share, l *kernel.Limits) {
	if sh.gone {
		return
	}
	sh.setLimits(l)
	if sh.group != nil {
		sh.group.SetPolicy(sh.policy)
	}
	for _, w := range sh.windows {
		w.sizes = nil // made anew if they are needed
	}
	sh.weighAll()
	s.mind(sh)
	s.guard(sh)
	s.queue(sh)
}

// bounded says whether somebody has to look after the share although nobody
// takes from it.
func (sh *share) bounded() bool {
	l := &sh.limits
	return l.MessageTTL >= 0 || l.MaxLength >= 0 || l.MaxBytes >= 0 || len(sh.orphans) > 0 ||
		slices.ContainsFunc(sh.windows, func(w *window) bool { return w.part.cut.expiring > w.Floor() })
}

// mind looks after a share from now on, or no more, as is needed.
func (s *shard) mind(sh *share) {
	if s.term == 0 || sh.gone {
		return
	}
	need := sh.bounded()
	if need == sh.minded {
		return
	}
	if sh.minded = need; need {
		s.activate(sh)
		s.enroll(sh)
		s.queue(sh)
		return
	}
	s.dues.remove(sh)
	if len(sh.members) == 0 {
		s.deactivate(sh)
	}
}

// tend holds a share to its limits, after members have had their turn.
func (s *shard) tend(sh *share) {
	if sh.group == nil || s.finished {
		return
	}
	if sh.group.Demand() == 0 {
		for _, w := range sh.windows {
			w.promised = 0
		}
	}
	now, due := s.clock.wall(), int64(never)
	for _, w := range sh.windows {
		due = min(due, s.expireHead(sh, w, now))
	}
	s.shorten(sh)
	s.dues.set(sh, due)
}

// shorten drops the oldest records of a share that is too long. While members
// are there who will take them, it is not.
func (s *shard) shorten(sh *share) {
	l := &sh.limits
	if l.Overflow != kernel.DropHead || l.MaxLength < 0 && l.MaxBytes < 0 || sh.group.Demand() > 0 && !sh.stalled {
		return
	}
	if l.MaxLength >= 0 {
		for excess := sh.group.Ready() - l.MaxLength; excess > 0; {
			n := s.dropOldest(sh, excess)
			if n == 0 {
				break
			}
			excess -= n
		}
	}
	if l.MaxBytes >= 0 {
		for bytes := sh.readyBytes(); bytes > l.MaxBytes; bytes = sh.readyBytes() {
			w := sh.longest()
			if w == nil || s.drop(sh, w, w.over(bytes-l.MaxBytes)) == 0 {
				break
			}
		}
	}
}

// dropOldest drops up to n records where most are.
func (s *shard) dropOldest(sh *share, n int64) int64 {
	w := sh.longest()
	if w == nil {
		return 0
	}
	return s.drop(sh, w, min(n, w.Ready()))
}

func (s *shard) drop(sh *share, w *window, n int64) int64 {
	n = w.Bury(sharegroup.MaxOffset, min(n, sh.room()), sharegroup.MaxLen)
	s.metrics.Overflowed.Add(uint64(n))
	return n
}

// longest returns the window that has most ready, nil if none has anything.
func (sh *share) longest() (longest *window) {
	most := int64(0)
	for _, w := range sh.windows {
		if n := w.Ready(); n > most {
			most, longest = n, w
		}
	}
	return longest
}

// appendAllLimits and appendTimes encode what limits add to the machine's tables: of
// the groups that have some, and of the partitions of which it is known when records
// came, or that have records with an expiry.
func appendAllLimits(b []byte, groups []*share) []byte {
	slices.SortFunc(groups, func(a, b *share) int { return cmp.Compare(a.id, b.id) })
	b = binary.AppendUvarint(b, uint64(len(groups)))
	for _, g := range groups {
		b = binary.AppendUvarint(b, uint64(g.id))
		b = appendLimits(binary.AppendUvarint(b, g.limited), g.spec.Limits)
	}
	return b
}

func appendTimes(b []byte, parts []*partition) []byte {
	slices.SortFunc(parts, func(a, b *partition) int { return cmp.Compare(a.id, b.id) })
	b = binary.AppendUvarint(b, uint64(len(parts)))
	for _, p := range parts {
		b = binary.AppendUvarint(b, uint64(p.id))
		b = p.arrivals.appendTo(binary.AppendUvarint(b, uint64(p.expiring)))
	}
	return b
}

// decodeLimits reads what they wrote. The caller holds the table's lock.
func (m *machine) decodeLimits(d *decoder) {
	for n := d.count(12); n > 0 && d.err == nil; n-- {
		g, revision, l := m.groups[GroupID(d.uvarint())], d.uvarint(), d.limits()
		if g == nil || d.err != nil {
			d.fail("limits of a group that is not there")
			return
		}
		g.spec.Limits, g.limited = l, revision
		m.tell(g.topic.shard, event{kind: evLimits, share: g, limits: l})
	}
	for n := d.count(4); n > 0 && d.err == nil; n-- {
		p, expiring := m.parts[PartitionID(d.uvarint())], d.offset()
		if p == nil || d.err != nil {
			d.fail("ages of a partition that is not there")
			return
		}
		p.expiring = expiring
		p.arrivals.decode(d)
		m.tell(p.topic.shard, event{kind: evExtended, part: p, n: expiring})
	}
	for _, t := range m.topics {
		t.measure(m.time)
	}
}
