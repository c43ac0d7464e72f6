package kernel

// Outcome is what a member does with a record it holds.
type Outcome uint8

// The outcomes.
const (
	Accept  Outcome = iota // done
	Release                // give back, to its place; counts as failed
	Refuse                 // never again for anybody; dead-lettered or dropped
)

// MemberOptions says how a consumer joins a share group.
type MemberOptions struct {
	// AutoSettle accepts each record as it is handed out.
	AutoSettle bool
	// Exclusive admits no other member. It fails with CodeAccessRefused while
	// others are there, and theirs fail while it is.
	Exclusive bool
	// Pool bounds what the member holds together with others, beside its credit.
	// Nil is none.
	Pool *Pool
	// Create makes the group (and, with kind Filter or for subscriptions, the
	// topic) if missing; else a missing one is CodeNotFound.
	Create bool
	// FromStart makes a created group begin at the first record instead of at
	// the end. A queue's own group always begins at the start.
	FromStart bool
	// Pull makes a member that is never pushed to: it only calls Acquire. It is
	// not counted as a consumer.
	Pull bool
	// Session is the client id when the member belongs to a durable session.
	Session string
	// Tag names the member in listings; Channel is the number of its channel
	// there, and Prefetch how many records it may hold (0 = unlimited).
	Tag      string
	Channel  int
	Prefetch int
}

// Delivery is one record handed to a member.
type Delivery struct {
	Record      *View // valid during the Deliver call only
	Partition   int32
	Offset      int64
	Acquired    int32 // how often it has been handed out, this time included; >= 1
	Failed      int32 // how often it came back
	Redelivered bool  // it may have been handed out before
}

// Consumer is the adapter's end of a membership.
type Consumer interface {
	// Deliver hands out records; they count against the credit granted. It is
	// called from one kernel goroutine at a time, with about 1 MiB or one record,
	// must not block and of the member's methods may call Credit and Settle only.
	// The slice is reused after it returns.
	Deliver(batch []Delivery)
	// Ended says that the membership is over because the group was deleted or
	// the node stops (reason). No delivery follows. Not called after Leave.
	Ended(reason error)
}

// LargeDelivery is from how many bytes in one Deliver call an Admitter is asked.
const LargeDelivery = 64 << 10

// Admitter is a Consumer that has a say before it is handed what is large: credit
// counts records, and is given before anybody knows how large they are.
type Admitter interface {
	Consumer
	// Admit is called right before Deliver would be, by its rules, with so many
	// records of so many bytes together, LargeDelivery or more. With true Deliver
	// follows. Before it returns false it takes back the credit for them, by Credit:
	// they are called off. For a pull member it is called within Acquire, which has
	// no credit to take back: with true the records are taken, with false none are.
	Admit(records, bytes int) bool
}

// Holder is a Consumer that outlasts the broker that feeds it: it is fed by another one
// then, and keeps what it was handed out before.
type Holder interface {
	Consumer
	// Holding returns what it was handed out and has not settled, but for what is
	// pinned, or was asked to be. Nothing is handed out meanwhile; what it settles from
	// here on is settled at the other broker.
	Holding() []Place
	// Lost says which of that somebody else has got, who settles it: what is not sent
	// yet is not to be sent. Pins that were asked for are not there then.
	Lost(places []Place)
}

// LiveMessage is one publish on its way to session-less subscribers. It exists
// on the publisher's goroutine only, for the duration of the Live calls.
type LiveMessage struct {
	Name   string  // topic name with / between its levels
	Record *Record // aliases the publisher's buffers
	// Origin is the connection that published it (for subscriptions that do
	// not want their own messages).
	Origin ConnectionID
	// Frame is free for the adapter: encoded forms shared by the subscribers of
	// one message.
	Frame any
}

// LiveSubscriber is fed from memory, while its connection lasts.
type LiveSubscriber interface {
	// Live hands over one message. handle is what the subscription was made
	// with. It must not block; it returns false when the subscriber's buffer
	// is full and the message was not taken.
	Live(m *LiveMessage, handle uint64) bool
	// Room returns a channel that is closed when a full buffer has drained
	// below its low mark (closed already if it is not full).
	Room() <-chan struct{}
}
