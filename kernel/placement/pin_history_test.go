package placement

import (
	"encoding/binary"

	"github.com/trivium-mq/trivium/kernel"
)

// simNumbers is how many numbers the sessions of a history use.
const simNumbers = 6

// pinsim is two sessions of a history: the client of one publishes records that are
// stored once, to the other one records of a group are pinned, which others read,
// too.
type pinsim struct {
	h     *history
	part  PartitionID
	group GroupID

	uses   [simNumbers]simUse
	count  uint64
	token  uint64
	stored map[uint64]bool // tokens whose publish was confirmed, or found to be
	absent map[uint64]bool // tokens that are not there

	m     *Member
	held  []int64 // by m, and not pinned
	pins  [simNumbers]simPin
	order uint64
	mine  map[int64]bool // pinned once: nobody is handed them again
}

type simState int

const (
	simFree  simState = iota
	simBegun          // a use, or a pin, that is not confirmed
	simIn             // confirmed
	simTaking
	simTaken
	simEnding // is to become free; not confirmed
)

type simUse struct {
	state        simState
	count, token uint64
	kept         uint64 // token of the last keyed write that was confirmed
}

type simPin struct {
	state  simState
	id     kernel.PinID
	offset int64
}

const (
	simPublisher = "/\x00p"
	simReader    = "/\x00c"
)

func newPinsim(h *history) *pinsim {
	return &pinsim{h: h, stored: map[uint64]bool{}, absent: map[uint64]bool{}, mine: map[int64]bool{}}
}

// prepare makes the topic and the group.
func (p *pinsim) prepare() bool {
	res, ok := p.h.do(createPartitionsCommand(topicN(91), []PartitionSpec{{Retention: kernel.RetainDay}}, 1))
	if !ok {
		return false
	}
	p.part = PartitionID(res.ids[0])
	res, ok = p.h.do(createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "pinned"), Topic: topicN(91), Owner: true, FromStart: true}, 1))
	if ok {
		p.group = GroupID(res.ids[0])
	}
	return ok
}

func (p *pinsim) act() {
	n, rng := p.h.rng.Intn(simNumbers), p.h.rng
	switch rng.Intn(11) {
	case 0, 1, 2:
		p.publish(n)
	case 3:
		if p.m == nil {
			p.join()
		} else {
			p.m.Credit(1 + rng.Intn(4))
		}
	case 4, 5:
		p.pin(n)
	case 6:
		p.take(n)
	case 7:
		if x := &p.pins[n]; x.state == simTaken && p.m != nil {
			x.state = simEnding
			p.m.Unpin(x.id)
		}
	case 8:
		if x := &p.pins[n]; x.state == simIn && p.h.g.Unpin(simReader, x.id) == nil {
			x.state = simEnding // it is refused
		}
	case 9:
		p.leave()
		if rng.Intn(3) == 0 {
			p.forget()
		}
	default:
		p.other(1)
	}
}

// publish begins a use of a number, repeats the publish, or releases the number.
func (p *pinsim) publish(n int) {
	u, g := &p.uses[n], p.h.g
	switch {
	case u.state == simFree:
		p.count++
		p.token++
		u.state, u.count, u.token = simBegun, p.count, p.token
	case u.state == simIn && p.h.rng.Intn(2) == 0:
		u.state = simEnding
		if g.ReleaseOnce(simPublisher, []uint16{uint16(n)}, &simRelease{p, n, u.count}, 0) != nil {
			u.state = simIn
		}
		return
	case u.state == simEnding:
		return
	}
	r, set := numbered(u.token), g.Targets(p.part)
	once := kernel.Once{Session: simPublisher, Number: uint16(n), Count: u.count}
	done := &simStored{p: p, n: n, count: u.count, token: u.token}
	if n%2 == 0 { // what is refused is done again
		g.AppendOnce(set, r, once, done, 0) //nolint:errcheck
	} else {
		done.keyed = true
		g.AppendKeyed(set, r, []KV{{Key: []byte{100 + byte(n)}, Value: binary.BigEndian.AppendUint64(nil, u.token)}}, once, done, 0) //nolint:errcheck
	}
}

// simStored and simRelease are completions.
type simStored struct {
	p            *pinsim
	n            int
	count, token uint64
	keyed        bool
}

func (d *simStored) Completed(_ uint64, res kernel.Result) {
	if res.Err != nil {
		return // the next life, or the next repeat, tells
	}
	d.p.stored[d.token] = true
	u := &d.p.uses[d.n]
	if d.keyed {
		u.kept = max(u.kept, d.token)
	}
	if u.count == d.count && u.state == simBegun {
		u.state = simIn
		d.p.h.seen.once++
	}
}

func (d *simStored) Flush() {}

type simRelease struct {
	p     *pinsim
	n     int
	count uint64
}

func (d *simRelease) Completed(_ uint64, res kernel.Result) {
	if u := &d.p.uses[d.n]; u.count == d.count && u.state == simEnding && res.Err == nil {
		u.state = simFree
	}
}

func (d *simRelease) Flush() {}

// join attaches the session that is pinned to.
func (p *pinsim) join() {
	m, err := p.h.g.Join(p.group, kernel.MemberOptions{Session: "c"}, (*simPinner)(p))
	if err != nil {
		p.h.failf("join: %v", err)
		return
	}
	p.m = m
	m.Credit(3)
}

func (p *pinsim) leave() {
	if p.m != nil {
		p.m.Leave()
	}
	p.m, p.held = nil, nil
}

func (p *pinsim) pin(n int) {
	x := &p.pins[n]
	switch {
	case p.m == nil:
		p.join()
		return
	case x.state != simFree || len(p.held) == 0:
		return
	}
	p.order++
	*x = simPin{simBegun, kernel.PinID{Number: uint16(n), Count: p.order}, p.held[0]}
	p.held = p.held[1:]
	p.m.Pin(x.id, 0, x.offset)
}

func (p *pinsim) take(n int) {
	x := &p.pins[n]
	if x.state != simIn || p.m == nil {
		return
	}
	if p.h.rng.Intn(4) == 0 {
		x.state = simEnding
		p.m.Refuse(x.id, 0, x.offset)
		return
	}
	x.state = simTaking
	p.m.Take(x.id, 0, x.offset)
}

// forget ends the session, if all is known of it.
func (p *pinsim) forget() {
	for i := range p.pins {
		if s := p.pins[i].state; s == simBegun || s == simTaking {
			return
		}
	}
	if _, err := p.h.g.prop.command(appendString([]byte{cmdForget}, simReader)); err != nil {
		return
	}
	for i := range p.pins {
		if x := &p.pins[i]; x.state != simFree {
			x.state = simEnding
			p.h.seen.orphans++
		}
	}
}

// other reads as somebody else.
func (p *pinsim) other(n int) {
	m, err := p.h.g.Join(p.group, kernel.MemberOptions{AutoSettle: true}, (*simOther)(p))
	if err != nil {
		p.h.failf("join: %v", err)
		return
	}
	m.Credit(n)
}

type simPinner pinsim

func (s *simPinner) Deliver(batch []kernel.Delivery) {
	p := (*pinsim)(s)
	p.handed(batch)
	for _, d := range batch {
		p.held = append(p.held, d.Offset)
	}
}

func (s *simPinner) Ended(error) {}

func (s *simPinner) Pinned(numbers []uint16, err error) {
	p := (*pinsim)(s)
	for _, n := range numbers {
		if x := &p.pins[n]; x.state == simBegun && err == nil {
			x.state = simIn
			p.mine[x.offset] = true
			p.h.seen.pinned++
		}
	}
}

func (s *simPinner) Taken(numbers []uint16, err error) {
	for _, n := range numbers {
		if x := &s.pins[n]; x.state == simTaking && err == nil {
			x.state = simTaken
		}
	}
}

type simOther pinsim

func (s *simOther) Deliver(batch []kernel.Delivery) { (*pinsim)(s).handed(batch) }
func (s *simOther) Ended(error)                     {}

// handed checks what somebody gets: nothing that was ever known to be pinned.
func (p *pinsim) handed(batch []kernel.Delivery) {
	for _, d := range batch {
		p.h.note(int(d.Offset))
		if p.mine[d.Offset] {
			p.h.failf("the pinned record %d is handed out again", d.Offset)
		}
	}
}

// crash forgets what goes with the process.
func (p *pinsim) crash() { p.m, p.held = nil, nil }

// check compares the node, which has nothing to do, with what is known.
func (p *pinsim) check() {
	part := p.h.g.machine.parts[p.part]
	if part == nil {
		return
	}
	p.checkUses(p.h.g.machine.ledgers[simPublisher])
	p.checkPins(p.h.g.machine.ledgers[simReader])
	p.checkStored(part)
}

func (p *pinsim) checkUses(l *ledger) {
	for n := range p.uses {
		u := &p.uses[n]
		var count uint64
		if l != nil {
			count = l.used[uint16(n)]
		}
		switch {
		case u.state == simFree && count != 0:
			p.h.failf("number %d was released and is in use", n)
		case u.state == simIn && count != u.count:
			p.h.failf("number %d was in its use %d and is in %d", n, u.count, count)
		case u.state == simEnding && count == 0:
			u.state = simFree
		case u.state == simEnding:
			u.state = simIn
		case u.state == simBegun && count == u.count:
			u.state = simIn
			p.stored[u.token] = true
		case u.state == simBegun:
			u.state = simFree
			p.absent[u.token] = true
		}
	}
}

func (p *pinsim) checkPins(l *ledger) {
	for n := range p.pins {
		x := &p.pins[n]
		var is *pin
		if l != nil {
			is = l.pins[uint16(n)]
		}
		if is != nil && (is.Count != x.id.Count || is.offset != x.offset) {
			p.h.failf("number %d is pinned to %d for the %d. time", n, is.offset, is.Count)
		}
		switch {
		case x.state == simFree && is != nil:
			p.h.failf("number %d is free and pinned", n)
		case x.state == simIn && (is == nil || is.taken):
			p.h.failf("number %d is not pinned any more", n)
		case x.state == simTaken && (is == nil || !is.taken):
			p.h.failf("that number %d is taken is lost", n)
		case is == nil:
			x.state = simFree
		case is.taken:
			x.state = simTaken
		default:
			x.state = simIn
			p.mine[x.offset] = true
		}
	}
}

func (p *pinsim) checkStored(part *partition) {
	there := make(map[uint64]bool)
	c := part.log.Cursor()
	for {
		v, err := c.Next()
		if p.h.left != nil {
			return
		}
		if err != nil {
			p.h.failf("read: %v", err)
			return
		}
		if v == nil {
			break
		}
		token := numberOf(v)
		if there[token] || p.absent[token] {
			p.h.failf("record %d is there twice, or once too often", token)
		}
		there[token] = true
	}
	for token := range p.stored {
		if !there[token] {
			p.h.failf("record %d was confirmed and is missing", token)
		}
	}
	for n := 1; n < simNumbers; n += 2 {
		value, err := p.h.g.Get([]byte{100 + byte(n)})
		if err == nil && p.uses[n].kept > 0 && (len(value) != 8 || binary.BigEndian.Uint64(value) < p.uses[n].kept) {
			p.h.failf("key %d has %x, which is older than record %d", n, value, p.uses[n].kept)
		}
	}
}

// settleDown has others take what they may have.
func (p *pinsim) settleDown() {
	p.leave()
	p.other(1 << 20)
}

// nothingLeft: at the end all records are settled but those that are pinned.
func (p *pinsim) nothingLeft() {
	if n := p.h.g.machine.orphans(); n > 0 {
		p.h.failf("%d orphans are left", n)
	}
	pinned := make(map[int64]bool)
	for i := range p.pins {
		if x := &p.pins[i]; x.state == simIn {
			pinned[x.offset] = true
		}
	}
	w := p.h.g.machine.groups[p.group].window(0)
	for off := w.part.log.Start(); off < w.part.log.End(); off++ {
		if w.Settled(off) == pinned[off] {
			p.h.failf("record %d: pinned %v, settled %v", off, pinned[off], w.Settled(off))
		}
	}
}
