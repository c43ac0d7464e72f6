// Package kernel holds the nouns of the broker, its typed errors and the small
// interfaces between the kernel and the protocol adapters.
//
// It contains no behaviour beyond validation and naming: routing lives in
// kernel/route, replicated data in kernel/placement, and kernel/broker is the
// one facade that adapters call. No protocol word appears here; each adapter
// has one table from these nouns and errors to its own.
package kernel
