// Package kafka is the Kafka front-end: one file per API key, so that the
// listing is the support matrix (docs/kafka.md has it as a table).
//
// It stands on the node's edge: the node that serves may be another one, and change. Each
// consumer group has a coordinator, one of the nodes, which keeps its members in memory
// (package group); their offsets are the kernel's.
//
// A connection has a reader, which decodes requests and runs their handlers in
// order, and a writer, which answers in the same order. A handler answers at
// once, or later (produce, group membership); a fetch runs on the writer when
// its turn comes, so that a long poll keeps nobody from reading. Requests are
// decoded and answers encoded by kmsg, except the answer to a fetch, whose
// records go from the log to the socket with one copy.
package kafka
