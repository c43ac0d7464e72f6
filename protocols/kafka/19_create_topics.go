package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// CreateTopics, versions 0-7.
//
// v1: validate only, error text
// v4: -1 for partition count and replication factor, the broker's defaults
// (KIP-464); taken in every version
// v5: the topic's settings in the answer (KIP-525)
// v7: topic ids
//
// The replication factor must be 1 or -1. Of the settings, retention.ms and
// retention.bytes (of a partition) can be chosen; any other is accepted only with the value that holds anyway, and is
// INVALID_CONFIG else. The timeout is ignored: the answer comes after the
// topic is on disk, or with the reason why not.

func (c *conn) handleCreateTopics(req *kmsg.CreateTopicsRequest, resp *kmsg.CreateTopicsResponse) {
	seen := make(map[string]int, len(req.Topics))
	for i := range req.Topics {
		seen[req.Topics[i].Topic]++
	}
	for i := range req.Topics {
		q := &req.Topics[i]
		out := kmsg.NewCreateTopicsResponseTopic()
		out.Topic = q.Topic
		t, code, text := c.create(q, req.ValidateOnly, seen[q.Topic] > 1)
		out.ErrorCode = code
		if code != 0 {
			out.ErrorMessage = optional(text)
		} else {
			out.TopicID, out.NumPartitions, out.ReplicationFactor = t.ID, t.Partitions, 1
			for _, s := range topicSettings(c.srv, t) {
				rc := kmsg.NewCreateTopicsResponseTopicConfig()
				rc.Name, rc.Value, rc.Source, rc.ReadOnly = s.name, &s.value, int8(s.source), s.fixed
				out.Configs = append(out.Configs, rc)
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
}

// create makes one topic, or only checks that it could.
func (c *conn) create(q *kmsg.CreateTopicsRequestTopic, validate, twice bool) (t *kernel.Topic, code int16, text string) {
	if twice {
		return nil, kerr.InvalidRequest.Code, "the topic is named twice"
	}
	name, canonical, ok := topicName(q.Topic)
	switch {
	case !ok:
		return nil, kerr.InvalidTopicException.Code, "a topic name has 1 to 249 characters of a-z A-Z 0-9 . _ -"
	case !canonical:
		return nil, kerr.InvalidTopicException.Code, "_x followed by two digits stands for another character"
	}
	switch code := c.allowed(kernel.Configure, broker.KindTopic, name); code {
	case 0:
	case kerr.TopicAuthorizationFailed.Code:
		return nil, code, fmt.Sprintf("topic '%s' may not be created by this user", q.Topic)
	default:
		return nil, code, "no node serves now"
	}
	spec := broker.TopicSpec{Name: name, Retention: kernel.RetainWeek}
	if spec.Partitions, code, text = c.partitionCount(q); code != 0 {
		return nil, code, text
	}
	for i := range q.Configs {
		if err := applySetting(c.srv, &spec, q.Configs[i].Name, q.Configs[i].Value); err != nil {
			return nil, kerr.InvalidConfig.Code, err.Error()
		}
	}
	switch _, err := c.client.Topic(c.ctx, name, false); {
	case err == nil:
		return nil, kerr.TopicAlreadyExists.Code, fmt.Sprintf("topic '%s' already exists", q.Topic)
	case kernel.CodeOf(err) != kernel.CodeNotFound:
		return nil, topicCode(err), err.Error()
	}
	if validate {
		return &kernel.Topic{Name: name, Partitions: spec.Partitions, Retention: spec.Retention}, 0, ""
	}
	t, err := c.client.CreateTopic(c.ctx, spec)
	switch {
	case err == nil:
		return t, 0, ""
	case kernel.CodeOf(err) == kernel.CodeInvalid: // the node has a lower limit
		return nil, kerr.InvalidPartitions.Code, err.Error()
	default:
		return nil, topicCode(err), err.Error()
	}
}

// assignable reports whether replicas are some of the nodes, each once.
func assignable(replicas, nodes []int32) bool {
	for i, r := range replicas {
		if !slices.Contains(nodes, r) || slices.Contains(replicas[:i], r) {
			return false
		}
	}
	return len(replicas) > 0
}

// partitionCount checks the placement a client asks for; it has no say in it beyond
// that, since all nodes have a replica of all partitions.
func (c *conn) partitionCount(q *kmsg.CreateTopicsRequestTopic) (n int32, code int16, text string) {
	n = q.NumPartitions
	nodes := ids(c.brokers())
	if len(q.ReplicaAssignment) > 0 {
		if n != -1 || q.ReplicationFactor != -1 {
			return 0, kerr.InvalidRequest.Code, "with an assignment, partition count and replication factor must be -1"
		}
		n = int32(len(q.ReplicaAssignment))
		given := make(map[int32]bool, n)
		for _, a := range q.ReplicaAssignment {
			given[a.Partition] = true
			if !assignable(a.Replicas, nodes) || a.Partition < 0 || a.Partition >= n {
				return 0, kerr.InvalidReplicaAssignment.Code, "partitions are numbered from 0, each with brokers that there are, none of them twice"
			}
		}
		if len(given) != int(n) {
			return 0, kerr.InvalidReplicaAssignment.Code, "a partition is assigned twice"
		}
	} else if r := int(q.ReplicationFactor); r != -1 && (r < 1 || r > len(nodes)) {
		return 0, kerr.InvalidReplicationFactor.Code, fmt.Sprintf("replication factor %d, brokers %d", r, len(nodes))
	}
	if n == -1 {
		n = c.srv.auto.AutoCreatePartitions
	}
	if n < 1 || n > broker.MaxPartitions {
		return 0, kerr.InvalidPartitions.Code, fmt.Sprintf("a topic has 1 to %d partitions", broker.MaxPartitions)
	}
	return n, 0, ""
}
