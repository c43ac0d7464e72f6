package sharegroup

import "math"

// Policy is what a group's creator fixed. It steers the leader only: applied
// settlements carry results, so a policy may change at any time.
type Policy struct {
	// Limit is the point at which a record is archived instead of given back.
	Limit Limit
	// CountFailed makes counted returns durable also without a limit on them.
	CountFailed bool
	// DeadLetter holds archiving back until the driver says, by Archive, that the
	// copy of the record is safe. Otherwise a dead record is archived at once.
	DeadLetter bool
	// MaxAcquired bounds the records of one window that are held at the same
	// time, 0 is no bound. It is a count, not a span.
	MaxAcquired int
	// ReadAhead is how the redelivered flag survives a crash. 0: readTo is logged
	// with the next settlement, and a record handed out but not yet covered
	// comes back unmarked. n > 0: nothing is handed out that an applied readTo
	// does not cover; at a low rate just that is marked redelivered, and under load
	// up to n records more, which are reserved ahead.
	ReadAhead int
}

// Limit bounds how often a record is tried.
type Limit struct {
	On  Counter
	Max uint32
}

// Counter names what a Limit counts.
type Counter uint8

// NoLimit tries for ever. OnFailed archives a record at the counted return that
// lifts its failed count above Max (RabbitMQ's x-delivery-limit: Max = 20 allows
// 20 redeliveries). OnAcquired archives it when it is given back after Max
// hand-outs (KIP-932's group.share.delivery.count.limit).
const (
	NoLimit Counter = iota
	OnFailed
	OnAcquired
)

// counts says whether counted returns are logged.
func (p *Policy) counts() bool { return p.CountFailed || p.Limit.On == OnFailed }

// over says whether a record with these counts must not be handed out again.
func (p *Policy) over(acquired, failed uint16) bool {
	switch p.Limit.On {
	case OnFailed:
		return uint32(failed) > p.Limit.Max
	case OnAcquired:
		return uint32(acquired) >= max(p.Limit.Max, 1)
	}
	return false
}

// bump counts up and stops at the top.
func bump(n uint16) uint16 {
	if n == math.MaxUint16 {
		return n
	}
	return n + 1
}
