package placement

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// churn changes topics and groups of its own in a history, by several commands
// that are logged in one entry, with a seal somewhere among them. What is there
// after a crash is what was there before the entry or after all of it.
type churn struct {
	h        *history
	topics   int // ever made, which names the next one
	groups   int
	revision uint64
	now      churnState // as it is known to be
	then     churnState // what the entry on its way makes of it
	entry    []<-chan commandResult
	ids      map[string]uint64 // by name; an id is never given again
	names    map[string]string // the other way around
}

// churnState is topics by number. It prints in order.
type churnState map[int]churnTopic

type churnTopic struct {
	parts     int
	retention kernel.Retention
	groups    map[string]bool // by name: is it an owner
}

const (
	churnMark = 200 // in the ids of its topics
	churnMost = 6   // topics at a time
)

func newChurn(h *history) *churn {
	return &churn{h: h, now: churnState{}, ids: map[string]uint64{}, names: map[string]string{}}
}

func churnID(n int) kernel.TopicID { return kernel.TopicID{0: byte(n >> 8), 1: byte(n), 15: churnMark} }

func (s churnState) clone() churnState {
	c := maps.Clone(s)
	for n, t := range c {
		t.groups = maps.Clone(t.groups)
		c[n] = t
	}
	return c
}

// act logs one entry and waits for its end, or that of the power.
func (c *churn) act() {
	h := c.h
	if h.g.prop.running == 0 {
		c.command(barrierCommand()) // what follows gathers behind it
	}
	c.then, c.entry = c.now.clone(), nil
	n := 2 + h.rng.Intn(5)
	seal := h.rng.Intn(n + 2) // at times none
	for i := range n {
		if i == seal {
			c.entry = append(c.entry, c.command(sealCommand()))
		}
		if body := c.draw(); body != nil {
			c.entry = append(c.entry, c.command(body))
		}
	}
	if h.quiet() {
		c.resolve()
	}
}

func (c *churn) command(body []byte) <-chan commandResult {
	ch, err := c.h.g.prop.command(body)
	if err != nil {
		c.h.failf("churn: %v", err)
	}
	return ch
}

// draw makes one command, and changes then by it; nil if what it made is no
// command, or is not one of its own.
func (c *churn) draw() []byte {
	h := c.h
	c.revision++
	switch h.rng.Intn(10) {
	case 0:
		h.model.put()
		return nil
	case 1:
		h.model.publish()
		return nil
	case 2, 3, 4:
		if len(c.then) < churnMost {
			return c.create()
		}
	}
	topics := slices.Sorted(maps.Keys(c.then))
	if len(topics) == 0 {
		return c.create()
	}
	n := topics[h.rng.Intn(len(topics))]
	switch h.rng.Intn(6) {
	case 0:
		delete(c.then, n)
		return topicCommand(cmdDropTopic, churnID(n), c.revision)
	case 1:
		t := c.then[n]
		t.retention = kernel.Retention{Age: time.Duration(1+h.rng.Intn(100)) * time.Hour}
		c.then[n] = t
		return setRetentionCommand(churnID(n), t.retention, c.revision)
	case 2, 3:
		if body := c.changeGroup(n); body != nil {
			return body
		}
	}
	c.groups++
	name, owner := fmt.Sprint("g", c.groups), h.rng.Intn(2) == 0
	c.then[n].groups[name] = owner
	return createGroupCommand(GroupSpec{
		Topic: churnID(n), Address: kernel.GroupAddress{Tenant: "/", Group: name}, Owner: owner, FromStart: true,
	}, c.revision)
}

func (c *churn) create() []byte {
	c.topics++
	t := churnTopic{parts: 1 + c.h.rng.Intn(2), retention: kernel.RetainDay, groups: map[string]bool{}}
	c.then[c.topics] = t
	specs := make([]PartitionSpec, t.parts)
	for i := range specs {
		specs[i] = PartitionSpec{Index: int32(i), Retention: t.retention}
	}
	return createPartitionsCommand(churnID(c.topics), specs, c.revision)
}

// changeGroup changes or drops a group whose number is known.
func (c *churn) changeGroup(n int) []byte {
	groups := c.then[n].groups
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		id, ok := c.ids[c.groupName(churnID(n), name)]
		switch {
		case !ok:
		case c.h.rng.Intn(2) == 0:
			delete(groups, name)
			return dropGroupCommand(GroupID(id), c.revision)
		default:
			groups[name] = !groups[name]
			return setOwnerCommand(GroupID(id), groups[name])
		}
	}
	return nil
}

func (c *churn) groupName(id kernel.TopicID, name string) string {
	return fmt.Sprintf("group %v/%s", id, name)
}

// resolve takes the answers to the entry on its way, if they have come.
func (c *churn) resolve() {
	if c.then == nil {
		return
	}
	for _, ch := range c.entry {
		select {
		case res := <-ch:
			if res.err != nil {
				c.h.failf("churn: %v", res.err)
			}
		default:
			return // the next check finds out
		}
	}
	c.now, c.then, c.entry = c.then, nil, nil
}

// check compares what is there with what may be.
func (c *churn) check() {
	m := c.h.g.machine
	got := churnState{}
	for id, t := range m.topics {
		for _, p := range t.parts {
			c.identify("partition", fmt.Sprintf("partition %v/%d", id, p.index), uint64(p.id))
		}
		for _, g := range t.groups {
			c.identify("group", c.groupName(id, g.spec.Address.Group), uint64(g.id))
		}
		if id[15] != churnMark {
			continue
		}
		ct := churnTopic{parts: len(t.parts), groups: map[string]bool{}}
		for _, p := range t.parts {
			ct.retention = p.retention
		}
		for _, g := range t.groups {
			ct.groups[g.spec.Address.Group] = g.spec.Owner
			if len(g.windows) != len(t.parts) {
				c.h.failf("churn: group %d has %d windows on %d partitions", g.id, len(g.windows), len(t.parts))
			}
		}
		got[int(id[0])<<8|int(id[1])] = ct
	}
	is := fmt.Sprint(got)
	switch {
	case is == fmt.Sprint(c.now):
	case c.then != nil && is == fmt.Sprint(c.then):
		c.now = c.then
	default:
		c.h.failf("churn: is %s, was %v, may be %v", is, c.now, c.then)
	}
	c.then, c.entry = nil, nil
}

// identify notes which number something has: always the same, and its alone.
func (c *churn) identify(kind, name string, id uint64) {
	number := fmt.Sprint(kind, id)
	if old, ok := c.ids[name]; ok && old != id {
		c.h.failf("%s was number %d, is %d", name, old, id)
	}
	if old, ok := c.names[number]; ok && old != name {
		c.h.failf("%s %d was %s, is %s", kind, id, old, name)
	}
	c.ids[name], c.names[number] = id, name
}
