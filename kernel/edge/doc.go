// Package edge is where the front-ends of a node meet the broker that serves, on this
// node or on another one. A client connection made through it outlasts the leadership
// of a node: when another host serves, its link is made anew there, with its members,
// their credit and what it has declared that lives in memory only. Meanwhile publishes
// are refused with CodePressure, as during an alarm, and everything else waits.
//
// A session is attached again with its epoch, and its client neither sees its deliveries
// again nor loses an acknowledgement: what it holds is held at the next host before that
// hands out more, and what was under way there and has not happened is done again.
//
// Readers of logs hold nothing at the host: each call says what it wants, and is made again
// at the next one if need be. What lies far behind the end of a log is read from the replica
// of the edge's own node.
//
// What is lost with a host is what only that had: messages of memory-only queues, and
// who held what. Records that were held are handed out again, marked as redelivered;
// settlements of those that somebody else has got by then are refused, silently.
package edge
