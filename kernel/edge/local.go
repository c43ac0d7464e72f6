package edge

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Local makes a broker of this process a host.
func Local(b *broker.Broker) Host { return localHost{b} }

type localHost struct{ *broker.Broker }

func (h localHost) HasTenant(tenant string) (bool, error) { return h.Broker.HasTenant(tenant), nil }

func (h localHost) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(reason error)) (Link, error) {
	c, err := h.Broker.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return localLink{c}, nil
}

type localLink struct{ *broker.Conn }

func (l localLink) Join(ctx context.Context, addr kernel.GroupAddress, opt kernel.MemberOptions, pool Pool, to kernel.Consumer) (Member, error) {
	if pool != nil {
		opt.Pool = pool.(*kernel.Pool)
	}
	m, err := l.Conn.Join(ctx, addr, opt, to)
	if err != nil {
		return nil, err
	}
	return localMember{m}, nil
}

func (l localLink) NewPool(limit int) Pool { return kernel.NewPool(limit) }

func (l localLink) Publisher(done kernel.Completion) Publisher {
	return localPublisher{l.Conn.Publisher(done)}
}

type localMember struct{ *broker.Member }

func (m localMember) Pool(pool Pool, held func() int) { m.Member.Pool(pool.(*kernel.Pool), held) }
