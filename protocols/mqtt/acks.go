package mqtt

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// acks are the PUBACKs and PUBRECs a connection owes, in the order of the PUBLISH
// packets. Outcomes come in any order; only the completed head of the line goes
// out.
//
// The reader adds and submits; kernel goroutines complete; both release.
type acks struct {
	// submitted is the newest token whose publish call has returned: before
	// that it is not known whether anybody matched.
	submitted atomic.Uint64

	mu    sync.Mutex
	ring  []ack  // power of two
	head  uint64 // token of the oldest
	next  uint64 // token of the next one
	limit int
	// received are the QoS 2 publishes of this connection that have their PUBREC and
	// not their PUBCOMP: they count against the receive maximum of a version 5
	// client. An older one, which does not know the number, could not go on if they
	// held it up.
	received map[uint16]struct{}
	strict   bool

	waiting bool
	space   chan struct{} // capacity 1
}

type ack struct {
	id   uint16
	pt   byte // PUBACK or PUBREC
	code wire.Code
	done bool
	// lost: no answer may be given, see lost.
	lost     bool
	retained bool
}

// noToken is the token of publishes that nobody waits for.
const noToken = 0

func (a *acks) init(limit int) {
	a.limit = limit
	a.head, a.next = 1, 1
	a.space = make(chan struct{}, 1)
}

// add puts a PUBLISH in the line. ok is false when the line is full.
func (a *acks) add(pt byte, id uint16, retained bool) (token uint64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := int(a.next - a.head)
	if pt == wire.Pubrec {
		delete(a.received, id) // sent once more
	}
	if n >= a.limit || a.strict && n+len(a.received) >= a.limit {
		return 0, false
	}
	if n == len(a.ring) {
		a.grow()
	}
	token = a.next
	a.next++
	*a.at(token) = ack{id: id, pt: pt, retained: retained}
	return token, true
}

func (a *acks) grow() {
	old := a.ring
	a.ring = make([]ack, max(16, 2*len(old)))
	for t := a.head; t < a.next; t++ {
		*a.at(t) = old[t&uint64(len(old)-1)]
	}
}

func (a *acks) at(token uint64) *ack { return &a.ring[token&uint64(len(a.ring)-1)] }

// complete notes the outcome of a publish.
func (a *acks) complete(token uint64, code wire.Code, lost bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.head || token >= a.next {
		return
	}
	if e := a.at(token); !e.done {
		e.code, e.done, e.lost = code, true, lost
	}
}

// reachedNobody marks a publish that nobody gets, before it is answered: nothing is
// stored, so nothing is left to wait for, unless it is retained.
func (a *acks) reachedNobody(token uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if token < a.head || token >= a.next {
		return
	}
	if e := a.at(token); e.code == wire.Success && !e.retained {
		e.code, e.done = wire.NoMatchingSubscribers, true
	}
}

// due returns the oldest PUBACK if it may go out, else nil. The caller holds mu.
func (a *acks) due() *ack {
	if a.head == a.next || a.head > a.submitted.Load() {
		return nil
	}
	if e := a.at(a.head); e.done {
		return e
	}
	return nil
}

// drop takes the oldest one off the line. The caller holds mu.
func (a *acks) drop() {
	if e := a.at(a.head); e.pt == wire.Pubrec && e.code < wire.UnspecifiedError {
		if a.received == nil {
			a.received = make(map[uint16]struct{})
		}
		a.received[e.id] = struct{}{}
	}
	a.head++
	if a.waiting {
		a.waiting = false
		a.space <- struct{}{}
	}
}

// inUse says whether a QoS 2 publish with that identifier waits for its PUBREL.
func (a *acks) inUse(id uint16) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.received[id]
	return ok
}

// unreleased are the identifiers of QoS 2 publishes that are stored, as far as is known,
// and that the client has not released. Safe for concurrent use.
func (a *acks) unreleased() []uint16 {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]uint16, 0, len(a.received))
	for id := range a.received {
		list = append(list, id)
	}
	for t := a.head; t < a.next; t++ {
		if e := a.at(t); e.pt == wire.Pubrec && e.done && !e.lost && e.code < wire.UnspecifiedError {
			list = append(list, e.id)
		}
	}
	return list
}

// completed ends QoS 2 publishes: they have their PUBCOMP. It returns those of them that
// were of this connection: a node that serves since may not know them.
func (a *acks) completed(ids []uint16) (known []uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range ids {
		if _, ok := a.received[id]; ok {
			known = append(known, id)
			delete(a.received, id)
		}
	}
	return known
}

// wait returns nil once fewer than n PUBACKs are owed.
func (a *acks) wait(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		owed := int(a.next - a.head)
		a.waiting = owed >= n
		a.mu.Unlock()
		if owed < n {
			return nil
		}
		select {
		case <-a.space:
		case <-ctx.Done():
			a.mu.Lock()
			a.waiting = false
			select {
			case <-a.space:
			default:
			}
			a.mu.Unlock()
			return ctx.Err()
		}
	}
}
