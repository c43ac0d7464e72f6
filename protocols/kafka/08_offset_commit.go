package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// OffsetCommit, versions 0-10.
//
// v0: no generation: a client outside of the group's protocol
// v1: timestamp; v2-4: retention time; both ignored: offsets stay until they
// are deleted
// v6: leader epoch, kept
// v7: static members (KIP-345)
// v10: topics by id
//
// The answer comes after the commit is on disk.

// maxOffsetMetadata is Kafka's offset.metadata.max.bytes.
const maxOffsetMetadata = 4096

func (c *conn) handleOffsetCommit(req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse) {
	generation := req.Generation
	if req.Version < 1 {
		generation = -1
	}
	refused := c.coordinated(req.Group)
	by := c.srv.views.tenure() // before it is known that the member is one
	if refused == 0 {
		refused = int16(c.srv.groups.Commit(c.groupKey(req.Group), req.MemberID, value(req.InstanceID), generation))
	}
	var commits []broker.OffsetCommit
	var stored []*int16 // error codes of what is in commits
	resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		qt, rt := &req.Topics[i], &resp.Topics[i]
		rt.Default()
		rt.Topic, rt.TopicID = qt.Topic, qt.TopicID
		rt.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(qt.Partitions))
		t, code := c.topicFor(kernel.Read, req.Version >= 10, qt.TopicID, qt.Topic)
		for j := range qt.Partitions {
			qp, rp := &qt.Partitions[j], &rt.Partitions[j]
			rp.Default()
			rp.Partition = qp.Partition
			switch {
			case refused != 0:
				rp.ErrorCode = refused
			case code != 0:
				rp.ErrorCode = code
			case qp.Partition < 0 || qp.Partition >= t.Partitions:
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			case len(value(qp.Metadata)) > maxOffsetMetadata:
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			default:
				commits = append(commits, broker.OffsetCommit{
					Topic: t.ID, Partition: qp.Partition, Offset: qp.Offset, LeaderEpoch: qp.LeaderEpoch, Metadata: value(qp.Metadata),
				})
				stored = append(stored, &rp.ErrorCode)
			}
		}
	}
	if len(commits) == 0 {
		return
	}
	err := c.client.CommitOffsets(c.ctx, by, req.Group, commits)
	code := groupCode(err)
	if kernel.CodeOf(err) == kernel.CodeFenced {
		code = kerr.NotCoordinator.Code
		c.srv.views.overtaken()
	}
	for _, p := range stored {
		*p = code
	}
}
