package broker

import "time"

const (
	// partTime is the longest that connections wait for each other when their facade ends
	// in good order, and partLook how often it looks whether they still have to.
	partTime = 300 * time.Millisecond
	partLook = 2 * time.Millisecond
)

// Retire says that Close comes soon: nobody connects any more, and the connections that
// outlast a facade (those with a token) are asked to leave. It does not wait.
func (b *Broker) Retire() {
	b.mu.Lock()
	if b.retired {
		b.mu.Unlock()
		return
	}
	b.retired = true
	b.watcher.Go(b.part)
	conns := make([]*Conn, 0, len(b.tokens))
	for _, c := range b.tokens {
		conns = append(conns, c)
	}
	b.mu.Unlock()
	if g := b.alarms.gathered.Load(); g != nil {
		g.end()
	}
	for _, c := range conns {
		c.askToEnd(errStopping())
	}
}

// part lets the connections that outlast a facade go when all have come to leave, and
// what memory-only queues have for consumers is handed out; for 300 ms they wait for that.
// Each has the outcome of all that it has published when it comes. Else what the last ones
// publish would miss the exclusive queues of the first, and what has come to those would
// go with them.
func (b *Broker) part() {
	defer close(b.parted)
	late := time.NewTimer(partTime)
	defer late.Stop()
	tick := time.NewTicker(partLook)
	defer tick.Stop()
	for !b.allLeave() || b.volatileReady() {
		select {
		case <-tick.C:
		case <-late.C:
			return
		case <-b.ctx.Done(): // the leadership is lost
			return
		}
	}
}

// leave is called when the connection is about to close. If the facade does as well, it
// waits for the others, and goes on to consume meanwhile.
func (c *Conn) leave() {
	b := c.b
	b.mu.Lock()
	waits := b.retired && c.about.Token != ""
	if waits {
		b.leaving++
	}
	b.mu.Unlock()
	if !waits {
		return
	}
	select {
	case <-b.parted:
	case <-b.ctx.Done():
	}
}

func (b *Broker) allLeave() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.leaving == len(b.tokens)
}

// volatileReady reports whether memory-only queues have records for their consumers.
func (b *Broker) volatileReady() bool {
	for _, t := range b.tenants.load() {
		if t.volatileReady() {
			return true
		}
	}
	return false
}

func (t *tenant) volatileReady() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.groups {
		if g.place != t.b.volatile {
			continue
		}
		if ready, _, members, _, _ := g.place.Stats(g.id); ready > 0 && members > 0 {
			return true
		}
	}
	return false
}
