package placement

import "github.com/trivium-mq/trivium/kernel"

// Member is one consumer's place in a share group. Its methods are safe for
// concurrent use, but must not be called from within a Deliver call or a
// function given to Acquire.
type Member struct{}

// Credit lets n more records be handed out. Never blocks.
func (m *Member) Credit(n int) { panic("unfinished") }

// Settle settles the records first..last of a partition that the member holds;
// any it does not hold are ignored. Never blocks.
func (m *Member) Settle(o kernel.Outcome, partition int32, first, last int64) { panic("unfinished") }

// Acquire takes up to max records now, without credit, and passes them to fn
// (perhaps none) with the number of records still ready. It waits for the
// group's goroutine; fn runs there.
func (m *Member) Acquire(max int, fn func(batch []kernel.Delivery, ready int64)) error {
	panic("unfinished")
}

// Stop ends hand-outs: after it returns no Deliver call is running or will
// come. What the member holds stays held until settled or Leave.
func (m *Member) Stop() { panic("unfinished") }

// Leave ends the membership, gives back what it holds in place, and returns
// how many members (pull members not counted) the group still has. After it
// returns no Deliver call comes. Idempotent; the second call returns the
// present count.
func (m *Member) Leave() (remaining int) { panic("unfinished") }
