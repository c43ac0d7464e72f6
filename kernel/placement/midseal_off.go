//go:build !trivium_midseal

package placement

// midSeal captures the state at a seal command, and not after its entry. Only a
// test sets it, to show that the crash histories notice.
const midSeal = false
