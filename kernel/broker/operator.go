package broker

import (
	"cmp"
	"slices"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// ConnectionStatus is a client's connection in listings.
type ConnectionStatus struct {
	ID        kernel.ConnectionID
	Identity  kernel.Identity
	Info      kernel.ConnectionInfo
	Connected time.Time
	Closing   bool
	Members   int // consumers and pull members
	// Channels are those of a protocol that has several on one connection.
	Channels []kernel.ChannelStatus
}

// Connections lists the connections of clients by number.
func (b *Broker) Connections() []ConnectionStatus {
	b.mu.Lock()
	conns := b.connections()
	b.mu.Unlock()
	list := make([]ConnectionStatus, len(conns))
	for i, c := range conns {
		list[i] = c.status()
	}
	return list
}

// Connection returns one connection: CodeNotFound.
func (b *Broker) Connection(id kernel.ConnectionID) (ConnectionStatus, error) {
	c, err := b.findConnection(id)
	if err != nil {
		return ConnectionStatus{}, err
	}
	return c.status(), nil
}

// CloseConnection asks a client's front-end to close its connection, which is
// told the reason: CodeNotFound. It does not wait for the end.
func (b *Broker) CloseConnection(id kernel.ConnectionID, reason string) error {
	c, err := b.findConnection(id)
	if err != nil {
		return err
	}
	b.log.Info().Uint64("connection", uint64(id)).Str("user", c.identity.User).Str("reason", reason).Msg("connection closed by an operator")
	c.askToEnd(kernel.Errorf(kernel.CodeNotAllowed, "", "", "%s", reason))
	return nil
}

func (b *Broker) findConnection(id kernel.ConnectionID) (*Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c, ok := b.conns[id]; ok {
		return c, nil
	}
	return nil, kernel.Errorf(kernel.CodeNotFound, "connection", "", "there is no such connection")
}

func (c *Conn) status() ConnectionStatus {
	s := ConnectionStatus{ID: c.id, Identity: c.identity, Info: c.about, Connected: c.since}
	c.mu.Lock()
	s.Closing, s.Members = c.closed, c.member.Len()
	c.mu.Unlock()
	if c.about.Channels != nil {
		s.Channels = c.about.Channels.Channels()
	}
	return s
}

// MemberStatus is a consumer in listings.
type MemberStatus struct {
	Connection kernel.ConnectionID
	Identity   kernel.Identity
	Info       kernel.ConnectionInfo
	Address    kernel.GroupAddress
	Tag        string
	Settles    bool // it settles what it gets; else that is settled as it is handed out
	Exclusive  bool
	Channel    int // of the connection, 0 = it has none
	Prefetch   int // records it may hold, 0 = unlimited
}

// Members lists the consumers of all groups, pull members not included, by
// connection and tag.
func (b *Broker) Members() []MemberStatus {
	b.mu.Lock()
	conns := b.connections()
	b.mu.Unlock()
	var list []MemberStatus
	for _, c := range conns {
		begin := len(list)
		for _, m := range c.members() {
			if !m.pull && m.m != nil && !kernel.IsReply(m.group.spec.Address.Topic) {
				list = append(list, m.status())
			}
		}
		slices.SortFunc(list[begin:], func(x, y MemberStatus) int {
			return cmp.Or(cmp.Compare(x.Tag, y.Tag), cmp.Compare(x.Address.Topic, y.Address.Topic))
		})
	}
	return list
}

func (m *Member) status() MemberStatus {
	return MemberStatus{
		Connection: m.conn.id, Identity: m.conn.identity, Info: m.conn.about, Address: m.group.spec.Address,
		Tag: m.about.Tag, Settles: m.settles, Exclusive: m.about.Exclusive, Channel: m.about.Channel, Prefetch: m.about.Prefetch,
	}
}
