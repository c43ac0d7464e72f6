package mqtt

import (
	"context"
	"net"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// node is what the adapter needs of a broker. The methods are those of
// broker.Broker and its parts; see there.
type node interface {
	Authenticate(ctx context.Context, tenant, user, password string, remote net.Addr) (kernel.Identity, error)
	Admit(tenant, user string, remote net.Addr) (kernel.Identity, error)
	BeginScram(mechanism, tenant string, remote net.Addr) (*broker.Scram, bool)
	Anonymous(tenant string, remote net.Addr) (kernel.Identity, error)
	Counters(p kernel.Protocol) *broker.Counters
	Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error)
}

type client interface {
	ID() kernel.ConnectionID
	Counters() *broker.Counters
	Publisher(done kernel.Completion) publisher
	AttachSession(ctx context.Context, clientID string, clean bool, expiry time.Duration, taken func()) (session, bool, error)
	Close()
}

type publisher interface {
	ToTopic(name string, r *kernel.Record, token uint64) (matched int, err error)
	ToTopicOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error)
	Retain(name string, r *kernel.Record, token uint64) (matched int, err error)
	RetainOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (matched int, err error)
	Identified(id kernel.DedupID, publish func() (int, error)) (matched int, err error)
	Close()
}

type session interface {
	State() kernel.SessionState
	// Subscribe makes subscriptions, each for the feed with its index, and answers in
	// their order: a nil member is a live feed.
	Subscribe(ctx context.Context, subs []kernel.Subscription, feeds []*feed) []subscribed
	Attach(ctx context.Context, sub kernel.Subscription, f *feed) (member, error)
	Unsubscribe(ctx context.Context, filter string) (existed bool, err error)
	Release(numbers []uint16, done func(unknown []uint16, err error))
	Retained(ctx context.Context, filter string) (cursor, error)
	RetainedAgain(name string, version uint64) (kernel.Record, bool, error)
	SetWill(ctx context.Context, w *kernel.Will) error
	DropWill() error
	// Pins, Unpin, Keep and Kept are for deliveries that outlive the connection.
	Pins(ctx context.Context) ([]sessionPin, error)
	PinNumber(id kernel.PinID, done kernel.Completion) error
	Unpin(id kernel.PinID)
	Keep(b []byte)
	Kept() []byte
	Detach(expiry time.Duration)
}

type sessionPin = broker.SessionPin

// subscribed is what became of one subscription.
type subscribed struct {
	member  member
	existed bool // it has replaced one
	err     error
}

type member interface {
	Credit(n int)
	Settle(o kernel.Outcome, partition int32, first, last int64)
	Pin(id kernel.PinID, partition int32, offset int64)
	Take(id kernel.PinID, partition int32, offset int64)
	Refuse(id kernel.PinID, partition int32, offset int64)
	Unpin(id kernel.PinID)
	Hold(places []kernel.Place) []bool
	Read(p kernel.Place, fn func(*kernel.View)) bool
}

// realNode is the node of a real broker.
type realNode struct{ *broker.Broker }

func (n realNode) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (client, error) {
	c, err := n.Broker.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return realClient{c}, nil
}

type realClient struct{ *broker.Conn }

func (c realClient) Publisher(done kernel.Completion) publisher {
	return realPublisher{c.Conn.Publisher(done)}
}

type realPublisher struct{ *broker.Publisher }

func (p realPublisher) ToTopicOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.Publisher.ToTopicOnce(s.(realSession).Session, number, name, r, token)
}

func (p realPublisher) RetainOnce(s session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.Publisher.RetainOnce(s.(realSession).Session, number, name, r, token)
}

func (c realClient) AttachSession(ctx context.Context, clientID string, clean bool, expiry time.Duration, taken func()) (session, bool, error) {
	s, present, err := c.Conn.AttachSession(ctx, broker.Attaching{ClientID: clientID, Clean: clean, Expiry: expiry}, taken)
	if err != nil {
		return nil, false, err
	}
	return realSession{s}, present, nil
}

type realSession struct{ *broker.Session }

func (s realSession) Subscribe(ctx context.Context, subs []kernel.Subscription, feeds []*feed) []subscribed {
	specs := make([]broker.SubscribeSpec, len(subs))
	for i, f := range feeds {
		specs[i] = broker.SubscribeSpec{Subscription: subs[i], To: f, Live: f}
	}
	out := make([]subscribed, len(subs))
	for i, s := range s.SubscribeAll(ctx, specs) {
		out[i].member, out[i].err = memberOf(s.Attachment, s.Err)
		out[i].existed = s.Existed
	}
	return out
}

func (s realSession) Attach(ctx context.Context, sub kernel.Subscription, f *feed) (member, error) {
	return memberOf(s.Session.Attach(ctx, sub, 0, f, f))
}

func (s realSession) Retained(ctx context.Context, filter string) (cursor, error) {
	return s.Session.Retained(ctx, filter)
}

func memberOf(a *broker.Attachment, err error) (member, error) {
	if err != nil || a.Member == nil {
		return nil, err
	}
	return a.Member, nil
}
