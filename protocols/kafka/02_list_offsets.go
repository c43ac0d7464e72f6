package kafka

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	for _, qt := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = qt.Topic
		for i := range qt.Partitions {
			q := &qt.Partitions[i]
			if named[listed{qt.Topic, q.Partition}] > 1 {
				rt.Partitions = append(rt.Partitions, noOffset(q.Partition, kerr.InvalidRequest.Code))
				continue
			}
			rt.Partitions = append(rt.Partitions, c.listOffset(req.Version, qt.Topic, q))
		}
		resp.Topics = append(resp.Topics, rt)
	}
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

func (c *conn) listOffset(version int16, topic string, q *kmsg.ListOffsetsRequestTopicPartition) kmsg.ListOffsetsResponseTopicPartition {
	p, code := c.partition(topic, q.Partition, q.CurrentLeaderEpoch)
	out := noOffset(q.Partition, code)
	if code != 0 {
		return out
	}
	out.Offset, out.Timestamp, out.ErrorCode = offsetAt(p, version, q.Timestamp)
	if out.Offset >= 0 {
		out.LeaderEpoch = c.srv.cfg.Epoch
		if version == 0 && q.MaxNumOffsets > 0 {
			out.OldStyleOffsets = []int64{out.Offset}
		}
	}
	return out
}

// offsetAt returns the offset that a request's timestamp means, with the
// record's timestamp where it means a record; -1 is none.
func offsetAt(p partition, version int16, ts int64) (offset, timestamp int64, code int16) {
	start, end := p.Bounds()
	switch {
	case ts == timeLatest:
		return end, -1, 0
	case ts == timeEarliest, ts == timeEarliestLocal && version >= 8:
		return start, -1, 0
	case ts == timeMax && version >= 7:
		return found(maxTimestamp(p))
	case ts == timeLatestTiered && version >= 9:
		return -1, -1, 0
	case ts < 0:
		return -1, -1, kerr.UnsupportedVersion.Code
	}
	return found(p.TimeOffset(ts))
}

// found is the answer to a search: -1 where no record was found.
func found(offset, timestamp int64, err error) (int64, int64, int16) {
	if err != nil {
		return -1, -1, topicCode(err)
	}
	if timestamp < 0 {
		return -1, -1, 0
	}
	return offset, timestamp, 0
}

// maxTimestamp finds the first record with the highest timestamp by halving
// the range of times, of which each answer may skip more.
func maxTimestamp(p partition) (offset, timestamp int64, err error) {
	offset, timestamp, err = p.TimeOffset(0)
	if err != nil || timestamp < 0 {
		return -1, -1, err
	}
	for top := int64(math.MaxInt64); timestamp < top; {
		ts := top - (top-timestamp)/2
		switch o, t, err := p.TimeOffset(ts); {
		case err != nil:
			return -1, -1, err
		case t >= ts:
			offset, timestamp = o, t
		default:
			top = ts - 1
		}
	}
	return offset, timestamp, nil
}
