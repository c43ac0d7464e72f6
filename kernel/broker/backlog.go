package broker

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/session"
)

const (
	// backlogLook is how often the backlogs of sessions are looked at, at most.
	backlogLook = 30 * time.Second
	// backlogMarks is how many marks there are within the age limit.
	backlogMarks = 64
)

// backlogs bounds what waits for sessions, in bytes and age: the oldest goes first.
// Many sessions share one stored copy, so a session's backlog is what its topic
// holds from the session's place on. A sweep from time to time is exact enough, and
// costs nothing on the way of a message. Only its timer runs it.
type backlogs struct {
	b       *Broker
	marks   map[kernel.TopicID][]session.Mark // oldest first
	told    map[kernel.GroupAddress]bool      // that something was dropped
	dropped atomic.Uint64
}

// load reads the marks of the process before.
func (s *backlogs) load() error {
	s.marks, s.told = make(map[kernel.TopicID][]session.Mark), make(map[kernel.GroupAddress]bool)
	return s.b.durable.Iterate(session.MarksPrefix(), func(key, value []byte) error {
		id, err := session.ParseMarksKey(key)
		if err != nil {
			return err
		}
		if s.marks[id], err = session.ReadMarks(value); err != nil {
			return fmt.Errorf("topic %s: %w", id, err)
		}
		return nil
	})
}

func (s *backlogs) start() {
	s.b.after(min(backlogLook, s.b.limits.BacklogAge/backlogMarks), func() {
		s.sweep()
		if s.b.ctx.Err() == nil {
			s.start()
		}
	})
}

// sweep holds all backlogs to their bounds.
func (s *backlogs) sweep() {
	topics := make(map[kernel.TopicID][]*group)
	for _, t := range s.b.tenants.load() {
		t.mu.Lock()
		for addr, g := range t.groups {
			if addr.IsSession() && g.place == s.b.durable {
				topics[g.spec.Topic] = append(topics[g.spec.Topic], g)
			}
		}
		t.mu.Unlock()
	}
	var saved []placement.KV
	for id, groups := range topics {
		kv, err := s.look(id, groups)
		if err != nil && s.b.ctx.Err() == nil {
			s.b.log.Warn().Err(err).Stringer("topic", id).Msg("the backlogs of sessions could not be bounded")
		}
		saved = append(saved, kv...)
	}
	for id := range s.marks {
		if topics[id] == nil {
			saved = append(saved, s.unmark(id))
		}
	}
	if len(saved) == 0 {
		return
	}
	ctx, cancel := s.b.changeContext()
	defer cancel()
	if err := s.b.durable.Put(ctx, saved); err != nil && s.b.ctx.Err() == nil {
		s.b.log.Warn().Err(err).Msg("the age of backlogs could not be written down")
	}
}

// look bounds the backlogs on one topic.
func (s *backlogs) look(id kernel.TopicID, groups []*group) ([]placement.KV, error) {
	waits := false
	for _, g := range groups {
		ready, _, _, _, _ := s.b.durable.Stats(g.id)
		waits = waits || ready > 0
	}
	if !waits {
		if s.marks[id] == nil {
			return nil, nil
		}
		return []placement.KV{s.unmark(id)}, nil
	}
	now, age := s.b.now(), s.b.limits.BacklogAge
	cuts, err := s.b.durable.SizeOffsets(id, s.b.limits.BacklogBytes)
	if cuts == nil {
		cuts = make(map[placement.PartitionID]int64)
	}
	marks := s.marks[id]
	for len(marks) > 0 && now.Sub(marks[0].At) >= age {
		for part, end := range marks[0].Ends {
			cuts[placement.PartitionID(part)] = max(cuts[placement.PartitionID(part)], end)
		}
		marks = marks[1:]
	}
	for _, g := range groups {
		if len(cuts) > 0 {
			err = errors.Join(err, s.shorten(g, cuts))
		}
	}
	if n := len(marks); n > 0 && now.Sub(marks[n-1].At) < age/backlogMarks && n == len(s.marks[id]) {
		return nil, err
	}
	ends := make(map[uint64]int64)
	for part, end := range s.b.durable.Ends(id) {
		ends[uint64(part)] = end
	}
	s.marks[id] = append(marks[:len(marks):len(marks)], session.Mark{At: now, Ends: ends})
	return []placement.KV{{Key: session.MarksKey(id), Value: session.AppendMarks(nil, s.marks[id])}}, err
}

// shorten drops what waits for a session below the cuts.
func (s *backlogs) shorten(g *group, cuts map[placement.PartitionID]int64) error {
	ctx, cancel := s.b.changeContext()
	defer cancel()
	n, err := s.b.durable.PurgeBelow(ctx, g.id, cuts)
	if kernel.CodeOf(err) == kernel.CodeNotFound && err != nil {
		return nil // the session has just gone
	}
	if n == 0 || err != nil {
		return err
	}
	s.dropped.Add(uint64(n))
	if addr := g.spec.Address; !s.told[addr] {
		s.told[addr] = true
		s.b.log.Warn().Str("group", addr.Group).Str("topic", addr.Topic).Int64("messages", n).
			Msg("the backlog of a session is over its limit: the oldest messages are dropped; this is told once")
	}
	return nil
}

func (s *backlogs) unmark(id kernel.TopicID) placement.KV {
	delete(s.marks, id)
	return placement.KV{Key: session.MarksKey(id)}
}
