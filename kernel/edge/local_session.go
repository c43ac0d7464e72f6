package edge

import (
	"context"
	"net"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

func (h localHost) BeginScram(mechanism, tenant string, remote net.Addr) (Scram, bool) {
	s, ok := h.Broker.BeginScram(mechanism, tenant, remote)
	if !ok {
		return nil, false
	}
	return s, true
}

func (l localLink) AttachSession(ctx context.Context, a broker.Attaching, taken func()) (Session, bool, error) {
	s, present, err := l.Conn.AttachSession(ctx, a, taken)
	if err != nil {
		return nil, false, err
	}
	return localSession{s}, present, nil
}

// localPublisher is broker.Publisher with the sessions of this package.
type localPublisher struct{ *broker.Publisher }

func (p localPublisher) ToTopicOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.Publisher.ToTopicOnce(s.(localSession).Session, number, name, r, token)
}

func (p localPublisher) RetainOnce(s Session, number uint16, name string, r *kernel.Record, token uint64) (int, error) {
	return p.Publisher.RetainOnce(s.(localSession).Session, number, name, r, token)
}

type localSession struct{ *broker.Session }

func (s localSession) Subscribe(ctx context.Context, specs []broker.SubscribeSpec) []Subscribed {
	out := make([]Subscribed, len(specs))
	for i, sub := range s.SubscribeAll(ctx, specs) {
		out[i].Member, out[i].Err = localPlace(sub.Attachment, sub.Err)
		out[i].Existed = sub.Existed
	}
	return out
}

func (s localSession) Attach(ctx context.Context, spec broker.SubscribeSpec) (SessionMember, error) {
	return localPlace(s.Session.Attach(ctx, spec.Subscription, spec.Handle, spec.To, spec.Live))
}

func (s localSession) Retained(ctx context.Context, filter string) (Cursor, error) {
	return s.Session.Retained(ctx, filter)
}

func (s localSession) Kept() ([]byte, error) { return s.Session.Kept(), nil }

// localPlace is the member of an attachment, nil if that is a live feed.
func localPlace(a *broker.Attachment, err error) (SessionMember, error) {
	if err != nil || a.Member == nil {
		return nil, err
	}
	return localSessionMember{a.Member}, nil
}

type localSessionMember struct{ *broker.Member }

func (m localSessionMember) Read(p kernel.Place, fn func(*kernel.View)) (bool, error) {
	return m.Member.Read(p, fn), nil
}

var (
	_ Session       = (*session)(nil)
	_ SessionMember = (*sessionMember)(nil)
	_ Cursor        = (*cursor)(nil)
	_ Scrams        = (*Edge)(nil)
)
