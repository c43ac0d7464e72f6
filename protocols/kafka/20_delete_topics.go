package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// DeleteTopics, versions 0-6.
//
// v5: error text
// v6: topics by name or id (KIP-516)
//
// The answer comes after the deletion is on disk. A topic that a durable
// subscription, a share group or the consumers of a queue read is not deleted,
// nor a queue with messages: POLICY_VIOLATION, with a text from version 5.

func (c *conn) handleDeleteTopics(req *kmsg.DeleteTopicsRequest, resp *kmsg.DeleteTopicsResponse) {
	topics := req.Topics
	if req.Version < 6 {
		topics = make([]kmsg.DeleteTopicsRequestTopic, len(req.TopicNames))
		for i := range req.TopicNames {
			topics[i].Topic = &req.TopicNames[i]
		}
	}
	for i := range topics {
		q := &topics[i]
		out := kmsg.NewDeleteTopicsResponseTopic()
		out.Topic, out.TopicID = q.Topic, q.TopicID
		t, code := c.topicFor(kernel.Configure, q.Topic == nil, q.TopicID, value(q.Topic))
		if code == 0 {
			err := c.client.DeleteTopic(c.ctx, t.Name)
			code, out.ErrorMessage = topicCode(err), message(err)
			out.TopicID = t.ID
			if name, ok := visible(t); ok && q.Topic == nil {
				out.Topic = &name
			}
		}
		out.ErrorCode = code
		resp.Topics = append(resp.Topics, out)
	}
}
