//go:build !trivium_planted

package forward

// Bugs that only a test plants, to show that the simulated edges notice them. There are
// more in packages edge and broker.
const (
	// lostIsDone confirms what was under way on a link that breaks: the host has not said so.
	lostIsDone = false
)
