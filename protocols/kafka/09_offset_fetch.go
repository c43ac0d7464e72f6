package kafka

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// OffsetFetch, versions 0-10.
//
// v0, v1: the same here: there is one place that offsets are kept in
// v2: null topics are all; an error code for the group
// v5: leader epoch
// v7: whether only stable offsets are wanted: without transactions all are
// v8: several groups (KIP-709)
// v9: member id and epoch, for KIP-848 groups: ignored
// v10: topics by id
//
// A partition without committed offset has offset -1 and no error.

func (c *conn) handleOffsetFetch(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	if req.Version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, c.fetchGroup(req.Version, &req.Groups[i]))
		}
		return
	}
	// The older form is the newer one with one group.
	q := kmsg.NewOffsetFetchRequestGroup()
	q.Group = req.Group
	if req.Topics != nil {
		q.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
		for i, t := range req.Topics {
			q.Topics[i].Topic, q.Topics[i].Partitions = t.Topic, t.Partitions
		}
	}
	g := c.fetchGroup(req.Version, &q)
	resp.ErrorCode = g.ErrorCode
	for _, gt := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = gt.Topic
		for _, gp := range gt.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch = gp.Partition, gp.Offset, gp.LeaderEpoch
			rp.Metadata, rp.ErrorCode = gp.Metadata, gp.ErrorCode
			if req.Version < 2 && rp.ErrorCode == 0 {
				rp.ErrorCode = g.ErrorCode // no place for it above
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

// fetchGroup answers for one group.
func (c *conn) fetchGroup(version int16, q *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = q.Group
	offsets, err := c.client.Offsets(c.ctx, q.Group)
	if err != nil && kernel.CodeOf(err) != kernel.CodeNotFound {
		out.ErrorCode = groupCode(err)
	}
	slices.SortFunc(offsets, func(a, b broker.OffsetCommit) int { return compareOffsets(a, b.Topic, b.Partition) })
	if q.Topics == nil {
		out.Topics = c.allOffsets(offsets)
		return out
	}
	for i := range q.Topics {
		qt := &q.Topics[i]
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = qt.Topic, qt.TopicID
		t, code := c.topicByIDOrName(version >= 10, qt.TopicID, qt.Topic)
		for _, index := range qt.Partitions {
			rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			rp.Partition, rp.Offset, rp.Metadata = index, -1, new(string)
			if version >= 10 || code == kerr.TopicAuthorizationFailed.Code {
				rp.ErrorCode = code
			}
			if t != nil {
				find(offsets, t.ID, index, &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		out.Topics = append(out.Topics, rt)
	}
	return out
}

// find fills in what a group, whose offsets are sorted, has committed for one
// partition.
func find(offsets []broker.OffsetCommit, topic kernel.TopicID, index int32, rp *kmsg.OffsetFetchResponseGroupTopicPartition) {
	at := func(o broker.OffsetCommit, index int32) int { return compareOffsets(o, topic, index) }
	if i, ok := slices.BinarySearchFunc(offsets, index, at); ok {
		fillOffset(rp, &offsets[i])
	}
}

func compareOffsets(o broker.OffsetCommit, topic kernel.TopicID, index int32) int {
	return cmp.Or(bytes.Compare(o.Topic[:], topic[:]), cmp.Compare(o.Partition, index))
}

func fillOffset(rp *kmsg.OffsetFetchResponseGroupTopicPartition, o *broker.OffsetCommit) {
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = o.Partition, o.Offset, o.LeaderEpoch, &o.Metadata
}

// allOffsets answers with everything a group has committed for topics that
// still exist.
func (c *conn) allOffsets(offsets []broker.OffsetCommit) []kmsg.OffsetFetchResponseGroupTopic {
	topics := []kmsg.OffsetFetchResponseGroupTopic{}
	for i := range offsets {
		o := &offsets[i]
		if n := len(topics); n == 0 || topics[n-1].TopicID != o.Topic {
			t, code := c.topicByID(o.Topic, false)
			if code != 0 {
				continue
			}
			name, _ := visible(t)
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = name, o.Topic
			topics = append(topics, rt)
		}
		rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		fillOffset(&rp, o)
		last := &topics[len(topics)-1]
		last.Partitions = append(last.Partitions, rp)
	}
	return topics
}
