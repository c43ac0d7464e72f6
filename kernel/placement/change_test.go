package placement

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
)

// changing is a topic of one record that is too old, on a group that is stepped.
type changing struct {
	*stepped
	t       *testing.T
	part    *partition
	applied int // entries
}

func newChanging(t *testing.T, owner bool) *changing {
	g := &changing{stepped: newStepped(t), t: t}
	id := g.topic(t, 1)[0]
	g.command(t, setRetentionCommand(topicN(1), kernel.Retention{Age: time.Second}, 1))
	must(t, g.Append(g.Targets(id), numbered(1), nil, 0))
	g.commit(len(g.log.entries)-1, 1)
	g.command(t, createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "q"), Topic: topicN(1), Owner: owner, FromStart: !owner}, 1))
	g.part, g.applied = g.machine.parts[id], len(g.log.entries)
	g.now = g.now.Add(time.Minute)
	return g
}

// change proposes something. It is told of by no other entry that is in flight.
func (g *changing) change(body []byte, topics ...kernel.TopicID) {
	g.t.Helper()
	_, err := g.prop.command(body, topics...)
	must(g.t, err)
}

// sweep lets time pass.
func (g *changing) sweep() {
	g.tick()
	g.step()
	g.prop.settleTimeout()
}

// all applies everything that is proposed, and what that brings.
func (g *changing) all() {
	for range 3 {
		for g.applied < len(g.log.entries) {
			g.commit(g.applied, g.log.term)
			g.applied++
		}
		g.sweep()
	}
}

// changesOfTopics are the ways in which records come to be held back.
func changesOfTopics() map[string]struct {
	owner bool // of the group that is there; it has settled the record
	make  func(g *changing)
} {
	spec := GroupSpec{Address: kernel.QueueAddress("/", "new"), Topic: topicN(1), Owner: true, FromStart: true}
	at := spec
	at.FromStart, at.Start = false, kernel.Position{Kind: kernel.AtOffset}
	type way = struct {
		owner bool
		make  func(g *changing)
	}
	return map[string]way{
		"made": {true, func(g *changing) {
			body, err := g.createCommand(spec, 1)
			must(g.t, err)
			g.change(body, spec.changing()...)
		}},
		"made at an offset": {true, func(g *changing) {
			body, err := g.createCommand(at, 1)
			must(g.t, err)
			g.change(body, at.changing()...)
		}},
		"an owner": {false, func(g *changing) { g.change(setOwnerCommand(1, true), topicN(1)) }},
		"moved": {true, func(g *changing) {
			_, _, err := g.shards[0].rewind(g.machine.groups[1], map[int32]int64{})
			must(g.t, err)
		}},
		"kept longer": {true, func(g *changing) { g.change(setRetentionCommand(topicN(1), kernel.RetainDay, 2), topicN(1)) }},
	}
}

// TestTrimAfterChange: what a change of a topic holds back is not trimmed by a decision
// that knew nothing of the change, whichever of the two the log has first; and when nothing
// holds it back any more it is trimmed.
func TestTrimAfterChange(t *testing.T) {
	for name, way := range changesOfTopics() {
		t.Run(name, func(t *testing.T) {
			g := newChanging(t, way.owner)
			way.make(g)
			for range 3 {
				g.sweep() // the shard knows of nothing
			}
			g.all()
			if start := g.part.log.Start(); start != 0 {
				t.Fatalf("the partition starts at %d, and the record is held back", start)
			}
			g.change(topicCommand(cmdDropTopic, topicN(2), 1)) // something else
			g.change(setRetentionCommand(topicN(1), kernel.Retention{Age: time.Second}, 3), topicN(1))
			for id := range g.machine.groups {
				g.change(dropGroupCommand(id, 1))
			}
			g.all()
			if start := g.part.log.Start(); start != 1 {
				t.Fatalf("the partition starts at %d, and nothing holds the record back", start)
			}
		})
	}
}

// TestChangeAfterTrim: a change that comes after a trim finds the partition trimmed.
func TestChangeAfterTrim(t *testing.T) {
	for name, way := range changesOfTopics() {
		t.Run(name, func(t *testing.T) {
			g := newChanging(t, way.owner)
			g.sweep()
			way.make(g)
			g.all()
			if start := g.part.log.Start(); start != 1 {
				t.Fatalf("the partition starts at %d, want 1", start)
			}
			for id, sh := range g.machine.groups {
				if w := sh.windows[0]; w.Floor() != 1 || w.Unsettled(1) != 0 {
					t.Errorf("group %d begins at %d", id, w.Floor())
				}
			}
		})
	}
}

// TestChangesInOneStep: a shard that is told in one step that time has passed, of a change,
// and that it is over, trims nothing that the change holds back.
func TestChangesInOneStep(t *testing.T) {
	g := newChanging(t, true)
	changesOfTopics()["made"].make(g)
	g.tick()
	g.machine.Apply([]raftgroup.Entry{{Index: g.index + 1, Term: 1, Data: g.log.entries[g.applied].data}})
	g.index++
	g.applied++
	for g.out.step() {
	}
	g.all()
	if start := g.part.log.Start(); start != 0 {
		t.Errorf("the partition starts at %d, and the record is held back", start)
	}
}

// TestDropEmptyOfMoved: a queue that is about to be moved back is not dropped because it
// was empty.
func TestDropEmptyOfMoved(t *testing.T) {
	g := newChanging(t, true)
	s, sh := g.shards[0], g.machine.groups[1]
	_, _, err := s.rewind(sh, map[int32]int64{})
	must(t, err)
	_, err = s.dropEmpty(sh, 2)
	if err != errChanging {
		t.Fatalf("%v, want %v", err, errChanging)
	}
	g.all()
	if _, err = s.dropEmpty(sh, 2); err != errNotEmpty {
		t.Errorf("%v, want %v", err, errNotEmpty)
	}
}

// TestRefusedTrim: a trim whose entry was refused is not proposed again as it was, since
// the topic may have changed, but decided again after a while.
func TestRefusedTrim(t *testing.T) {
	g := newChanging(t, true)
	g.sweep()
	if g.applied++; len(g.log.entries) != g.applied {
		t.Fatal("no trim was asked for")
	}
	g.log.entries[g.applied-1].failed(raftgroup.ErrNotApplied)
	g.step()
	g.prop.settleTimeout()
	if len(g.log.entries) != g.applied {
		t.Fatal("the trim was repeated")
	}
	for range trimPatience {
		g.sweep()
	}
	g.all()
	if start := g.part.log.Start(); start != 1 {
		t.Errorf("the partition starts at %d, want 1", start)
	}
}

// TestChangesEnd: whatever becomes of a change, it is not waited for for ever.
func TestChangesEnd(t *testing.T) {
	for name, end := range map[string]func(g *changing){
		"applied": func(g *changing) { g.all() },
		"refused": func(g *changing) { g.log.entries[g.applied].failed(raftgroup.ErrNotApplied); g.applied++ },
		"given up": func(g *changing) {
			g.log.entries[g.applied].failed(raftgroup.ErrUnknown)
			g.now = g.now.Add(giveUpAfter)
			g.tick()
			g.applied++
		},
		"never sent":         func(g *changing) { g.onUnlead(); g.onLead(2); g.all() },
		"of another leading": func(g *changing) { g.log.entries[g.applied].failed(raftgroup.ErrUnknown); g.onUnlead(); g.onLead(2) },
	} {
		for change, way := range changesOfTopics() {
			t.Run(name+", "+change, func(t *testing.T) {
				g := newChanging(t, way.owner)
				way.make(g)
				way.make(g) // behind it, in another draft
				end(g)
				g.step()
				g.prop.settleTimeout()
				g.all()
				if len(g.prop.changes) > 0 {
					t.Errorf("%v are waited for", g.prop.changes)
				}
			})
		}
	}
}
