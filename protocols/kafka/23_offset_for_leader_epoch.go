package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// OffsetForLeaderEpoch, versions 2-4.
//
// v2: the client's view of the current leader epoch (KIP-320)
// v3: replica id, ignored
//
// The log is never truncated below what consumers have seen, and all of it is
// shown with the present leader epoch: every epoch ends where the log ends.

func (c *conn) handleOffsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	for _, qt := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = qt.Topic
		for _, qp := range qt.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition = qp.Partition
			p, code := c.partition(qt.Topic, qp.Partition, qp.CurrentLeaderEpoch)
			rp.ErrorCode = code
			if code == 0 && qp.LeaderEpoch >= 0 && qp.LeaderEpoch <= c.srv.cfg.Epoch {
				_, rp.EndOffset = p.Bounds()
				rp.LeaderEpoch = qp.LeaderEpoch
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// partition opens a partition for a client that believes epoch to be its
// leader's; -1 = it does not say.
func (c *conn) partition(topic string, index, epoch int32) (partition, int16) {
	t, code := c.topicFor(kernel.Read, false, kernel.TopicID{}, topic)
	if code != 0 {
		return nil, code
	}
	if code := c.srv.checkEpoch(epoch); code != 0 {
		return nil, code
	}
	p, err := c.client.Partition(t, index)
	if err != nil {
		return nil, topicCode(err)
	}
	return p, 0
}

// checkEpoch compares a client's view of the leader epoch with ours (KIP-320).
func (s *Server) checkEpoch(epoch int32) int16 {
	switch {
	case epoch > s.cfg.Epoch:
		return kerr.UnknownLeaderEpoch.Code
	case epoch >= 0 && epoch < s.cfg.Epoch:
		return kerr.FencedLeaderEpoch.Code
	default:
		return 0
	}
}
