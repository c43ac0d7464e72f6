// Package group coordinates Kafka's classic consumer groups (KIP-62, KIP-345,
// KIP-394): who is a member, which generation it is, and what the leader
// assigned. Assignments and metadata are opaque here.
//
// A group is a pure state machine, (event, now) -> replies, in group.go and
// its neighbours: no goroutine, no clock, no I/O, no dependence on map order.
// Coordinator is the thin driver around all groups: one mutex, one goroutine
// for the timers. Committed offsets are not kept here.
package group
