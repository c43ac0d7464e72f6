//go:build !trivium_planted

package placement

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
