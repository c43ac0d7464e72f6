package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// OffsetForLeaderEpoch, versions 2-4.
//
// v2: the client's view of the current leader epoch (KIP-320)
// v3: replica id, ignored
//
// The log is never truncated below what consumers have seen, and all of it is
// shown with the present leader epoch: every epoch ends where the log ends.

func (c *conn) handleOffsetForLeaderEpoch(req *kmsg.OffsetForLeaderEpochRequest, resp *kmsg.OffsetForLeaderEpochResponse) {
	var asked queries
	epoch := c.srv.cfg.Epoch()
	for _, qt := range req.Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = qt.Topic
		rt.Partitions = make([]kmsg.OffsetForLeaderEpochResponseTopicPartition, len(qt.Partitions))
		t, code := c.topicFor(kernel.Read, false, kernel.TopicID{}, qt.Topic)
		for i := range qt.Partitions {
			q, rp := &qt.Partitions[i], &rt.Partitions[i]
			rp.Default()
			rp.Partition, rp.ErrorCode = q.Partition, code
			if code == 0 {
				rp.ErrorCode = c.srv.checkEpoch(q.CurrentLeaderEpoch)
			}
			if rp.ErrorCode != 0 {
				continue
			}
			asked.add(t, q.Partition, broker.LogEnd, 0, func(a *broker.LogAnswer) {
				if rp.ErrorCode = topicCode(a.Err); rp.ErrorCode == 0 && q.LeaderEpoch >= 0 && q.LeaderEpoch <= epoch {
					rp.EndOffset, rp.LeaderEpoch = a.Offset, q.LeaderEpoch
				}
			})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	asked.run(c)
}

// checkEpoch compares a client's view of the leader epoch with ours (KIP-320).
func (s *Server) checkEpoch(epoch int32) int16 {
	now := s.cfg.Epoch()
	switch {
	case epoch > now:
		return kerr.UnknownLeaderEpoch.Code
	case epoch >= 0 && epoch < now:
		return kerr.FencedLeaderEpoch.Code
	default:
		return 0
	}
}
