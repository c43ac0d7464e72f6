package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// A record that is pinned to a session may have reached its client, so when the
// session ends it goes to nobody else (MQTT-4.8.2-5): it is refused for good. Until
// that is in the log it is an orphan, a pin under a name that no session has, so
// that neither a crash nor another leader hands it out meanwhile.

// orphanage is the name under which a session's pins go on when they end in an
// entry of the log. Names of sessions begin with a tenant's.
func orphanage(session string, index uint64) string {
	return fmt.Sprintf("\x00%d\x00%s", index, session)
}

func isOrphanage(name string) bool { return strings.HasPrefix(name, "\x00") }

// parentOf returns the session that the orphans of a name were pinned to.
func parentOf(name string) string {
	_, session, _ := strings.Cut(name[1:], "\x00")
	return session
}

// abandon makes an orphan of a pin that its session has ended, if it has a record.
func (m *machine) abandon(session string, p *pin) {
	g, part := m.groups[p.group], m.parts[p.part]
	if p.taken || g == nil || part == nil {
		return
	}
	m.unpin(p)
	o := &pin{PinID: p.PinID, group: p.group, part: p.part, offset: p.offset}
	name := orphanage(session, m.index)
	m.ledgers.of(name).pin(o)
	m.pinned(name, o)
}

// disown ends the pin of an orphan.
func (m *machine) disown(name string, number uint16) {
	l := m.ledgers[name]
	m.unpin(l.pins[number])
	delete(l.pins, number)
	if len(l.pins) == 0 {
		delete(m.ledgers, name)
	}
}

// orphan is what a shard knows of one.
type orphan struct {
	name string
	id   kernel.PinID
	over bool // that it is refused is in the log, and its pin is on its way out
}

// orphaned takes in that a record is an orphan.
func (s *shard) orphaned(sh *share, at kernel.Place, o *orphan) {
	if sh.orphans == nil {
		sh.orphans = make(map[kernel.Place]*orphan)
	}
	sh.orphans[at] = o
	if s.term == 0 || sh.gone {
		return
	}
	served := sh.group != nil
	if s.mind(sh); served {
		s.refuseOrphan(sh, at, o)
	}
	s.queue(sh)
}

// refuseOrphan has the vault of orphans take a record and refuse it.
func (s *shard) refuseOrphan(sh *share, at kernel.Place, o *orphan) {
	w := sh.window(at.Partition)
	if w == nil || w.Settled(at.Offset) {
		s.endOrphan(o)
		return
	}
	to := s.vault(sh, "") // no session's
	if from, ok := sh.vaults[parentOf(o.name)]; !ok || !sh.group.Pass(from, to, at.Partition, at.Offset) {
		sh.group.Hold(to, at.Partition, at.Offset)
	}
	res, err := sh.group.Settle(at.Partition, sharegroup.Ack{
		Member: to, First: at.Offset, Last: at.Offset, Outcome: sharegroup.Refuse,
	}, s.clock.mono())
	if err == nil { // else its client has refused it, and it waits for its dead letter
		s.metrics.Abandoned.Add(uint64(res.Records))
	}
	s.closeVault(sh, "", false)
}

func (s *shard) endOrphan(o *orphan) {
	if !o.over {
		o.over = true
		s.pins = appendPinRun(s.pins, o.name, 1, appendPinOp(nil, opUnpin, o.id))
	}
}

// endOrphans ends those of a window that are settled.
func (s *shard) endOrphans(sh *share, w *window) {
	if len(sh.orphans) == 0 || s.term == 0 {
		return
	}
	for _, at := range placesOf(sh.orphans) {
		if at.Partition == w.part.index && w.Settled(at.Offset) {
			s.endOrphan(sh.orphans[at])
		}
	}
}

// refuseOrphans is for a new leadership.
func (s *shard) refuseOrphans(sh *share) {
	for _, at := range placesOf(sh.orphans) {
		o := sh.orphans[at]
		o.over = false
		s.refuseOrphan(sh, at, o)
	}
}

// placesOf returns the keys in order, so that histories replay in the same one.
func placesOf[T any](of map[kernel.Place]T) []kernel.Place {
	places := make([]kernel.Place, 0, len(of))
	for p := range of {
		places = append(places, p)
	}
	slices.SortFunc(places, func(a, b kernel.Place) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	})
	return places
}
