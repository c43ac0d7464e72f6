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
// and of a session that is attached, which a link has one of at a time:
//
//	pin, take, refuse, unpin  a record, and a number, of a member of the session
//	unpin number              the number of no member
//	live taken                bytes of live messages that the front-end has taken
//	let member, let cursor    nobody has it any more: what is kept for it can go
//
// and for topics as logs:
//
//	batch      a publisher, a number as of publish, a partition, a batch as it is stored
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
//	claimed    another connection wants the session
//	live       a message for a live feed: who has published it, its name, the record
//	pinned, taken  what has become of pins of a member
//	stored     the outcome of a batch, with its offset; a flush follows each frame
//
// A publish to a topic says so, with the number of the session that it uses if it is to be
// stored once; its outcome may be that it had no target. All else of a session are calls:
// to attach and detach it, subscriptions, pages of what is retained, the will. Nodes of
// earlier versions do not know of sessions: cluster.Member.Takes says who does. All that
// carries AMQP is as it was.
//
// What is asked of topics as logs are calls, too, which nodes of earlier versions do not
// know either. A read that waits for what is not there yet is a call that takes as long;
// the end of the stream ends it. A link remembers for a second which topics there are, and
// what the user may do: until it makes or deletes one, or an outcome says that
// one has gone or may not be used.
//
// A call that changes something and is not to take effect twice has the number of the
// client's call with it, and whether that has been made over an earlier stream whose end
// nobody knows: then what it has come to there is the answer. That is remembered until
// the client has heard, or for two minutes after its stream has broken, and by this host
// only: what another host has done before it was lost is done again.
//
// When a stream breaks, the session of a client that may come back through another one
// (kernel.ConnectionInfo.Token) is suspended: its will waits for that.
//
// # What is bounded
//
// Publishes whose outcome is not known: 4 MiB of a link, or one message. Deliveries that
// wait to be sent: about 2 MiB of a link, or one message; beyond that credit is taken
// back from the broker, and given again as the stream drains. Deliveries that a front-end
// does not admit wait at its node, as many as were under way. Live messages that the
// front-end has not taken: 1 MiB of a link, or 64 KiB and one message, and 256 MiB of all
// links beyond those 64 KiB; then a live feed is full to its publishers. They wait at the client's node, in order, and nothing
// else waits for them. A page of what is retained: 1 MiB and one message, which is sent
// after the front-end has admitted it if it is large. Cursors: 1,024 of a session; members
// that were not let go of: 131,072. Calls under way: 128. What is read of logs: 64 MiB, or
// one batch, by a call, and 256 MiB by all calls until their results wait to be sent; where
// that is used up a call reads 64 KiB, or one batch. Answers about topics that are
// remembered: 1,024 of a link; results of calls: 1,024 of a client. What is left with a session: 16
// MiB. Logins in several messages that have begun: 8,192 of a node, for a minute.
// Between the two, what HTTP/2 lets a stream have under way. Whoever breaks one of these
// has its stream ended.
//
// Publishes to topics are given to the broker beside the reading of the stream, in order:
// one may wait for a live subscriber, perhaps of the same client. Calls that are about
// what was published wait for them.
//
// Publishes that the broker refuses for want of disk or memory, because an alarm is news
// to the client's node, wait at the node that serves, in order; credit and settlements
// pass them. Those to topics whose client knew of the alarm are refused, and so are all
// batches: they wait nowhere, and a refusal concerns that batch alone. Batches are given to
// the broker as they are read, as messages for exchanges are.
package forward
