package broker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/route"
)

// burying is the completion of one dead letter: its tokens are the indexes of
// parts.
type burying struct {
	b     *Broker
	f     *placement.Burial
	i     int
	parts []buryingPart

	mu    sync.Mutex
	left  int
	again bool // a target does not have it yet
	lost  bool // a target will never have it
}

// buryingPart is one append of a dead letter.
type buryingPart struct {
	leg    leg
	topics []*route.Topic
}

// store appends a dead letter to all targets that do not have it from an earlier
// try. One that must arrive everywhere is appended to each by itself: then it is
// known which of them has refused it.
func (l *letter) store(b *Broker, f *placement.Burial, i int, topics []*route.Topic) {
	reached := f.Letters[i].Reached
	topics = slices.DeleteFunc(topics, func(t *route.Topic) bool { return slices.Contains(reached, t.ID) })
	if len(topics) == 0 {
		b.dead.buried.Add(1)
		f.Done(i, false)
		return
	}
	c := &burying{b: b, f: f, i: i}
	if f.Limits.AtLeastOnce {
		for k := range topics {
			c.add(topics[k:k+1], l.key)
		}
	} else {
		for _, volatile := range []bool{false, true} {
			var list []*route.Topic
			for _, t := range topics {
				if t.Volatile == volatile {
					list = append(list, t)
				}
			}
			c.add(list, l.key)
		}
	}
	c.left = len(c.parts)
	for k := range c.parts {
		to := &c.parts[k].leg
		if err := to.group.Append(to.set, &l.record, c, uint64(k)); err != nil {
			c.Completed(uint64(k), kernel.Result{Offset: -1, Err: err})
		}
	}
}

// add plans an append to topics that are in one placement group.
func (c *burying) add(topics []*route.Topic, key string) {
	for _, to := range c.b.legs(topics, []byte(key)) {
		c.parts = append(c.parts, buryingPart{to, topics})
	}
}

// Completed implements kernel.Completion.
func (c *burying) Completed(k uint64, res kernel.Result) {
	c.mu.Lock()
	full := placement.IsQueueFull(res.Err)
	switch {
	case res.Err == nil:
		reached := &c.f.Letters[c.i].Reached
		for _, t := range c.parts[k].topics {
			*reached = append(*reached, t.ID)
		}
	case full && (!c.f.Limits.AtLeastOnce || c.f.Last), kernel.CodeOf(res.Err) == kernel.CodeTooLarge:
		c.lost = true
	default: // full, not now, or nobody knows
		c.again = true
	}
	c.left--
	left, again, lost := c.left, c.again, c.lost
	c.mu.Unlock()
	switch {
	case left > 0:
	case again:
		c.b.dead.keep(c.f, c.i)
	case lost:
		c.b.dead.drop(c.f, c.i)
	default:
		c.b.dead.buried.Add(1)
		c.f.Done(c.i, false)
	}
}

// Flush implements kernel.Completion.
func (c *burying) Flush() {}

// buryWait bounds how long a queue that is deleted waits for the dead letters of
// what has died in it: shorter than changeWait, so that it can be deleted then.
const buryWait = 15 * time.Second

// buryAll waits until what has died in groups that are about to be deleted has its
// dead letters.
func (t *tenant) buryAll(groups ...*group) {
	b := t.b
	ctx, cancel := context.WithTimeout(b.ctx, buryWait)
	defer cancel()
	for _, g := range groups {
		left := g.place.BuryAll(ctx, g.id)
		if left == 0 || b.ctx.Err() != nil { // then the next start does it
			continue
		}
		b.dead.dropped.Add(uint64(left))
		b.log.Error().Stringer("group", g.spec.Address).Int64("records", left).
			Msg("a queue is deleted although dead letters of its records could not be stored")
	}
}

// buryQuick waits for the dead letters of a group that are not kept: who asks
// whether it is empty does not mean those that are on their way.
func (t *tenant) buryQuick(ctx context.Context, g *group) {
	if l, ok := g.place.Limits(g.id); !ok || !l.DeadLetter || l.AtLeastOnce {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, buryWait)
	defer cancel()
	g.place.BuryAll(ctx, g.id)
}

// groupsOf returns the groups on a topic.
func (t *tenant) groupsOf(id kernel.TopicID) (list []*group) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tp, ok := t.topics[id]; ok {
		for g := range tp.groups.all() {
			list = append(list, g)
		}
	}
	return list
}
