// Package mqtt is the MQTT 3.1.1 and 5.0 front-end: decode, authorise, one
// kernel call, encode. docs/mqtt.md says what works and how the rest is
// refused.
//
// A connection has two goroutines. The reader parses packets in place, hands
// publishes to the kernel and settles what the client acknowledged; it owns
// the connection and awaits the writer. The writer is woken when the outgoing
// buffer stops being empty, swaps it for an empty one and writes it in one go.
// Kernel goroutines append deliveries and PUBACKs to that buffer and never
// touch the socket.
//
// The kernel is an edge (kernel/edge): a connection outlasts the node that serves. While
// none does, a publish that is refused for that waits, with the reader, see hold.go, and
// what the window holds is held again at the next node (feed.Holding).
//
// Locks: acks.mu before sender.mu. acks.mu is not held across a kernel call, and sender.mu
// only across those of a member that note something and return.
package mqtt
