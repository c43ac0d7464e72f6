package placement

import (
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/kv"
)

// wpinner is a session that takes with QoS 2: what it is handed it pins, then takes, then
// lets go of. When it comes again it is told, behind all that was under way, what is
// pinned to it.
type wpinner struct {
	wconn
	g     *wgroup
	link  *wlink // nil: it is not there
	wait  <-chan commandResult
	pins  [4]wpin
	order uint64
	took  map[place]bool // it has said so
	final bool           // it was told after everything had healed
}

type wpin struct {
	state simState
	id    kernel.PinID
	at    place
}

// wlink is one membership of it.
type wlink struct {
	p      *wpinner
	m      *Member
	sh     *share
	held   []place
	synced bool
	ended  bool
}

func (p *wpinner) leave() {
	l, life := p.link, p.life
	p.link, p.wait, p.life = nil, nil, nil
	for at, c := range p.g.held {
		if c == client(p) {
			delete(p.g.held, at)
		}
	}
	if l != nil && !life.gone && life.left == nil {
		l.m.Leave()
	}
}

// here makes sure that it is there, and has been told.
func (p *wpinner) here() bool {
	if p.link != nil && (p.link.ended || !p.life.serves()) {
		p.leave()
	}
	if !p.connect() {
		return false
	}
	if p.link == nil {
		l := &wlink{p: p}
		m, err := p.life.g.Join(p.g.id, kernel.MemberOptions{Session: "c"}, l)
		if err != nil {
			p.leave()
			return false
		}
		l.m, l.sh, p.link = m, m.share, l
		p.ask()
	}
	return p.told()
}

// ask is what told waits for.
func (p *wpinner) ask() {
	if p.wait == nil {
		p.wait, _ = p.life.g.prop.command(barrierCommand())
		p.link.ended = p.link.ended || p.wait == nil
	}
}

func (p *wpinner) told() bool {
	select {
	case res := <-p.wait:
		p.wait = nil
		if res.err != nil {
			p.link.ended = true
			return false
		}
		p.sync()
	default:
	}
	return p.link.synced
}

// sync compares what is pinned with what is known.
func (p *wpinner) sync() {
	first := !p.link.synced
	p.link.synced, p.final = true, p.w.last
	l := p.life.g.machine.ledgers[simReader]
	for n := range p.pins {
		x := &p.pins[n]
		var is *pin
		if l != nil {
			is = l.pins[uint16(n)]
		}
		ours := is != nil && is.Count == x.id.Count
		switch {
		case is != nil && !ours, x.state == simFree && ours:
			p.w.failf("number %d of the session is pinned to %d, count %d", n, is.offset, is.Count)
		case x.state == simIn && (!ours || is.taken), x.state == simTaken && (!ours || !is.taken), x.state == simTaking && !ours:
			p.w.failf("number %d of the session is not pinned to offset %d any more", n, x.at.offset)
		case ours && !is.taken && p.g.settled[x.at] != 0 && !p.took[x.at]: // a settlement refused by the log is logged again, a pin is not
			p.w.failf("offset %d is pinned to the session and settled", x.at.offset)
		case !ours:
			x.state, x.id = simFree, kernel.PinID{}
		case x.state == simEnding && !first: // it may not be on its way yet
		case is.taken:
			x.state = simTaken
		default:
			x.state = simIn
			p.g.pinned[x.at] = true
		}
	}
}

func (p *wpinner) act() {
	for range 4 { // there is much to do for one record
		if p.here() {
			p.some()
		}
	}
}

func (p *wpinner) some() {
	n := p.w.rng.Intn(len(p.pins))
	switch k := p.w.rng.Intn(16); {
	case k < 3:
		p.link.m.Credit(1 + p.w.rng.Intn(3))
	case k < 6:
		p.pin(n)
	case k < 9:
		p.take(n, p.w.rng.Intn(4) == 0)
	case k < 12:
		p.unpin(n)
	case k < 15 || p.w.rng.Intn(4) > 0:
		p.look()
	default:
		p.leave()
	}
}

// look asks what is pinned, if nothing is on its way.
func (p *wpinner) look() {
	if !slices.ContainsFunc(p.pins[:], func(x wpin) bool { return x.state == simBegun || x.state == simTaking }) {
		p.ask()
	}
}

func (p *wpinner) pin(n int) {
	if x := &p.pins[n]; x.state == simFree && len(p.link.held) > 0 && p.wait == nil {
		p.order++
		*x = wpin{simBegun, kernel.PinID{Number: uint16(n), Count: p.order}, p.link.held[0]}
		p.link.held = p.link.held[1:]
		p.link.m.Pin(x.id, 0, x.at.offset)
	}
}

func (p *wpinner) take(n int, refuse bool) {
	x := &p.pins[n]
	if x.state != simIn || p.wait != nil {
		return
	}
	delete(p.g.pinned, x.at)
	p.took[x.at] = true
	term := p.link.sh.topic.shard.term
	if refuse {
		x.state = simEnding
		p.g.say(wheld{place: x.at}, term, kernel.Refuse)
		p.link.m.Refuse(x.id, 0, x.at.offset)
		return
	}
	x.state = simTaking
	p.g.say(wheld{place: x.at}, term, kernel.Accept)
	p.link.m.Take(x.id, 0, x.at.offset)
}

func (p *wpinner) unpin(n int) {
	if x := &p.pins[n]; x.state == simTaken {
		x.state = simEnding
		p.link.m.Unpin(x.id)
	}
}

// done brings all to its end.
func (p *wpinner) done() bool {
	if p.final && !slices.ContainsFunc(p.pins[:], func(x wpin) bool { return x.state != simFree }) {
		p.leave()
		return true
	}
	if p.here() {
		for n := range p.pins {
			p.take(n, false)
			p.unpin(n)
		}
		p.look()
	}
	return false
}

func (l *wlink) Deliver(batch []kernel.Delivery) {
	if l.p.link != l && l.m != nil {
		l.p.w.failf("a session that has left gets records")
	}
	for i := range batch {
		at := l.p.g.handOut(l.p.w, l.sh, &batch[i])
		l.p.g.hold(l.p, at)
		l.held = append(l.held, at.place)
	}
}

func (l *wlink) Ended(error) { l.ended = true }

// Pinned implements kernel.Pinner.
func (l *wlink) Pinned(numbers []uint16, err error) {
	for _, n := range numbers {
		x := &l.p.pins[n]
		switch {
		case l.p.link != l || x.state != simBegun:
		case err == nil:
			x.state = simIn
			l.p.g.pinned[x.at] = true
			l.p.w.seen.pinned++
		default:
			delete(l.p.g.held, x.at)
			l.ended = true // it comes again, and looks
		}
	}
}

// Taken implements kernel.Pinner.
func (l *wlink) Taken(numbers []uint16, err error) {
	for _, n := range numbers {
		x := &l.p.pins[n]
		switch {
		case l.p.link != l || x.state != simTaking:
		case err == nil:
			x.state = simTaken
		default:
			l.ended = true
		}
	}
}

// TestOutdatedPins: a pin that was meant for another term, and comes to the log late, is
// refused as a settlement is: somebody else may hold the record. Its client is told that
// the outcome is unknown.
func TestOutdatedPins(t *testing.T) {
	keys, err := kv.OpenMemory()
	must(t, err)
	defer keys.Close()
	w := newWorld(1, keys)
	if !w.setUp() {
		t.Fatal(w.err)
	}
	w.last = true
	l := w.leader()
	g := w.truth.groups[len(w.truth.groups)-1]
	part := w.truth.parts[len(w.truth.parts)-1]
	l.g.prop.lead(l.raft.Term() - 1) // as if it did not know that it had been another leader's turn
	var told error
	done := wdone(func(res kernel.Result) { told = res.Err })
	body := appendPinRun([]byte{cmdPins}, simReader, 1, appendPin(nil, kernel.PinID{Number: 1, Count: 1}, g.id, part, 0))
	must(t, l.g.prop.post(body, &done, 0))
	for range 20 {
		w.quiet()
	}
	if kernel.CodeOf(told) != kernel.CodeUnknown || told == nil {
		t.Errorf("told %v", told)
	}
	for _, n := range w.nodes {
		if pins := n.life.g.Pins(simReader); len(pins) > 0 {
			t.Errorf("node %d has pins: %v", n.i, pins)
		}
	}
}

// TestPinsAtTheEndOfATerm: what a shard had to log of pins when it ceased to lead is not
// kept for the next time that the node leads, without the settlements that belong to it.
func TestPinsAtTheEndOfATerm(t *testing.T) {
	keys, err := kv.OpenMemory()
	must(t, err)
	defer keys.Close()
	w := newWorld(1, keys)
	if !w.setUp() {
		t.Fatal(w.err)
	}
	w.last = true
	l := w.leader()
	s := l.g.shards[0]
	s.pins = appendPinRun(s.pins, simReader, 1, appendPinOp(nil, opTake, kernel.PinID{Number: 1, Count: 1}))
	l.g.onUnlead()
	s.step()
	if open := l.g.prop.open; !open.empty() || len(open.commands) > 0 {
		t.Errorf("%d commands wait for the next term", len(open.commands))
	}
}
