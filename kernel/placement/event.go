package placement

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/sharegroup"
)

// eventKind is what happened. The machine posts events in the order of the
// log, so that a shard's durable state is the one as of its last event.
type eventKind uint8

const (
	evExtended     eventKind = iota + 1 // part has new records; those that expire by themselves lie below n
	evSettled                           // data settles records of share on part
	evTrimmed                           // part starts at n now
	evPartition                         // part was made
	evGroup                             // share was made
	evWindow                            // share has a window on part
	evOwner                             // share is an owner (on) or not
	evRetention                         // part has another retention
	evDropped                           // share is gone
	evTopicDropped                      // topic is gone, after its shares
	evLead                              // leadership of term n begins
	evUnlead                            // it is over
	evCapture                           // add the durable windows to capture
	evPinned                            // record n of part is pinned to session
	evUnpinned                          // it is not any more
	evForgotten                         // session has ended, and nothing is pinned to it any more
	evTick                              // time passes
	evCall                              // call runs
	evLimits                            // share has other limits
	evLease                             // the lease holds again
)

// event is one item in a shard's mailbox; the fields that its kind has are
// set.
type event struct {
	kind      eventKind
	on        bool
	share     *share
	part      *partition
	topic     *topic
	n         int64
	data      []byte
	window    *sharegroup.Window
	retention kernel.Retention
	limits    *kernel.Limits
	capture   *capture
	session   string
	pin       kernel.PinID
	call      func()
}
