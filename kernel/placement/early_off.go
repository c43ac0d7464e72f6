//go:build !trivium_earlyreply

package placement

// earlyReply completes publishes when they are proposed. Only a test sets it,
// to show that the crash histories notice.
const earlyReply = false
