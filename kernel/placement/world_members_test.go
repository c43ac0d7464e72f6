package placement

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// wmember is a consumer. Its group lives as long as the world; it comes again as another
// member, wherever it is served.
type wmember struct {
	wconn
	group *wgroup
	m     *Member
	sh    *share
	auto  bool
	ended bool
	held  []wheld
	term  uint64
}

func (w *world) subscribe(g *wgroup, auto bool) *wmember {
	s := &wmember{wconn: wconn{w: w}, group: g, auto: auto}
	w.clients = append(w.clients, s)
	return s
}

// at is where it is. One that has left its node is not there any more.
func (s *wmember) at() *wlife { return s.life }

// leave is the end of a connection: what it holds is given back, if its node still runs.
func (s *wmember) leave() {
	s.ended = true
	for i := range s.held {
		s.group.release(s, &s.held[i])
	}
	s.held = nil
	m, life := s.m, s.life
	s.m, s.life = nil, nil
	if m != nil && !life.gone && life.left == nil {
		m.Leave()
	}
}

func (s *wmember) act() {
	if s.m == nil || s.life == nil {
		s.join()
		return
	}
	switch n := s.w.rng.Intn(20); {
	case s.ended:
		s.leave()
	case n < 8:
		s.m.Credit(1 + s.w.rng.Intn(6))
	case n < 18:
		s.settle()
	default:
		s.leave()
	}
}

func (s *wmember) join() bool {
	if !s.connect() {
		return false
	}
	// Each membership is another consumer to the node.
	now := *s
	now.ended, now.held = false, nil
	fresh := &now
	m, err := s.life.g.Join(s.group.id, kernel.MemberOptions{AutoSettle: s.auto}, fresh)
	if err != nil {
		if kernel.CodeOf(err) != kernel.CodeUnavailable {
			s.w.failf("join: %v", err)
		}
		s.leave()
		return false
	}
	fresh.m, fresh.sh = m, m.share
	s.w.clients[slices.Index(s.w.clients, client(s))] = fresh
	m.Credit(2)
	return true
}

func (s *wmember) Ended(error) { s.ended = true }

// Deliver checks what is handed out.
func (s *wmember) Deliver(batch []kernel.Delivery) {
	if s.m != nil && s.life == nil {
		s.w.failf("group %d: a member that has left gets records", s.group.id)
	}
	for i := range batch {
		at := s.group.handOut(s.w, s.sh, &batch[i])
		s.term = s.group.handed[at.place]
		if s.auto {
			s.group.say(at, s.term, kernel.Accept)
			continue
		}
		s.group.hold(s, at)
		s.held = append(s.held, at)
	}
}

// handOut checks a record that is handed out, and takes note of it.
func (g *wgroup) handOut(w *world, sh *share, d *kernel.Delivery) wheld {
	term := sh.topic.shard.term
	at := place{sh.topic.part(d.Partition).id, d.Offset}
	epoch := sh.window(d.Partition).Epoch()
	w.seen.delivered++
	w.note(int(g.id), int(at.part), int(d.Offset), int(d.Acquired))
	said := g.said[at]
	w.truth.is(at, numberOf(d.Record))
	switch {
	case g.handed[at] > term:
		w.failf("group %d, partition %d: offset %d is handed out by the leader of %d after that of %d", g.id, at.part, at.offset, term, g.handed[at])
	case g.held[at] != nil && g.handed[at] == term && g.heldIn[at] == epoch:
		w.failf("group %d, partition %d: offset %d is handed out to two members", g.id, at.part, at.offset)
	case g.settled[at] != 0 && g.epochs[at.part] == epoch: // else the leader has not seen the move yet
		w.failf("group %d, partition %d: offset %d is handed out in term %d and was settled at %d", g.id, at.part, at.offset, term, g.settled[at])
	case g.pinned[at]:
		w.failf("group %d, partition %d: offset %d is handed out, and pinned", g.id, at.part, at.offset)
	case slices.ContainsFunc(said, func(x wordlet) bool { return x.term == term && x.epoch == epoch && x.outcome != kernel.Release }):
		w.failf("group %d, partition %d: offset %d is handed out again after it was settled", g.id, at.part, at.offset)
	case g.delivered[at] && !d.Redelivered:
		w.failf("group %d, partition %d: offset %d comes again and is not marked", g.id, at.part, at.offset)
	}
	if slices.ContainsFunc(said, func(x wordlet) bool { return x.outcome == kernel.Accept }) {
		w.seen.pairs++ // it was accepted under another leader, in vain
	}
	g.delivered[at], g.handed[at] = true, term
	return wheld{at, epoch}
}

func (g *wgroup) hold(c client, at wheld) { g.held[at.place], g.heldIn[at.place] = c, at.epoch }

func (g *wgroup) say(at wheld, term uint64, o kernel.Outcome) {
	g.said[at.place] = append(g.said[at.place], wordlet{term, at.epoch, o})
}

// settle settles a run of what the member takes itself to hold.
func (s *wmember) settle() {
	if len(s.held) == 0 {
		return
	}
	o := kernel.Accept
	switch s.w.rng.Intn(8) {
	case 0:
		o = kernel.Release
	case 1:
		o = kernel.Refuse
	}
	from := s.w.rng.Intn(len(s.held))
	s.settleRun(o, from, 1+s.w.rng.Intn(len(s.held)-from))
}

func (s *wmember) settleRun(o kernel.Outcome, from, n int) {
	for range n {
		at := *s.oldest(from)
		s.held = slices.Delete(s.held, from, from+1)
		s.group.release(s, &at)
		if o == kernel.Accept {
			s.w.seen.accepted++
		}
		s.group.say(at, s.term, o)
		s.m.Settle(o, s.life.g.machine.parts[at.part].index, at.offset, at.offset)
	}
}
