// Package forward carries what front-ends ask of the broker from the node that holds a
// client's socket to the one that serves: a [Host] implements edge.Host there, and a
// [Server] runs what it asks for here, on the broker.Broker of the present leadership.
//
// # Streams
//
// Each client has a stream of messages of its own (cluster.Stream). What the messages
// hold, joined, is a row of frames: the length of what follows as 4 bytes little-endian,
// one byte for the kind, and the body, in the encoding of package codec. A frame may lie
// in several messages, and a message hold many frames: each end has one goroutine that
// sends all that has gathered since it has sent last, and one that handles what comes, in
// order. A frame that means nothing ends the stream for both.
//
// To the node that serves:
//
//	open       the first: who the client is, and what is known of it
//	call       an id, a method, arguments: what returns something
//	publisher  a new publisher
//	publish    a publisher, and a message; publishes of a publisher are numbered from 1
//	unpublish  a publisher is over
//	credit     of a member
//	settle     of a member
//	pool       a new pool, with its limit; limit, add, put, unpool: of a pool
//	described  the channels of the connection
//	left       the last
//
// To the node of the client:
//
//	opened     the answer to open, with the alarms; or refused, and the stream ends
//	result     the id of a call, an error or values
//	routed     how many targets a mandatory publish has, or why it was refused
//	declined   why another publish was refused; the error is no outcome of what was stored
//	outcomes   of publishes of one publisher, in runs; a flush follows each frame
//	deliver    to a member: one Deliver call is one frame
//	ended      a membership is over
//	alarms     a snapshot
//	leave      the broker stops: the client says left soon
//	end        the broker wants the connection closed, and why
//	describe   the channels are asked for
//
// # What is bounded
//
// Publishes whose outcome is not known: 4 MiB of a link, or one message. Deliveries that
// wait to be sent: about 2 MiB of a link, or one message; beyond that credit is taken
// back from the broker, and given again as the stream drains. Deliveries that a front-end
// does not admit wait at its node, as many as were under way. Calls under way: 128.
// Between the two, what HTTP/2 lets a stream have under way. Whoever breaks one of these
// has its stream ended.
//
// Publishes that the broker refuses for want of disk or memory, because an alarm is news
// to the client's node, wait at the node that serves, in order; credit and settlements
// pass them.
package forward
