//go:build !trivium_planted

package metasvc

// Bugs that only a test plants, to show that the simulated catalogs notice them.
const (
	// earlyAnswer confirms a command when it is proposed, and not when it is applied.
	earlyAnswer = false
	// unknownIsRefused says of what may or may not be in the log that it is not.
	unknownIsRefused = false
	// foreignAnswer answers a command with what became of one of another process.
	foreignAnswer = false
	// appliedTwice writes checkpoints of less than is in them: what comes after them was
	// applied before.
	appliedTwice = false
	// staleRestore goes on behind a checkpoint of the leader with the state of before:
	// commands are missing, and the revision is behind.
	staleRestore = false
)
