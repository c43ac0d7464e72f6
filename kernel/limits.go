package kernel

import "time"

// Overflow is what happens to a publish that finds its queue full.
type Overflow uint8

// The overflow modes.
const (
	DropHead                Overflow = iota // the oldest ready records make room
	RejectPublish                           // the publish is refused
	RejectPublishDeadLetter                 // the publish is refused and the record dead-lettered
)

// Limits bound the backlog of a share group. They are worked out from its
// declaration and the policy that applies to it; NoLimits is the zero of them.
type Limits struct {
	// MessageTTL is how long after its append a record may be handed out. 0 is
	// now or never, Unlimited (negative) no limit.
	MessageTTL time.Duration
	// Expires is how long a queue may be unused before it is deleted, 0 = for ever.
	Expires time.Duration
	// MaxLength and MaxBytes bound the records that are ready and their bytes;
	// negative = no bound.
	MaxLength, MaxBytes int64
	Overflow            Overflow
	// DeadLetter says that records which die go to DeadLetterExchange, with
	// DeadLetterKey unless that is nil (then with the keys they had).
	DeadLetter         bool
	DeadLetterExchange string
	DeadLetterKey      *string
	// AtLeastOnce keeps a dead record until a queue has taken its dead letter;
	// else one that nothing takes is gone.
	AtLeastOnce bool
	// DeliveryLimit is how often a record may come back, negative = no limit.
	DeliveryLimit int
}

// Unlimited stands for the absence of a limit in Limits.
const Unlimited = -1

// NoLimits returns the limits of a group that has none.
func NoLimits() Limits {
	return Limits{MessageTTL: Unlimited, MaxLength: Unlimited, MaxBytes: Unlimited, DeliveryLimit: Unlimited}
}
