package forward

import (
	"context"
	"time"
)

// fault is something that happens to the host, an edge or a stream.
func (w *world) fault() {
	switch n := w.rnd.IntN(20); {
	case n < 6:
		w.truth.count("planned")
		w.change(w.goodEnd)
	case n < 11:
		w.truth.count("lost")
		w.change(w.badEnd)
	case n < 14:
		w.truth.count("flaps")
		w.flap()
	case n < 18:
		if l := w.anyLink(); l != nil && !l.asks() {
			w.truth.count("cuts")
			l.cut()
		}
	default:
		if l := w.anyLink(); l != nil && l.wire != nil {
			w.truth.count("stalls")
			l.wire.pause(time.Duration(w.rnd.IntN(3000)) * time.Millisecond)
		}
	}
}

func (w *world) anyLink() *wlink {
	list := w.truth.opened()
	if len(list) == 0 {
		return nil
	}
	return list[w.rnd.IntN(len(list))]
}

// change lets another facade serve. The edges learn that at times of their own, or not at
// all where it is the same node.
func (w *world) change(end func()) {
	early, late := w.rnd.IntN(2) == 0, w.rnd.IntN(3) > 0
	w.truth.closes(true)
	end()
	w.trace("the facade has ended")
	w.now = nil
	w.edges[0].Set(nil)
	if early {
		for i := range w.edges {
			w.tell(i)
		}
	}
	w.sleep(time.Duration(w.rnd.IntN(2)*w.rnd.IntN(1500)) * time.Millisecond)
	w.serve()
	for _, i := range w.rnd.Perm(len(w.edges)) {
		if i == 0 || early || late {
			w.sleep(time.Duration(w.rnd.IntN(2)*w.rnd.IntN(200)) * time.Millisecond)
			w.tell(i)
		}
	}
}

// closeTimeout is how long a facade that ends in good order waits for its clients.
const closeTimeout = 12 * time.Second

// goodEnd ends the facade in good order: whoever does not leave in time is cut off.
func (w *world) goodEnd() {
	w.trace("the facade ends in good order")
	w.truth.ends(func(*wlink) bool { return true })
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	patience := time.AfterFunc(closeTimeout-time.Millisecond, w.truth.breaks)
	defer patience.Stop()
	b := w.now
	if err := b.Close(ctx); err != nil {
		w.t.Error(err)
	}
	w.facade.CompareAndSwap(b, nil)
}

// badEnd ends the facade with all its links, in the middle of what they do.
func (w *world) badEnd() {
	w.trace("the facade is lost")
	b := w.now
	w.facade.Store(nil)
	for _, l := range w.truth.opened() {
		if !l.asks() {
			l.cut()
		}
	}
	w.truth.breaks() // those that were on their way
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		w.t.Error(err)
	}
}

// flap has an edge believe that nobody serves, or another host.
func (w *world) flap() {
	at := w.rnd.IntN(len(w.edges))
	if w.rnd.IntN(2) == 0 {
		w.truth.turns(at, w.hosts[at])
		w.edges[at].Set(nil)
		w.sleep(time.Duration(w.rnd.IntN(500)) * time.Millisecond)
	}
	w.tell(at)
}

func (s wseen) add(o wseen) {
	for what, n := range o {
		s[what] += n
	}
}
