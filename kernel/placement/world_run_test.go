package placement

import (
	"errors"
	"fmt"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/kv"
)

// runWorld plays the history of a seed, and returns it and the first thing that was
// wrong.
func runWorld(seed int64, keys *kv.Store, life uint32) (*world, error) {
	w := newWorld(seed, keys)
	w.keyID |= life << 31
	if w.setUp() {
		for range 400 + w.rng.Intn(800) + 10*w.absence {
			w.act()
			if w.over() {
				break
			}
		}
	}
	if !w.over() {
		w.settleDown()
	}
	if w.net.Broken != "" {
		w.failf("%s", w.net.Broken)
	}
	s := &w.seen
	s.elections, s.truncations, s.transfers = w.net.Elections, w.net.Truncations, w.net.Transfers
	if w.err != nil {
		return w, fmt.Errorf("TRIVIUM_SEED=%d TRIVIUM_HISTORIES=1: %w", seed, w.err)
	}
	return w, nil
}

func (w *world) over() bool { return w.err != nil || w.net.Broken != "" }

// setUp starts the nodes, makes what clients use, and lets the clients come.
func (w *world) setUp() bool {
	w.last = true
	for _, n := range w.nodes {
		n.start()
	}
	l := w.leader()
	if l == nil || !w.make(l) {
		return false
	}
	w.clients = append(w.clients, &wplain{wconn{w: w}}, &wplain{wconn{w: w}}, &wnamer{wconn: wconn{w: w}}, &wkeys{wconn: wconn{w: w}},
		&wproducer{wconn: wconn{w: w}, first: true}, &wsession{wconn: wconn{w: w}})
	for _, g := range w.truth.groups {
		for range 1 + w.rng.Intn(2) {
			w.subscribe(g, w.rng.Intn(8) == 0)
		}
	}
	w.last = false
	for _, n := range w.nodes {
		n.life.arm()
	}
	return true
}

// make makes the topics and groups, as a facade does.
func (w *world) make(l *wlife) bool {
	t := &w.truth
	do := func(body []byte) []uint64 {
		ch, err := l.g.prop.command(body)
		if err != nil {
			w.failf("command: %v", err)
			return nil
		}
		for range 1000 {
			select {
			case res := <-ch:
				if res.err != nil {
					w.failf("command: %v", res.err)
				}
				return res.ids
			default:
				w.quiet()
			}
		}
		w.failf("a command is not answered")
		return nil
	}
	ids := do(createPartitionsCommand(topicN(90), []PartitionSpec{{Retention: kernel.RetainDay}}, 1))
	if len(ids) == 0 {
		return false
	}
	t.tomb = PartitionID(ids[0])
	for i, st := range simTopics {
		specs := make([]PartitionSpec, st.parts)
		for k := range specs {
			specs[k] = PartitionSpec{Index: int32(k), Retention: st.retention}
		}
		for _, id := range do(createPartitionsCommand(topicN(byte(i+1)), specs, 1)) {
			t.addPart(PartitionID(id), topicN(byte(i+1)))
		}
		for k := range st.groups {
			spec := GroupSpec{Address: kernel.GroupAddress{Tenant: "/", Group: fmt.Sprint(k), Topic: fmt.Sprint(i)},
				Topic: topicN(byte(i + 1)), Owner: k == 0, FromStart: true}
			command := createGroupCommand(spec, 1)
			if i == simLimited {
				spec.Limits = simLimits()
				command = createLimitedCommand(spec, 1)
			}
			ids := do(command)
			if len(ids) == 0 {
				return false
			}
			t.addGroup(GroupID(ids[0]), spec.Topic, k == 0, i == simLimited)
			t.byID[GroupID(ids[0])].turns = st.retention != kernel.RetainDay && k == st.groups-1
		}
	}
	ids = do(createPartitionsCommand(topicN(91), []PartitionSpec{{Retention: kernel.RetainDay}}, 1))
	group := do(createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "pinned"), Topic: topicN(91), Owner: true, FromStart: true}, 1))
	if len(ids) == 0 || len(group) == 0 {
		return false
	}
	t.addPart(PartitionID(ids[0]), topicN(91))
	t.addGroup(GroupID(group[0]), topicN(91), true, false)
	t.byID[GroupID(group[0])].pins = true
	w.clients = append(w.clients, &wpinner{wconn: wconn{w: w}, took: map[place]bool{}, g: t.byID[GroupID(group[0])]})
	return w.err == nil
}

// leader waits for a node that serves, while nothing fails.
func (w *world) leader() *wlife {
	for range 400 {
		w.quiet()
		for _, n := range w.nodes {
			if n.serves() && n.life.raft.Leads() {
				return n.life
			}
		}
		if w.over() {
			return nil
		}
	}
	w.failf("nobody leads")
	return nil
}

// quiet lets all nodes work until none has anything to do, and some time pass.
func (w *world) quiet() {
	w.net.Advance(10 * time.Millisecond)
	for _, n := range w.nodes {
		w.calm(n)
	}
}

// calm lets a node work until it has nothing to do before some time passes.
func (w *world) calm(n *wnode) {
	settled := 0
	for busy := true; busy && n.alive() && n.life.raft.Awake() && !w.over(); {
		busy = false
		for part := range wparts {
			if n.alive() && n.life.step(part) {
				busy = true
			}
		}
		if l := n.life; l != nil && !busy && l.delay && settled < 3 {
			l.delay, busy = false, true
			settled++
			l.g.prop.settleTimeout()
		}
	}
}

// act does one thing at random.
func (w *world) act() {
	n := w.nodes[w.rng.Intn(len(w.nodes))]
	runs := n.alive() && n.life.raft.Awake()
	k := w.rng.Intn(110)
	switch {
	case k < 18:
		w.net.Advance(time.Duration(w.rng.Intn(15)) * time.Millisecond)
	case k < 45:
		c := w.clients[w.rng.Intn(len(w.clients))]
		if l := c.at(); l == nil || l.left == nil && l.raft.Awake() {
			c.act()
		}
	case k < 46:
		w.net.Advance(time.Duration(30+w.rng.Intn(300)) * time.Millisecond)
		if w.rng.Intn(20) == 0 { // long enough to give up what is unknown
			w.net.Advance(giveUpAfter)
		}
	case k < 47:
		c := w.clients[w.rng.Intn(len(w.clients))]
		if l := c.at(); l != nil && l.raft.Awake() {
			c.leave()
		}
	case k < 50:
		w.disturb(n)
	case !runs:
		if n.life == nil && w.rng.Intn(w.absence) == 0 {
			n.start()
		}
	case k < 80:
		n.life.step(w.rng.Intn(wparts))
	case k < 90:
		w.calm(n)
	default:
		if w.absence > 12 && w.rng.Intn(2) == 0 {
			k = 95 + w.rng.Intn(3) // seals and merges
		}
		n.life.some(k)
	}
}

// some is what a node does now and then.
func (n *wlife) some(k int) {
	switch {
	case k < 93:
		n.g.tick()
	case k < 95:
		if n.delay {
			n.delay = false
			n.g.prop.settleTimeout()
		}
	case k < 96:
		n.g.prop.command(sealCommand()) //nolint:errcheck // if it leads
	case k < 97:
		if ids := chooseMerge(n.g.machine.log.Segments(), nil, int64(1+n.w.rng.Intn(8))<<10, 1<<40); len(ids) > 0 && (!n.g.sent.any() || n.w.rng.Intn(2) == 0) { // another leader may not know
			n.g.prop.command(mergeCommand(ids)) //nolint:errcheck // as for the seal
		}
	case k < 99:
		n.pull()
	case k < 100:
		n.churn()
	case k >= 106:
		n.hear(int(n.knows.Revision()) + n.w.rng.Intn(3))
	case k >= 103:
		n.churn()
	case n.w.rng.Intn(2) == 0:
		n.turnOwner()
	default:
		n.move()
	}
}

// turnOwner has a group begin to hold records back, or cease to.
func (n *wlife) turnOwner() {
	var turning []*wgroup
	for _, g := range n.w.truth.groups {
		if g.turns {
			turning = append(turning, g)
		}
	}
	g := turning[n.w.rng.Intn(len(turning))]
	if n.serves() {
		n.g.prop.command(setOwnerCommand(g.id, n.w.rng.Intn(2) == 0), g.topic) //nolint:errcheck // if it leads
	}
}

// disturb is what goes wrong.
func (w *world) disturb(n *wnode) {
	other := w.nodes[w.rng.Intn(len(w.nodes))]
	switch k := w.rng.Intn(20); {
	case k < 3:
		if n.life != nil {
			n.crash()
		}
	case k < 4:
		w.seen.blackouts++
		for _, n := range w.nodes {
			if n.life != nil {
				n.crash()
			}
		}
	case k < 7: // it is alone
		for i := range w.nodes {
			w.net.Link(n.i, i).Cut, w.net.Link(i, n.i).Cut = true, true
		}
	case k < 9:
		w.net.Link(n.i, other.i).Cut = true
	case k < 11:
		*w.net.Link(n.i, other.i) = raftgroup.SimLink{Loss: w.rng.Intn(50), Delay: time.Duration(w.rng.Intn(150)) * time.Millisecond}
	case k < 15:
		w.net.Heal()
	case k < 18:
		if n.life != nil && n.life.raft.Leads() {
			n.life.raft.Transfer(other.i)
		}
	default:
		for _, o := range w.nodes { // a leader does not know when it wakes that it is none
			if o.life != nil && o.life.raft.Leads() && w.rng.Intn(2) == 0 {
				n = o
			}
		}
		if n.life != nil {
			w.seen.sleeps++
			n.life.raft.Sleep(time.Duration(w.rng.Intn(300)) * time.Millisecond)
		}
	}
}

// wburying is the completion of a dead letter.
type wburying struct {
	n *wlife
	b *Burial
	i int
}

// buryLetters is Config.Bury: the copy first, then the record may be archived.
func (n *wlife) buryLetters(b *Burial) {
	for i := range b.Letters {
		r := b.Letters[i].Record.Record()
		if !n.w.last && n.w.rng.Intn(10) == 0 || n.g.Append(n.g.Targets(n.w.truth.tomb), &r, &wburying{n, b, i}, 0) != nil {
			b.Done(i, true)
		}
	}
}

func (d *wburying) Completed(_ uint64, res kernel.Result) {
	if res.Err == nil {
		d.n.w.seen.buried++
	}
	d.b.Done(d.i, res.Err != nil)
}

func (d *wburying) Flush() {}

var errUnsettled = errors.New("it does not settle down")
