//go:build trivium_earlyreply

package placement

const earlyReply = true
