package forward

import (
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// Deliver implements kernel.Consumer.
func (f *wfeed) Deliver(batch []kernel.Delivery) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past {
		return
	}
	for i := range batch {
		b := &batch[i]
		at := kernel.Place{Partition: b.Partition, Offset: b.Offset}
		name, _ := b.Record.Header("name")
		s.d.hears(f, at, string(name), b.Redelivered)
		if f.qos == 1 {
			f.held = append(f.held, at)
			continue
		}
		e := &wslot{id: kernel.PinID{Number: s.number(), Count: s.d.counts()}, f: f, at: at}
		s.slots[e.id.Number] = e
		f.m.Pin(e.id, at.Partition, at.Offset)
	}
	s.bounded(f)
	s.note()
}

// bounded looks whether more is under way than the device takes. s.mu is held.
func (s *wsession) bounded(f *wfeed) {
	n := len(f.held)
	for _, e := range s.slots {
		if e.f == f {
			n++
		}
	}
	if n > deviceWindow {
		s.d.w.truth.Failf("%s has %d of %s under way", s.id, n, f.filter)
	}
}

// number returns a number that is free. s.mu is held.
func (s *wsession) number() uint16 {
	for {
		s.next = s.next%30 + 1
		if s.slots[s.next] == nil {
			return s.next
		}
	}
}

func (d *wdevice) counts() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count++
	return d.count
}

// hears notes what a device is handed. The front-end's mutex is held.
func (d *wdevice) hears(f *wfeed, at kernel.Place, name string, again bool) {
	t := d.w.truth
	t.hears(f.filter, name)
	d.mu.Lock()
	defer d.mu.Unlock()
	p := wdplace{f.filter, at}
	if was, known := d.names[p]; known && was != name {
		t.Failf("%s: %v is %s, and was %s", f.s.id, p, name, was)
	} else if known && !again {
		t.Failf("%s: %s comes again at %v, unmarked", f.s.id, name, p)
	}
	d.names[p] = name
	if by, over := t.over(wackAt{d.name, f.filter, at}, f.s.id); over {
		t.Failf("%s: %s comes again at %v, and was acknowledged by %s", f.s.id, name, p, by)
	}
	if slices.Contains(f.held, at) {
		t.Failf("%s: %s comes again at %v, and is not acknowledged yet", f.s.id, name, p)
	}
	for _, e := range f.s.slots {
		if e.f == f && e.at == at {
			t.Failf("%s: %s comes again at %v, and is under way as %d", f.s.id, name, p, e.id.Number)
		}
	}
	if f.qos == 1 {
		d.one[name] = true
	}
}

// gets is a PUBLISH with QoS 2. The front-end's mutex is held.
func (d *wdevice) gets(e *wslot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := d.names[wdplace{e.f.filter, e.at}]
	if was, dup := d.rec[e.id.Number]; dup {
		if was != name {
			d.w.truth.Failf("%s: %s comes as %d, which is %s", d.name, name, e.id.Number, was)
		}
		return
	}
	d.rec[e.id.Number] = name
	if d.times[name]++; d.times[name] > 1 {
		d.w.truth.Failf("%s: %s comes %d times with QoS 2", d.name, name, d.times[name])
	}
	d.w.truth.count("twos")
}

// Ended implements kernel.Consumer.
func (f *wfeed) Ended(reason error) {
	f.s.d.w.truth.Failf("%s: the subscription to %s ends: %v", f.s.id, f.filter, reason)
}

// Live implements kernel.LiveSubscriber.
func (f *wfeed) Live(*kernel.LiveMessage, uint64) bool { return true }

// Room implements kernel.LiveSubscriber.
func (f *wfeed) Room() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// Holding implements kernel.Holder.
func (f *wfeed) Holding() []kernel.Place {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return slices.Clone(f.held)
}

// Lost implements kernel.Holder. Nobody else reads what this device does.
func (f *wfeed) Lost(places []kernel.Place) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	for _, at := range places {
		if slices.Contains(f.held, at) {
			f.s.d.w.truth.Failf("%s: what is at %v of %s is said to be another's", f.s.id, at, f.filter)
		}
	}
}

// Pinned implements kernel.Pinner.
func (f *wfeed) Pinned(numbers []uint16, err error) {
	f.told(numbers, err, sPinning, func(e *wslot) {
		e.stage = sSent
		f.s.d.gets(e)
	})
}

// Taken implements kernel.Pinner.
func (f *wfeed) Taken(numbers []uint16, err error) {
	f.told(numbers, err, sTaking, func(e *wslot) { e.stage = sTaken })
}

func (f *wfeed) told(numbers []uint16, err error, want wstage, fn func(*wslot)) {
	s := f.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past || s.taken {
		return
	}
	for _, n := range numbers {
		switch e := s.slots[n]; {
		case err != nil:
			s.d.w.truth.Failf("%s: number %d: %v", s.id, n, err)
		case e == nil || e.stage != want:
			s.d.w.truth.Failf("%s: number %d is told of, and is not waited for: %+v", s.id, n, e)
		default:
			fn(e)
		}
	}
	s.note()
}

// turn acknowledges some of what a device has, and publishes.
func (d *wdevice) turn() {
	s := d.now
	d.does("acknowledges")
	for _, f := range s.feeds {
		s.ack(f)
	}
	s.goOn()
	if d.going() && d.rnd.IntN(4) == 0 {
		d.up()
	}
}

// ack acknowledges with QoS 1.
func (s *wsession) ack(f *wfeed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := s.d.rnd.IntN(5); n > 0 && len(f.held) > 0; n-- {
		i := s.d.rnd.IntN(len(f.held))
		at := f.held[i]
		f.held = slices.Delete(f.held, i, i+1)
		s.d.w.truth.acks(wackAt{s.d.name, f.filter, at}, s.id)
		f.m.Settle(kernel.Accept, at.Partition, at.Offset, at.Offset)
		f.m.Credit(1)
		s.d.w.truth.count("ones")
	}
}

// goOn goes on with what is under way with QoS 2.
func (s *wsession) goOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, e := range s.slots {
		if s.d.rnd.IntN(3) == 0 {
			continue
		}
		switch e.stage {
		case sSent: // PUBREC
			e.stage = sTaking
			e.f.m.Take(e.id, e.at.Partition, e.at.Offset)
		case sTaken: // PUBREL and PUBCOMP
			s.d.mu.Lock()
			delete(s.d.rec, n)
			s.d.mu.Unlock()
			delete(s.slots, n)
			e.f.m.Unpin(e.id)
			e.f.m.Credit(1)
		}
	}
}

// done reports whether a device has all that was confirmed.
func (d *wdevice) done() bool {
	s := d.now
	s.mu.Lock()
	under := len(s.slots)
	for _, f := range s.feeds {
		under += len(f.held)
	}
	s.mu.Unlock()
	return under == 0 && len(d.missing()) == 0
}

// missing lists what was confirmed and has not come.
func (d *wdevice) missing() (list []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.w.truth
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, say := range t.said {
		if say.fate == isConfirmed && (say.filter == "one/#" && !d.one[name] || say.filter == "two/#" && d.times[name] == 0) {
			list = append(list, name)
		}
	}
	return list
}

// settle does something until a condition holds, or time is up.
func (w *world) settle(cond func() bool, do func()) {
	for limit := time.Now().Add(historyTime / 2); !cond() && time.Now().Before(limit); w.sleep(10 * time.Millisecond) {
		do()
	}
}
