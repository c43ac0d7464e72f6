package broker

import (
	"context"
	"math"

	"github.com/trivium-mq/trivium/kernel"
)

// LogPoint is a place in a partition that is not known as an offset.
type LogPoint uint8

// The points.
const (
	LogStart  LogPoint = iota // the first offset that can be read
	LogEnd                    // the next one to be given
	LogTime                   // the first record of a time, or later
	LogNewest                 // the first record with the highest time
)

// LogQuery asks for the offset of a point in a partition.
type LogQuery struct {
	Topic kernel.TopicID
	Index int32
	Point LogPoint
	Time  int64 // milliseconds, of LogTime
}

// LogAnswer answers a LogQuery.
type LogAnswer struct {
	Offset    int64 // -1 = there is none
	Timestamp int64 // of the record there, in milliseconds; -1 = none, and of LogStart and LogEnd
	Err       error // as of LogPart
}

// LogOffsets answers questions for offsets, as far as the user may read the topics.
func (c *Conn) LogOffsets(_ context.Context, list []LogQuery) ([]LogAnswer, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.end()
	out := make([]LogAnswer, len(list))
	for i := range list {
		q, a := &list[i], &out[i]
		a.Offset, a.Timestamp = -1, -1
		p, err := c.partitionByID(q.Topic, q.Index)
		if err != nil {
			a.Err = err
			continue
		}
		start, end := p.Bounds()
		switch q.Point {
		case LogStart:
			a.Offset = start
		case LogEnd:
			a.Offset = end
		case LogTime:
			a.found(p.TimeOffset(q.Time))
		case LogNewest:
			a.found(newest(p))
		default:
			a.Err = kernel.Errorf(kernel.CodeInvalid, "topic", q.Topic.String(), "there is no such point in a log")
		}
	}
	return out, nil
}

// found takes the outcome of a search.
func (a *LogAnswer) found(offset, timestamp int64, err error) {
	if a.Err = err; err == nil && timestamp >= 0 {
		a.Offset, a.Timestamp = offset, timestamp
	}
}

// newest finds the first record with the highest timestamp by halving the range of times,
// of which each answer may skip more.
func newest(p *Partition) (offset, timestamp int64, err error) {
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
