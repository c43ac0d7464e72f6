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
// Locks: acks.mu before sender.mu; neither is held across a kernel call.
package mqtt
