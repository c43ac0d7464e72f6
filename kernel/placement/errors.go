package placement

import "github.com/trivium-mq/trivium/kernel"

// Errors that are returned often; the rest is made where it happens.
var (
	errNotLeading = &kernel.Error{Code: kernel.CodeUnavailable, Detail: "the placement group does not lead here"}
	errNotHeld    = &kernel.Error{Code: kernel.CodeFenced, Detail: "the record is not held any more"}
	errStopped    = &kernel.Error{Code: kernel.CodeUnavailable, Detail: "the placement group has stopped"}
	errNotApplied = &kernel.Error{Code: kernel.CodeUnavailable, Detail: "the log did not take the entry"}
	errUnknown    = &kernel.Error{Code: kernel.CodeUnknown, Detail: "the outcome is unknown"}
	errBusy       = &kernel.Error{Code: kernel.CodeLimit, Detail: "too many bytes are on their way to the log"}
	errFull       = &kernel.Error{Code: kernel.CodeLimit, Detail: "the memory for volatile queues is used up"}
	errLowDisk    = &kernel.Error{Code: kernel.CodePressure, Detail: "the disk is low"}
	errUnsealed   = &kernel.Error{Code: kernel.CodeUnavailable, Detail: "the log grows and cannot be sealed, see the node's log"}
	errTooLarge   = &kernel.Error{Code: kernel.CodeTooLarge, Detail: "the record is larger than the limit"}
	errGap        = &kernel.Error{Code: kernel.CodeSequenceGap, Detail: "the sequence number is not the next one"}
	errFenced     = &kernel.Error{Code: kernel.CodeFenced, Detail: "the producer has been replaced by a newer one"}
)

func noGroup(id GroupID) error {
	return kernel.Errorf(kernel.CodeNotFound, "group", "", "there is no share group %d", id)
}
