package kafka

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// InitProducerId, versions 0-5.
//
// v2: flexible
// v3: the producer's present id and epoch; the epoch is raised for it (KIP-360)
// v4, v5: more error codes (KIP-588, KIP-890)
//
// A transactional id is refused as FindCoordinator does, for clients that did not
// ask there: there are no transactions yet. After UNSUPPORTED_VERSION librdkafka
// would try again.

func (c *conn) handleInitProducerID(req *kmsg.InitProducerIDRequest, resp *kmsg.InitProducerIDResponse) {
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return
	}
	// An epoch can be raised without asking anybody: an id belongs to the one
	// producer that was given it, and partitions take a higher epoch when its
	// sequence begins at 0.
	if req.ProducerID >= 0 && req.ProducerEpoch >= 0 && req.ProducerEpoch < math.MaxInt16-1 {
		resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
		return
	}
	id, err := c.client.NewProducerID(c.ctx)
	if err != nil {
		resp.ErrorCode = groupCode(err)
		return
	}
	resp.ProducerID, resp.ProducerEpoch = id, 0
}
