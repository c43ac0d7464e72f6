package placement

import (
	"errors"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// lane is a topic as its shard sees it.
type lane struct {
	at     int // place in the shard's list
	parts  []*partition
	shares []*share
	active []*share // those with members: only they hear of new records at once
}

// handle takes in one event.
func (s *shard) handle(e *event) {
	switch e.kind {
	case evExtended:
		s.extended(e.part, e.n)
	case evSettled:
		if err := s.settled(e); err != nil {
			s.log.Error().Err(err).Uint64("group", uint64(e.share.id)).Msg("a settlement in the log cannot be read")
		}
	case evTrimmed:
		s.trimmed(e.part, e.n)
	case evPartition:
		s.addPartition(e.part)
	case evGroup:
		s.addShare(e.share)
	case evWindow:
		s.addWindow(e.share, &window{Window: e.window, part: e.part})
	case evOwner:
		e.share.owner = e.on
		s.floorsMoved(e.share.topic)
	case evRetention:
		e.part.cut.retention = e.retention
		s.floorMoved(e.part)
	case evLimits:
		s.limited(e.share, e.limits)
	case evDropped:
		s.dropShare(e.share)
	case evTopicDropped:
		s.dropTopic(e.topic)
	case evLead:
		s.lead(uint64(e.n))
		e.call()
	case evUnlead:
		s.unlead(errNotLeading)
	case evCapture:
		s.capture(e.capture)
	case evPinned, evUnpinned, evForgotten:
		s.pinEvent(e)
	case evTick:
		s.tick()
	case evLease: // what it has kept up goes on in this step
	case evCall:
		e.call()
	}
}

// extended tells the active shares about new records.
func (s *shard) extended(p *partition, expiring int64) {
	if expiring > p.cut.expiring {
		p.cut.expiring = expiring
		for _, sh := range p.topic.lane.shares {
			s.mind(sh)
		}
	}
	for _, sh := range p.topic.lane.active {
		if w := sh.window(p.index); w != nil {
			if sh.minded {
				s.promise(sh, w, p.log.End())
			}
			w.extend()
			s.queue(sh)
		}
	}
}

func (s *shard) addPartition(p *partition) {
	l := &p.topic.lane
	if len(l.parts) == 0 {
		l.at = len(s.topics)
		s.topics = append(s.topics, p.topic)
	}
	l.parts = append(l.parts, p)
}

// dropTopic forgets a topic; its shares have gone before.
func (s *shard) dropTopic(t *topic) {
	last := len(s.topics) - 1
	moved := s.topics[last]
	s.topics[t.lane.at], moved.lane.at = moved, t.lane.at
	s.topics[last] = nil
	s.topics = s.topics[:last]
	t.lane = lane{}
}

func (s *shard) addShare(sh *share) {
	if s.ahead > 0 {
		sh.policy.ReadAhead = s.ahead
	}
	sh.topic.lane.shares = addShare(sh.topic.lane.shares, sh)
}

func (s *shard) addWindow(sh *share, w *window) {
	w.known = w.part.log.End()
	sh.add(w)
	if sh.group != nil {
		sh.group.Lead(w.part.index, w.Window, s.term, w.known)
	}
	s.mind(sh)
	s.guard(sh)
	s.touch(sh)
}

// dropShare ends a share for good.
func (s *shard) dropShare(sh *share) {
	if sh.gone {
		return
	}
	s.dismiss(sh, kernel.Errorf(kernel.CodeDropped, "group", sh.spec.Address.Group, "it was deleted"))
	sh.gone = true
	sh.windows, sh.group, sh.graves, sh.burial = nil, nil, nil, nil
	sh.mourned()
	sh.vaults, sh.pinned, sh.orphans = nil, nil, nil
	l := &sh.topic.lane
	l.shares = removeShare(l.shares, sh)
	s.floorsMoved(sh.topic)
	sh.stat.ready.Store(0)
	sh.stat.held.Store(0)
	sh.stat.seen.Store(-1)
	sh.stat.consumers.Store(0)
}

// dismiss ends the memberships of a share.
func (s *shard) dismiss(sh *share, reason error) {
	ids := make([]sharegroup.MemberID, 0, len(sh.members))
	for id := range sh.members {
		ids = append(ids, id)
	}
	slices.Sort(ids) // histories replay in the same order
	for _, id := range ids {
		s.unpool(sh.members[id])
		sh.members[id].end(reason)
	}
	for _, a := range sh.parked {
		a.done <- reason
	}
	sh.members, sh.ghosts, sh.parked = nil, nil, nil
	s.unguard(sh)
	s.dues.remove(sh)
	sh.minded = false
	s.deactivate(sh)
}

// enroll has a share hear of new records.
func (s *shard) enroll(sh *share) {
	if !sh.active {
		sh.active = true
		sh.topic.lane.active = addShare(sh.topic.lane.active, sh)
		sh.extend()
	}
}

func (s *shard) deactivate(sh *share) {
	sh.active = false
	l := &sh.topic.lane
	l.active = removeShare(l.active, sh)
}

// lead begins to serve. Everything that earlier leaders have logged has been
// applied. Groups that nobody uses stay as they are on a follower.
func (s *shard) lead(term uint64) {
	s.unlead(errNotLeading)
	s.term = term
	for _, t := range s.topics {
		for _, p := range t.lane.parts {
			p.cut.asked = 0 // what an earlier leadership asked for may not have come about
		}
		s.floorsMoved(t)
		for _, sh := range t.lane.shares {
			s.mind(sh)
			s.guard(sh)
		}
	}
	s.collect() // what groups have ready shows before others hear that this node leads
}

// activate makes the windows of a share lead.
func (s *shard) activate(sh *share) {
	if sh.group != nil {
		return
	}
	sh.group = sharegroup.NewGroup(sh.policy)
	for _, w := range sh.windows {
		w.known = w.part.log.End()
		sh.group.Lead(w.part.index, w.Window, s.term, w.known)
	}
	s.repin(sh)
}

// unlead drops the overlays, and ends all memberships.
func (s *shard) unlead(reason error) {
	if s.term == 0 {
		return
	}
	s.term = 0
	s.lapsed = false
	s.section, s.urgent, s.cuts = s.section[:0], false, s.cuts[:0]
	s.unlist()
	s.commitPins() // in vain: those who wait are told
	for _, t := range s.topics {
		for _, sh := range t.lane.shares {
			if sh.group == nil {
				continue
			}
			s.dismiss(sh, reason)
			for _, w := range sh.windows {
				sh.group.Unlead(w.part.index)
				w.promised = 0
			}
			sh.group, sh.graves, sh.burial, sh.vaults = nil, nil, nil, nil
			sh.graveBytes = 0
			sh.mourned()
			s.touch(sh)
		}
	}
	s.resume() // in vain: their memberships are over
}

// join adds a member.
func (s *shard) join(sh *share, opt kernel.MemberOptions, to kernel.Consumer) (*Member, error) {
	if sh.gone {
		return nil, noGroup(sh.id)
	}
	if s.term == 0 {
		return nil, errNotLeading
	}
	s.activate(sh)
	id, err := sh.group.Join(sharegroup.Options{Exclusive: opt.Exclusive, Pull: opt.Pull})
	if errors.Is(err, sharegroup.ErrExclusive) {
		return nil, kernel.Errorf(kernel.CodeAccessRefused, "group", sh.spec.Address.Group, "an exclusive consumer is there, or one that does not let this one be exclusive")
	}
	if err != nil {
		return nil, kernel.Errorf(kernel.CodeInternal, "group", sh.spec.Address.Group, "%v", err)
	}
	m := &Member{share: sh, shard: s, id: id, to: to, auto: opt.AutoSettle, pull: opt.Pull, tag: opt.Tag}
	if opt.Session != "" {
		m.session = kernel.SessionName(sh.spec.Address.Tenant, opt.Session)
	}
	if sh.members == nil {
		sh.members = make(map[sharegroup.MemberID]*Member)
	}
	sh.members[id] = m
	s.pool(m, opt.Pool)
	s.enroll(sh)
	s.queue(sh)
	sh.publish() // Leave and Stats count it from now on
	return m, nil
}

// leave removes a member. What it has said before counts.
func (s *shard) leave(m *Member) {
	sh := m.share
	if sh.gone || sh.members[m.id] != m {
		return
	}
	s.attend(m, s.clock.mono()) // it may have spoken since this step began
	s.unpool(m)
	sh.group.Leave(m.id, true) //nolint:errcheck // it is a member
	delete(sh.members, m.id)
	delete(sh.ghosts, m.id)
	s.closeVault(sh, m.session, false)
	if len(s.pins) > 0 {
		s.collect() // its session may be forgotten next
	}
	if len(sh.members) == 0 && len(sh.vaults) > 0 {
		sh.group.Exact()
	}
	s.queue(sh)
	sh.publish()
	if len(sh.members) == 0 && !sh.minded {
		s.deactivate(sh)
	}
}

func (s *shard) stopMember(m *Member) {
	if sh := m.share; !sh.gone && sh.members[m.id] == m {
		s.attend(m, s.clock.mono())
		s.unpool(m)
		sh.group.Stop(m.id) //nolint:errcheck // it is a member
		s.queue(sh)
		sh.publish()
	}
}

// purge archives what a share has ready. When it returns that is with the
// proposer: a barrier behind it tells when it is done.
func (s *shard) purge(sh *share) (n int64, err error) {
	if sh.gone {
		return 0, noGroup(sh.id)
	}
	if s.term == 0 {
		return 0, errNotLeading
	}
	s.activate(sh)
	sh.extend()
	for _, w := range sh.windows {
		k, _ := w.Purge()
		n += k
	}
	s.touch(sh)
	s.collect()
	return n, nil
}

// tick looks after what depends on time.
func (s *shard) tick() {
	s.ticks++
	for _, sh := range s.stalled {
		sh.stalled = false
		if !sh.gone {
			s.queue(sh)
		}
	}
	clear(s.stalled)
	s.stalled = s.stalled[:0]
	s.remind()
	s.calm()
	s.sweep()
}
