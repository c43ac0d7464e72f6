package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FindCoordinator, versions 0-6.
//
// v1: key type: 0 consumer group, 1 transactional id, 2 share group
// v4: several keys (KIP-699)
// v5, v6: more error codes, share groups (KIP-890, KIP-932)
//
// Only consumer groups have a coordinator, this node. Transactions and share
// groups are not served: INVALID_REQUEST, which no client retries.

func (c *conn) handleFindCoordinator(req *kmsg.FindCoordinatorRequest, resp *kmsg.FindCoordinatorResponse) {
	code, text := int16(0), (*string)(nil)
	node := c.srv.cfg.NodeID
	host, port := c.srv.advertised(c.net)
	if req.CoordinatorType != 0 {
		reason := "only consumer groups have a coordinator here: transactions and share groups are not served"
		code, text, node, host, port = kerr.InvalidRequest.Code, &reason, -1, "", -1
	}
	if req.Version < 4 {
		resp.ErrorCode, resp.ErrorMessage = code, text
		resp.NodeID, resp.Host, resp.Port = node, host, port
		return
	}
	for _, key := range req.CoordinatorKeys {
		one := kmsg.NewFindCoordinatorResponseCoordinator()
		one.Key, one.NodeID, one.Host, one.Port, one.ErrorCode, one.ErrorMessage = key, node, host, port, code, text
		resp.Coordinators = append(resp.Coordinators, one)
	}
}
