// Package placement holds the data of the broker: a placement group is one
// replicated log with the partitions, share groups and keyed state in it.
//
// A publish goes Append -> proposer (open entry) -> log -> Machine.Apply ->
// shards and completer. Each of these is a single-threaded step function with
// a thin driver around it:
//
//   - the proposer gathers records, settlements and commands in an open entry
//     under a mutex, and seals it when nothing is in flight or it is full;
//   - the machine (FSM goroutine of the log) gives offsets, links batches and
//     posts one list of events to each shard per call; it calls no adapter and
//     does no I/O;
//   - a shard owns the windows and dispatchers of the topics assigned to it
//     and is the only caller of their consumers;
//   - the completer runs publishers' completions and writes the keyed state.
//
// Replicas apply the same log, and come to the same state and the same segment
// files, whatever their shards and clocks. What one lacks of the files, the puller
// brings from others (pull.go, rebase.go); who is elected without them hands over
// (turn.go); nothing is handed out without the leader's lease (lease.go).
//
// So a simulation steps the same code, one call after the other: TestClusterHistories
// plays clusters on a simulated Raft (raftgroup.SimNet), with networks, disks and clocks
// that a seed decides.
//
// A volatile group is the same on a log that commits at once and stores
// nothing. docs/formats/entry.md describes what is in the log.
package placement
