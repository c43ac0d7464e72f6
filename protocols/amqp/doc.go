// Package amqp is the AMQP 0-9-1 front-end: it decodes, authorises, makes one
// kernel call and encodes the answer. It keeps no message longer than the
// socket needs and decides nothing that the kernel decides for every protocol.
//
// One connection is two goroutines. The reader owns all protocol state, handles
// every frame that has arrived and then hands on what has gathered (settles,
// credit, confirms). The writer owns the socket's other half: it wakes when the
// out buffer stops being empty, takes the whole buffer and writes it in one
// call. Kernel goroutines append to the same buffer, complete runs of frames
// at a time, so that the frames of one content are never mixed with others.
//
// docs/amqp.md lists what works and what is refused, and how.
package amqp
