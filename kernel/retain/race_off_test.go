//go:build !race

package retain

const raceEnabled = false
