// Package sharegroup is the state machine behind "many consumers work off one
// backlog, each message is settled by one of them": an AMQP queue, an MQTT shared
// subscription, a Kafka share group (KIP-932). All three are this one object.
//
// The package is pure. It does no I/O, starts no goroutine and has no clock: now
// is passed in, in nanoseconds of any clock that does not run backwards. Results
// do not depend on map order, so the same events give the same bytes. Nothing in
// it is safe for concurrent use: one goroutine steps a Group and its windows.
//
// # Window
//
// A Window is the state of one group on one partition, in two layers.
//
// The durable layer is equal on all replicas: floor (KIP-932: SPSO), settled
// ranges above it, failed counts, readTo with the number of times it was lowered,
// and the number of seeks (epoch). Only [Window.Apply] and [Window.TrimTo] change
// it, at the same places in the log everywhere. Apply is idempotent and monotone, but for a seek, which moves the
// epoch and so voids what was made before it.
//
// The overlay exists on the leader, from [Window.Lead] to [Window.Unlead]: who
// holds what, what was given back, the next unread offset, and the settlement
// being gathered. Dropping it makes everything unsettled available again.
//
//	state         KIP-932       where it is
//	unread        Available     at or above next, not settled, not closing
//	given back    Available     a slot, in back
//	held          Acquired      a slot, in held
//	on its way    -             below next, no slot, not settled: in a settlement that
//	                            is gathered or proposed; or dead, waiting for Archive
//	                            (Archiving)
//	settled       Acknowledged, below floor or in a settled range; which of the two
//	              Archived      it was is told apart in the Settlement only
//	closing       -             a hole at or above next; archived when stepped over
//
//	unread, given back -> held         Acquire                 acquired count + 1
//	unread, given back -> on its way   Acquire by an Auto member; Purge; Bury; over the limit
//	held -> given back                 Release; Fail, Expire, ReleaseAll: failed + 1
//	held -> on its way                 Accept, Refuse, Gap; at the limit; Hole
//	on its way -> settled              Apply
//	any -> settled                     TrimTo; a settlement applied
//	any -> unread                      Unlead and Lead; a seek applied
//
// Invariants, which the tests hold against a model with one entry per offset:
//
//   - No record is held by two members. None is lost: what is not settled is
//     unread, given back, held or on its way.
//   - First hand-outs are in offset order. What was given back goes first, lowest
//     offset first.
//   - A record handed out before under this overlay, or that lay below readTo when
//     it began, is marked redelivered. With Policy.ReadAhead no record is handed
//     out that an applied readTo does not cover, so the mark has no gaps.
//   - Memory follows what is in flight or out of order, never the backlog. A stuck
//     record costs one page (about 800 bytes) and stalls nobody.
//   - Only the holder settles; anybody else gets [ErrStale] and changes nothing.
//
// # Settlements
//
// Settling gathers into a pending [Settlement], coalesced to ranges.
// [Window.Settle] returns the ticket of it; [Window.Take] hands it over to be
// proposed, and when it is committed every replica applies it. Its contents are
// absolute, so one that certainly was not committed is proposed again as it is, as
// long as the window leads in that term. A record on its way is not available
// meanwhile, and its memory is free already.
//
// A refused record, one at the limit, or one that [Window.Bury] took, is listed by [Window.TakeDead]. With
// Policy.DeadLetter it is archived only when the driver has called
// [Window.Archive]: after the copy is committed, or just before Take if copy and
// settlement go into the same entry. A leader change in between hands the record
// out again, marked, so a dead letter may be doubled but not lost.
//
// # Group
//
// A [Group] hands out the records of its leading windows to members, one record
// per turn among those with credit. Credit is granted by the edge, which knows what
// the wire can take, and counts down by hand-outs alone: settling gives none.
//
// The driver feeds events and then pumps until there is no more to do:
//
//	append applied    w.Extend(end)          on the leader, before or after Apply
//	settlement        w.Apply(&s)            on every replica; completes tickets up to s.Seq
//	log start moved   w.TrimTo(start)        on every replica
//	member            g.Join, g.Grant, g.Stop, g.Leave
//	ack               g.Settle
//	hole while read   w.Hole
//	too old, too many w.Bury: the driver knows ages and lengths
//	timer             g.Expire, due at g.NextDeadline; w.Calm every second while w.Ahead
//	planned end       g.Exact, and no Pump after it
//	then              outs, more := g.Pump(now, budget): read and send outs
//	then              for w := range g.Dirty(): w.TakeDead, w.Take at the next entry;
//	                  at once if w.Urgent or somebody waits for a ticket
//
// If more is true the driver puts the group at the end of its run queue, so that a
// hot group cannot starve others. A group without credit or records costs a few
// nanoseconds when pumped, and need not be. Pull is [Group.Acquire] and
// [Group.AcquireFrom], for basic.get and ShareFetch.
package sharegroup
