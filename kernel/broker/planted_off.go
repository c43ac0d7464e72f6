//go:build !trivium_planted

package broker

// Bugs that only a test plants, to show that the simulated edges notice them.
const (
	// noEpoch lets an attachment go on whose session has been taken over meanwhile.
	noEpoch = false
)
