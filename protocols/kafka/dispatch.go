package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// The API keys that other files name.
const (
	keyProduce          = 0
	keyOffsetCommit     = 8
	keyJoinGroup        = 11
	keySyncGroup        = 14
	keySASLHandshake    = 17
	keyApiVersions      = 18
	keySASLAuthenticate = 36
)

// api is one request kind that is served.
type api struct {
	// advertised is the lowest version named to clients. Where it is below min,
	// clients look for it but do not use it: librdkafka before 2.11.1 turns
	// compression off without Produce 0 (KAFKA-18659).
	advertised int16
	min, max   int16
	handle     func(c *conn, req kmsg.Request, r *reply)
}

// apis are the request kinds served, by key. What is not here is not
// advertised; clients fall back or do without.
var apis map[int16]api

func init() { apis = table() } // not a composite literal: ApiVersions lists it

func table() map[int16]api {
	return map[int16]api{
		0:  {0, 3, 13, async((*conn).handleProduce)},
		1:  {4, 4, 18, async((*conn).handleFetch)},
		2:  {0, 0, 10, direct((*conn).handleListOffsets)},
		3:  {0, 0, 13, direct((*conn).handleMetadata)},
		8:  {0, 0, 10, direct((*conn).handleOffsetCommit)},
		9:  {0, 0, 10, direct((*conn).handleOffsetFetch)},
		10: {0, 0, 6, direct((*conn).handleFindCoordinator)},
		11: {0, 0, 9, async((*conn).handleJoinGroup)},
		12: {0, 0, 4, direct((*conn).handleHeartbeat)},
		13: {0, 0, 5, direct((*conn).handleLeaveGroup)},
		14: {0, 0, 5, async((*conn).handleSyncGroup)},
		15: {0, 0, 6, direct((*conn).handleDescribeGroups)},
		16: {0, 0, 5, direct((*conn).handleListGroups)},
		17: {0, 0, 1, direct((*conn).handleSASLHandshake)},
		18: {0, 0, 4, direct((*conn).handleApiVersions)},
		19: {0, 0, 7, direct((*conn).handleCreateTopics)},
		20: {0, 0, 6, direct((*conn).handleDeleteTopics)},
		22: {0, 0, 5, direct((*conn).handleInitProducerID)},
		23: {2, 2, 4, direct((*conn).handleOffsetForLeaderEpoch)},
		32: {0, 0, 4, direct((*conn).handleDescribeConfigs)},
		36: {0, 0, 2, async((*conn).handleSASLAuthenticate)},
		42: {0, 0, 2, direct((*conn).handleDeleteGroups)},
		60: {0, 0, 2, direct((*conn).handleDescribeCluster)},
	}
}

// direct fits a handler that answers before it returns.
func direct[Q kmsg.Request, P kmsg.Response](fn func(*conn, Q, P)) func(*conn, kmsg.Request, *reply) {
	return func(c *conn, req kmsg.Request, r *reply) {
		resp := req.ResponseKind().(P)
		fn(c, req.(Q), resp)
		r.send(resp)
	}
}

// async fits a handler that fills its reply in itself.
func async[Q kmsg.Request](fn func(*conn, Q, *reply)) func(*conn, kmsg.Request, *reply) {
	return func(c *conn, req kmsg.Request, r *reply) { fn(c, req.(Q), r) }
}
