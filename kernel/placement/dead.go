package placement

import (
	"slices"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
	"github.com/trivium-mq/trivium/storage/record"
)

// Bounds of what dies in one group with dead letters: records that wait, and what
// is on its way at the same time.
const (
	maxGraves    = 1 << 16
	burialLength = 256
	burialBytes  = 1 << 20 // reached by the last record
)

// Letter is a record that has died.
type Letter struct {
	Record *kernel.View // owned by the letter
	Reason kernel.DeathReason
	Again  bool // it was tried before
	// Reached is what has the dead letter already. Who makes it adds what does,
	// before Done: the next try has them.
	Reached []kernel.TopicID
}

// Burial is dead records of one group, whose dead letters are to be made safe.
// Then, and not before, each is archived; a crash in between brings it again.
type Burial struct {
	Address kernel.GroupAddress
	Limits  kernel.Limits
	Letters []Letter
	// Last says that the group is about to go: what nothing takes now is not kept
	// for later.
	Last bool

	left   atomic.Int32
	keep   []bool
	graves []grave
	over   func(*Burial)
}

// Done says that the dead letter of Letters[i] is safe, or given up; with keep,
// that it has to be tried again later. It must be called exactly once for each,
// from any goroutine.
func (b *Burial) Done(i int, keep bool) {
	b.keep[i] = keep
	if b.left.Add(-1) == 0 {
		b.over(b)
	}
}

func newBurial(sh *share, letters []Letter, graves []grave, over func(*Burial)) *Burial {
	b := &Burial{Address: sh.spec.Address, Letters: letters, keep: make([]bool, len(letters)), graves: graves, over: over}
	b.left.Store(int32(len(letters)))
	return b
}

var deathReasons = [...]kernel.DeathReason{
	sharegroup.Refused: kernel.DiedRejected, sharegroup.OverLimit: kernel.DiedLimit,
	sharegroup.Expired: kernel.DiedExpired, sharegroup.MaxLen: kernel.DiedMaxLen,
}

// undertaker hands burials to who makes dead letters, on its own goroutine: it
// may take its time.
type undertaker struct {
	box     mailbox[*Burial]
	bury    func(*Burial)
	refused atomic.Int64 // records that full queues refused, on their way
}

// maxRefused bounds them.
const maxRefused = 1024

func newUndertaker(bury func(*Burial)) *undertaker {
	if bury == nil {
		bury = func(b *Burial) {
			for i := range b.Letters {
				b.Done(i, false)
			}
		}
	}
	return &undertaker{box: newMailbox[*Burial](), bury: bury}
}

// step hands on all that has been posted and says whether that was anything.
func (u *undertaker) step() bool {
	list := u.box.take()
	for _, b := range list {
		u.bury(b)
	}
	busy := len(list) > 0
	u.box.give(list)
	return busy
}

// mourn takes in which records of a share have died.
func (s *shard) mourn(sh *share, partition int32) {
	for _, d := range s.dead {
		if d.Reason == sharegroup.Refused || d.Reason == sharegroup.OverLimit {
			s.metrics.Dead.Add(1)
		}
		if sh.policy.DeadLetter {
			sh.dig(grave{offset: d.Offset, partition: partition, reason: d.Reason})
		}
	}
}

// funeral sends the next dead records of a share on their way, if none are.
func (s *shard) funeral(sh *share) {
	if sh.burial != nil || len(sh.graves) == 0 || s.finished || sh.resting {
		return
	}
	if !sh.policy.DeadLetter { // not any more
		s.archiveAll(sh, sh.graves)
		sh.graves, sh.graveBytes = nil, 0
		return
	}
	letters, graves := s.exhume(sh)
	if len(letters) == 0 {
		if len(sh.graves) == 0 {
			s.postpone(sh) // there may be room again
		}
		return
	}
	term := s.term
	b := newBurial(sh, letters, graves, func(b *Burial) {
		s.ask(func() { s.buried(sh, b, term) })
	})
	b.Limits, b.Last = sh.limits, len(sh.enders) > 0
	sh.burial = b
	if !s.under.box.post(b) {
		sh.burial = nil
	}
}

// exhume reads the next dead records of a share. Those that are not there any
// more are archived; one that cannot be read now ends the list, for a tick.
func (s *shard) exhume(sh *share) (letters []Letter, graves []grave) {
	bytes, taken := 0, 0
	for _, g := range sh.graves {
		if len(letters) == burialLength || bytes >= burialBytes {
			break
		}
		w := sh.window(g.partition)
		if w == nil || w.Settled(g.offset) {
			taken++
			sh.graveBytes -= g.size
			continue
		}
		if w.look == nil {
			w.look = w.part.log.Cursor()
		}
		w.look.SeekTo(g.offset)
		v, err := w.look.Next()
		if err != nil {
			if _, damaged := badEnd(err, g.offset); !damaged {
				s.postpone(sh)
				break
			}
			s.metrics.Lost.Add(1)
		}
		taken++
		if err != nil || v == nil || v.Offset != g.offset {
			sh.graveBytes -= g.size
			s.archiveAll(sh, []grave{g})
			continue
		}
		letters = append(letters, Letter{Record: v.Clone(), Reason: deathReasons[g.reason], Again: g.again, Reached: g.reached})
		graves = append(graves, g)
		bytes += v.Size
	}
	for _, w := range sh.windows {
		w.rest()
	}
	sh.graves = slices.Delete(sh.graves, 0, taken)
	return letters, graves
}

// buried archives the records whose dead letters are safe.
func (s *shard) buried(sh *share, b *Burial, term uint64) {
	if sh.gone || sh.group == nil || s.term != term || sh.burial != b {
		return
	}
	sh.burial = nil
	var again []grave
	for i, g := range b.graves {
		if b.keep[i] && !lostLetters {
			g.again, g.reached = true, b.Letters[i].Reached
			again = append(again, g)
		} else {
			sh.graveBytes -= g.size
			s.archiveAll(sh, b.graves[i:i+1])
		}
	}
	if len(again) > 0 {
		sh.graves = append(again, sh.graves...)
		if b.Last || len(sh.enders) == 0 { // else the last try comes now
			s.postpone(sh)
		}
	}
	s.queue(sh)
}

func (s *shard) archiveAll(sh *share, list []grave) {
	for _, g := range list {
		if w := sh.window(g.partition); w != nil {
			w.Archive(g.offset, g.offset)
		}
	}
}

// postpone lets burials of a share wait for the next tick.
func (s *shard) postpone(sh *share) {
	if !sh.resting {
		sh.resting = true
		s.mourners = append(s.mourners, sh)
	}
}

// remind tries again, at a tick, what could not be buried.
func (s *shard) remind() {
	for _, sh := range s.mourners {
		sh.resting = false
		if !sh.gone && sh.group != nil {
			s.queue(sh)
		}
	}
	clear(s.mourners)
	s.mourners = s.mourners[:0]
}

// buryRefused makes a dead letter of a record that a full queue has refused.
// Nobody waits for it; with too many on their way it is dropped.
func (g *Group) buryRefused(sh *share, r *kernel.Record) {
	limits, ok := g.Limits(sh.id)
	if !ok || !limits.DeadLetter {
		return
	}
	if g.under.refused.Add(1) > maxRefused {
		g.under.refused.Add(-1)
		return
	}
	b := newBurial(sh, []Letter{{Record: viewOf(r), Reason: kernel.DiedMaxLen}}, nil, func(*Burial) { g.under.refused.Add(-1) })
	b.Limits = limits
	if !g.under.box.post(b) {
		g.under.refused.Add(-1)
	}
}

// viewOf returns a record as one that is stored, in memory of its own.
func viewOf(r *kernel.Record) *kernel.View {
	var b record.Builder
	b.SetAttributes(record.AttrOwn)
	b.Append(r)
	var it record.Iter
	if it.Reset(b.Bytes(), nil) != nil || !it.Next() {
		return &kernel.View{}
	}
	v := *it.View()
	return &v
}
