package edge

import (
	"context"
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Sessions is the part of a Link that is about the sessions of client ids.
type Sessions interface {
	// AttachSession is broker.Conn.AttachSession. taken is called once at most, from
	// any goroutine, when another connection wants the session: it is to be detached
	// then. It is not called when the host is lost.
	AttachSession(ctx context.Context, a broker.Attaching, taken func()) (s Session, present bool, err error)
}

// Session is a session that a link holds (broker.Session). It ends with its link.
type Session interface {
	// Epoch tells this attachment from all others of the session: a later one has a
	// higher epoch, at whichever host.
	Epoch() uint64
	// State is as of AttachSession.
	State() kernel.SessionState
	// Subscribe is broker.Session.SubscribeAll: the answers have the order of the specs.
	Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []Subscribed
	// Attach is broker.Session.Attach; a nil member is a live feed.
	Attach(ctx context.Context, spec broker.SubscribeSpec) (SessionMember, error)
	Unsubscribe(ctx context.Context, filter string) (existed bool, err error)
	// Release is broker.Session.Release. done is called once, from any goroutine.
	Release(numbers []uint16, done func(unknown []uint16, err error))
	Retained(ctx context.Context, filter string) (Cursor, error)
	RetainedAgain(name string, version uint64) (r kernel.Record, ok bool, err error)
	SetWill(ctx context.Context, w *kernel.Will) error
	DropWill() error
	Pins(ctx context.Context) ([]broker.SessionPin, error)
	PinNumber(id kernel.PinID, done kernel.Completion) error
	Unpin(id kernel.PinID)
	// Keep leaves a text with the session for the connection that takes it next, as
	// long as the host serves and the session lasts; Kept returns it, once. Before
	// Detach.
	Keep(b []byte)
	Kept() ([]byte, error)
	// Detach is broker.Session.Detach, Suspend broker.Session.Suspend. Both are
	// idempotent; when they return no callback of a member or a feed is running or
	// will come, but outcomes of pins, which may.
	Detach(expiry time.Duration)
	Suspend()
}

// Subscribed is what became of a SubscribeSpec: a nil member without an error is a live
// feed.
type Subscribed struct {
	Member  SessionMember
	Existed bool // it has replaced a subscription to the same filter
	Err     error
}

// SessionMember is a session's place in a share group (broker.Member).
type SessionMember interface {
	Credit(n int)
	Settle(o kernel.Outcome, partition int32, first, last int64)
	Pin(id kernel.PinID, partition int32, offset int64)
	Take(id kernel.PinID, partition int32, offset int64)
	Refuse(id kernel.PinID, partition int32, offset int64)
	Unpin(id kernel.PinID)
	// Hold is broker.Member.Hold; of a host that is lost meanwhile nothing is held.
	Hold(places []kernel.Place) []bool
	// Read is broker.Member.Read. An error says that it is not known whether the record
	// is there.
	Read(p kernel.Place, fn func(*kernel.View)) (ok bool, err error)
}

// Cursor reads what is retained (broker.Retained). For one goroutine.
type Cursor interface {
	Next(max, bytes int, admit func(bytes int) bool) (list []kernel.Retained, more bool, err error)
}

// SessionPublisher is the part of a Publisher that is for sessions: the methods are
// those of broker.Publisher.
type SessionPublisher interface {
	ToTopic(name string, r *kernel.Record, token uint64) (matched int, err error)
	ToTopicOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error)
	Retain(name string, r *kernel.Record, token uint64) (matched int, err error)
	RetainOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error)
	Identified(id kernel.DedupID, publish func() (int, error)) (matched int, err error)
}

// Matcher is a kernel.Completion that wants to know of publishes that had no target,
// where that is known later only because the host is across the network.
type Matcher interface {
	kernel.Completion
	// Unmatched comes before Completed, from the same goroutine.
	Unmatched(token uint64)
}

// Scram is a login in several messages (broker.Scram). For one goroutine.
type Scram interface {
	Step(ctx context.Context, msg []byte) (answer []byte, done bool, err error)
	Identity() kernel.Identity
}

// Scrams begins such logins (broker.Broker).
type Scrams interface {
	BeginScram(mechanism, tenant string, remote net.Addr) (s Scram, ok bool)
}
