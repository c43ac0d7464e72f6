//go:build !trivium_planted

package edge

// Bugs that only a test plants, to show that the simulated edges notice them.
const (
	// creditTwice grants the credit of a member twice at a host that it joins anew.
	creditTwice = false
	// unfenced has a member that excludes others join anew by itself.
	unfenced = false
	// lostAcks forgets what a device acknowledges while nobody serves.
	lostAcks = false
)
