package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// ListOffsets, versions 0-10.
//
// v0: a list of at most MaxNumOffsets offsets instead of one offset and time
// v1: one offset and the timestamp of its record
// v2: isolation level; without transactions both levels read the same
// v4: leader epochs (KIP-320)
// v7: -3, the record with the highest timestamp (KIP-734)
// v8: -4, the first offset on local disk (KIP-405): the first offset
// v9: -5, the last offset in remote storage (KIP-1005): there is none
// v10: timeout, ignored: nothing here waits
//
// Special timestamps of later versions get UNSUPPORTED_VERSION, a partition that is
// named twice INVALID_REQUEST. A time that leads to records that cannot be read gets
// an error: "none" would have a consumer go on at the end.

const (
	timeLatest        = -1
	timeEarliest      = -2
	timeMax           = -3
	timeEarliestLocal = -4
	timeLatestTiered  = -5
)

func (c *conn) handleListOffsets(req *kmsg.ListOffsetsRequest, resp *kmsg.ListOffsetsResponse) {
	named := make(map[listed]int)
	for _, qt := range req.Topics {
		for i := range qt.Partitions {
			named[listed{qt.Topic, qt.Partitions[i].Partition}]++
		}
	}
	var asked queries
	for _, qt := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = qt.Topic
		rt.Partitions = make([]kmsg.ListOffsetsResponseTopicPartition, len(qt.Partitions))
		t, code := c.topicFor(kernel.Read, false, kernel.TopicID{}, qt.Topic)
		for i := range qt.Partitions {
			q, rp := &qt.Partitions[i], &rt.Partitions[i]
			*rp = noOffset(q.Partition, code)
			if code != 0 {
				continue
			}
			if rp.ErrorCode = c.srv.checkEpoch(q.CurrentLeaderEpoch); rp.ErrorCode != 0 {
				continue
			}
			if named[listed{qt.Topic, q.Partition}] > 1 {
				rp.ErrorCode = kerr.InvalidRequest.Code
				continue
			}
			point, code := pointAt(req.Version, q.Timestamp)
			if code != 0 || point == nowhere {
				rp.ErrorCode = code
				continue
			}
			asked.add(t, q.Partition, point, q.Timestamp, func(a *broker.LogAnswer) { c.fillOffset(rp, q, req.Version, a) })
		}
		resp.Topics = append(resp.Topics, rt)
	}
	asked.run(c)
}

// listed is a partition that a request names.
type listed struct {
	topic     string
	partition int32
}

func noOffset(partition int32, code int16) kmsg.ListOffsetsResponseTopicPartition {
	out := kmsg.NewListOffsetsResponseTopicPartition()
	out.Partition, out.Offset, out.Timestamp, out.ErrorCode = partition, -1, -1, code
	return out
}

// fillOffset fills in an answer.
func (c *conn) fillOffset(rp *kmsg.ListOffsetsResponseTopicPartition, q *kmsg.ListOffsetsRequestTopicPartition, version int16, a *broker.LogAnswer) {
	if rp.ErrorCode = topicCode(a.Err); rp.ErrorCode != 0 || a.Offset < 0 {
		return
	}
	rp.Offset, rp.Timestamp, rp.LeaderEpoch = a.Offset, a.Timestamp, c.srv.cfg.Epoch()
	if version == 0 && q.MaxNumOffsets > 0 {
		rp.OldStyleOffsets = []int64{a.Offset}
	}
}

// nowhere is where no partition has anything.
const nowhere = broker.LogPoint(255)

// pointAt returns the point that a request's timestamp means.
func pointAt(version int16, ts int64) (p broker.LogPoint, code int16) {
	switch {
	case ts == timeLatest:
		return broker.LogEnd, 0
	case ts == timeEarliest, ts == timeEarliestLocal && version >= 8:
		return broker.LogStart, 0
	case ts == timeMax && version >= 7:
		return broker.LogNewest, 0
	case ts == timeLatestTiered && version >= 9:
		return nowhere, 0
	case ts < 0:
		return 0, kerr.UnsupportedVersion.Code
	}
	return broker.LogTime, 0
}

// queries are questions for offsets that are asked together.
type queries struct {
	list []broker.LogQuery
	fill []func(*broker.LogAnswer)
}

// add adds a question; fill takes the answer.
func (q *queries) add(t *kernel.Topic, partition int32, p broker.LogPoint, ts int64, fill func(*broker.LogAnswer)) {
	q.list = append(q.list, broker.LogQuery{Topic: t.ID, Index: partition, Point: p, Time: ts})
	q.fill = append(q.fill, fill)
}

// run asks them all.
func (q *queries) run(c *conn) {
	if len(q.list) == 0 {
		return
	}
	answers, err := c.client.LogOffsets(c.ctx, q.list)
	for i, fill := range q.fill {
		a := broker.LogAnswer{Offset: -1, Timestamp: -1, Err: err}
		if err == nil {
			a = answers[i]
		}
		fill(&a)
	}
}
