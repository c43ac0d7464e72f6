package kafka

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// Metadata, versions 0-13.
//
// v0: an empty list of topics asks for all; from v1 null does, empty is none
// v4: whether to create missing topics; before, a request always asks for it
// v7: leader epoch, which rises with each change of the node that leads
// v8-10: authorized operations, not computed: answered as not requested
// v10: topic ids; v12: topics may be asked for by id alone
// v13: top level error code, 0
//
// A created topic has its leader when it is answered: LEADER_NOT_AVAILABLE is for when no
// node serves. All topics are those that the user has any right to; to
// others TOPIC_AUTHORIZATION_FAILED is the answer. Topics that Kafka clients cannot see (memory queues,
// filters, names too long) do not exist here.

func (c *conn) handleMetadata(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) {
	all := c.whereabouts()
	for _, one := range all.brokers {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = one.id, one.host, one.port
		resp.Brokers = append(resp.Brokers, b)
	}
	resp.ClusterID, resp.ControllerID = &c.srv.cfg.ClusterID, all.serving

	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		topics, err := c.client.Topics(c.ctx)
		if err != nil {
			c.end(fmt.Errorf("list of all topics: %w", err)) // there is no place for an error before version 13
		}
		for _, t := range topics {
			if name, ok := visible(t); ok {
				resp.Topics = append(resp.Topics, c.describeTopic(t, name, all))
			}
		}
		return
	}
	create := (req.Version < 4 || req.AllowAutoTopicCreation) && c.srv.auto.AutoCreateTopics
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, c.topicMetadata(&req.Topics[i], create, all))
	}
}

// topicMetadata answers for one topic asked for by name or id.
func (c *conn) topicMetadata(q *kmsg.MetadataRequestTopic, create bool, all *whereabouts) kmsg.MetadataResponseTopic {
	if q.Topic == nil {
		t, code := c.topicByID(q.TopicID, false)
		if code == 0 {
			name, _ := visible(t)
			return c.describeTopic(t, name, all)
		}
		unknown := kmsg.NewMetadataResponseTopic()
		unknown.TopicID, unknown.ErrorCode = q.TopicID, metadataCode(code)
		return unknown
	}
	t, code := c.topic(*q.Topic, false)
	if code == kerr.UnknownTopicOrPartition.Code && create {
		t, code = c.createTopic(*q.Topic)
	}
	if code != 0 {
		failed := kmsg.NewMetadataResponseTopic()
		failed.Topic, failed.ErrorCode = q.Topic, metadataCode(code)
		return failed
	}
	return c.describeTopic(t, *q.Topic, all)
}

// describeTopic describes t, of which all nodes have a replica, under the name that
// the client knows.
func (c *conn) describeTopic(t *kernel.Topic, name string, all *whereabouts) kmsg.MetadataResponseTopic {
	out := kmsg.NewMetadataResponseTopic()
	out.Topic, out.TopicID = &name, t.ID
	leader, epoch := all.leaders(t), c.srv.cfg.Epoch()
	out.Partitions = make([]kmsg.MetadataResponseTopicPartition, t.Partitions)
	for i := range out.Partitions {
		p := &out.Partitions[i]
		p.Default()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), leader(int32(i)), epoch
		p.Replicas, p.ISR = all.ids, all.ids
		if p.Leader < 0 {
			p.ErrorCode = kerr.LeaderNotAvailable.Code
		}
	}
	return out
}

// topic finds a visible topic by the name a client uses; code says why not. That
// the user has no right at all to it comes before whether it exists. behind says that it
// does no harm if it has gone just now.
func (c *conn) topic(k string, behind bool) (t *kernel.Topic, code int16) {
	name, _, ok := topicName(k)
	if !ok {
		return nil, kerr.InvalidTopicException.Code
	}
	if code := c.allowedAny(broker.KindTopic, name); code != 0 {
		return nil, code
	}
	t, err := c.client.Topic(c.ctx, name, behind)
	if err == nil {
		if _, ok = visible(t); !ok {
			return nil, kerr.UnknownTopicOrPartition.Code
		}
	}
	return t, topicCode(err)
}

// topicByIDOrName finds the topic of a request that names topics by id (byID)
// or by name, to do something with it, which will fail if it has gone just now.
func (c *conn) topicByIDOrName(byID bool, id kernel.TopicID, k string) (t *kernel.Topic, code int16) {
	if !byID {
		return c.topic(k, true)
	}
	return c.topicByID(id, true)
}

// topicFor is topicByIDOrName for what takes a right: that the user does not have
// it comes before whether the topic exists.
func (c *conn) topicFor(act kernel.Act, byID bool, id kernel.TopicID, k string) (t *kernel.Topic, code int16) {
	name, _, ok := topicName(k)
	if !byID && ok {
		if code := c.allowed(act, broker.KindTopic, name); code != 0 {
			return nil, code
		}
	}
	t, code = c.topicByIDOrName(byID, id, k)
	if code == 0 && byID {
		code = c.allowed(act, broker.KindTopic, t.Name)
	}
	if code != 0 {
		return nil, code
	}
	return t, 0
}

// topicByID finds a topic that the user has any right to.
func (c *conn) topicByID(id kernel.TopicID, behind bool) (t *kernel.Topic, code int16) {
	t, err := c.client.TopicByID(c.ctx, id, behind)
	ok := err == nil
	if ok {
		_, ok = visible(t)
	}
	switch {
	case err != nil && kernel.CodeOf(err) != kernel.CodeNotFound:
		return nil, topicCode(err)
	case !ok:
		return nil, kerr.UnknownTopicID.Code
	}
	if code := c.allowedAny(broker.KindTopic, t.Name); code != 0 {
		return nil, code
	}
	return t, 0
}

// createTopic creates a topic on demand, with what Kafka-made topics have.
func (c *conn) createTopic(k string) (*kernel.Topic, int16) {
	name, canonical, ok := topicName(k)
	if !ok || !canonical {
		return nil, kerr.InvalidTopicException.Code
	}
	t, err := c.client.AutoCreateTopic(c.ctx, name)
	return t, topicCode(err)
}
