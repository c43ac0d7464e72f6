package kafka

import (
	"bytes"
	"crypto/rand"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/protocols/kafka/group"
)

// JoinGroup, versions 0-9.
//
// v0: no rebalance timeout: the session timeout counts
// v4: a new member gets its id first and comes again (KIP-394)
// v5: static members (KIP-345)
// v7: protocol type in the answer; the protocol may be null
// v8: reason, ignored (KIP-800)
// v9: a returning static leader is told to skip the assignment (KIP-814)

func (c *conn) handleJoinGroup(req *kmsg.JoinGroupRequest, r *reply) {
	q := group.Join{
		Group: req.Group, Member: req.MemberID, ProtocolType: req.ProtocolType, ClientID: c.clientID,
		Session: time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		// Without an id from the server there is nothing a flapping client could
		// be told apart by: KIP-394 is not for versions below 4.
		MustKnow: req.Version >= 4, CanSkip: req.Version >= 9,
	}
	q.Rebalance = time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond
	if req.RebalanceTimeoutMillis < 0 {
		q.Rebalance = q.Session
	}
	q.ClientHost = remoteHost(c.net)
	prefix := c.clientID
	if req.InstanceID != nil {
		q.Instance, prefix = *req.InstanceID, *req.InstanceID
	}
	q.NewID = newMemberID(prefix)
	for _, p := range req.Protocols {
		// The metadata outlives the request's frame.
		q.Protocols = append(q.Protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	if resp.ErrorCode = c.coordinated(req.Group); resp.ErrorCode != 0 {
		resp.Generation = -1
		r.send(resp)
		return
	}
	c.srv.groups.Join(c.client.Identity().Tenant, q, func(j group.Joined) {
		fillJoined(resp, &j)
		r.send(resp)
	})
}

func fillJoined(resp *kmsg.JoinGroupResponse, j *group.Joined) {
	resp.ErrorCode, resp.Generation, resp.LeaderID, resp.MemberID = int16(j.Err), j.Generation, j.Leader, j.Member
	resp.SkipAssignment = j.SkipAssignment
	if j.Err == group.OK || resp.Version < 7 {
		resp.ProtocolType, resp.Protocol = &j.ProtocolType, &j.Protocol
	}
	for _, m := range j.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.ID, optional(m.Instance), m.Metadata
		resp.Members = append(resp.Members, rm)
	}
}

// newMemberID makes an id that nobody can guess, beginning with what the
// client calls itself, cut to a bounded length.
func newMemberID(prefix string) string { return prefix[:min(len(prefix), 100)] + "-" + rand.Text() }

// remoteHost is a peer's address as Kafka shows it: /10.0.0.1.
func remoteHost(nc net.Conn) string {
	host, _, err := net.SplitHostPort(nc.RemoteAddr().String())
	if err != nil {
		host = nc.RemoteAddr().String()
	}
	return "/" + host
}

// optional is nil for "".
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// value is "" for nil.
func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
