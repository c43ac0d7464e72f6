package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// FindCoordinator, versions 0-6.
//
// v1: key type: 0 consumer group, 1 transactional id, 2 share group
// v4: several keys (KIP-699)
// v5, v6: more error codes, share groups (KIP-890, KIP-932)
//
// Only consumer groups have a coordinator, one of the nodes that take Kafka's clients, as
// the node that serves says. Transactions are refused
// with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client takes as final
// (librdkafka asks again after INVALID_REQUEST until it times out) and most show
// together with the text. Key types that are not served are INVALID_REQUEST, as
// on a broker of Kafka without share groups.

func (c *conn) handleFindCoordinator(req *kmsg.FindCoordinatorRequest, resp *kmsg.FindCoordinatorResponse) {
	brokers := c.brokers()
	nodes, err := c.srv.views.view(c.ctx, 0) // of all keys together: it may have to wait
	answer := func(key string) kmsg.FindCoordinatorResponseCoordinator {
		one := kmsg.NewFindCoordinatorResponseCoordinator()
		one.Key, one.NodeID, one.Port = key, -1, -1
		if one.ErrorCode, one.ErrorMessage = coordinates(req.CoordinatorType); one.ErrorCode == 0 {
			one.ErrorCode = c.groupRefused(key)
		}
		if one.ErrorCode != 0 {
			return one
		}
		if err != nil {
			one.ErrorCode = groupCode(err)
			return one
		}
		group := c.groupKey(key)
		to, known := at(brokers, broker.Coordinator(nodes, group.Tenant, group.Group).Node)
		switch {
		case !known:
			one.ErrorCode = kerr.CoordinatorNotAvailable.Code
		default:
			one.NodeID, one.Host, one.Port = to.id, to.host, to.port
		}
		return one
	}
	if req.Version < 4 {
		one := answer(req.CoordinatorKey)
		resp.ErrorCode, resp.ErrorMessage = one.ErrorCode, one.ErrorMessage
		resp.NodeID, resp.Host, resp.Port = one.NodeID, one.Host, one.Port
		return
	}
	for _, key := range req.CoordinatorKeys {
		resp.Coordinators = append(resp.Coordinators, answer(key))
	}
}

// coordinates says whether coordinators of a key type exist, or why not.
func coordinates(keyType int8) (code int16, text *string) {
	var reason string
	switch keyType {
	case 0:
		return 0, nil
	case 1:
		code, reason = kerr.TransactionalIDAuthorizationFailed.Code, "transactions are not supported by this broker"
	case 2:
		code, reason = kerr.InvalidRequest.Code, "share groups are not supported by this broker"
	default:
		code, reason = kerr.InvalidRequest.Code, "unknown type of coordinator"
	}
	return code, &reason
}
