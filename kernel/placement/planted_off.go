//go:build !trivium_planted

package placement

import "github.com/trivium-mq/trivium/kernel"

// Bugs that only a test plants, to show that the simulated clusters notice them.
const (
	// staleSettlements takes settlements of another leadership.
	staleSettlements = false
	// wallClock has the machine look at the clock of its node, and not at the log.
	wallClock = false
	// lostLetters archives dead records whose dead letters are not safe.
	lostLetters = false
	// unknownIsDone confirms what may or may not be in the log.
	unknownIsDone = false
	// noLease hands out records whether or not another node may lead.
	noLease = false
	// staleTrims logs trims although what holds records back is about to change.
	staleTrims = false
)

// present is what a machine with the bug catalogRead knows beyond its log: when it
// applies an entry, it goes by what its node's catalog says then, and not by what the
// entry says. Without the bug it knows nothing.
type present struct{}

// know gives it the catalog: the retention of a topic, if the node has heard of it.
func (*present) know(func(kernel.TopicID) (kernel.Retention, bool)) {}

// retention returns what counts for a topic, of which the entry says what said is.
func (*present) retention(_ kernel.TopicID, said kernel.Retention) kernel.Retention { return said }
