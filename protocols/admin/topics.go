package admin

import (
	"math"
	"strconv"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// RabbitMQ has no topics and groups: these resources are ours, in its style.

// topicInfo is one topic.
type topicInfo struct {
	Name       string `json:"name"`
	VHost      string `json:"vhost"`
	ID         string `json:"id"`
	Kind       string `json:"kind"` // plain, filter
	Partitions int32  `json:"partitions"`
	Durable    bool   `json:"durable"`
	Queue      bool   `json:"queue"` // declared as one
	Auto       bool   `json:"auto"`  // goes with its last reader
	Groups     int    `json:"groups"`
	Published  uint64 `json:"published"` // since start
	// Retention is milliseconds, -1 for ever, 0 gone when settled.
	Retention int64 `json:"retention_ms"`
}

// partitionInfo is one partition of a topic.
type partitionInfo struct {
	Partition int   `json:"partition"`
	Start     int64 `json:"start_offset"`
	End       int64 `json:"end_offset"`
}

func describeTopic(t *broker.TopicStatus) topicInfo {
	info := topicInfo{
		Name: t.Name, VHost: t.Tenant, ID: t.ID.String(), Kind: "plain", Partitions: t.Partitions, Durable: !t.Volatile,
		Queue: t.Queue != nil, Auto: t.Auto, Groups: t.Groups, Published: t.Published, Retention: -1,
	}
	if t.Kind == kernel.Filter {
		info.Kind = "filter"
	}
	switch {
	case t.Topic.Retention.Delete:
		info.Retention = 0
	case t.Topic.Retention.Age > 0:
		info.Retention = t.Topic.Retention.Age.Milliseconds()
	}
	return info
}

// listTopics is GET /api/topics; listVHostTopics is GET /api/topics/{vhost}.
func listTopics(c *call) error      { return topicsOf(c, c.visible()) }
func listVHostTopics(c *call) error { return topicsOf(c, c.args[:1]) }

func topicsOf(c *call, vhosts []string) error {
	rows := []broker.TopicStatus{}
	for _, vhost := range vhosts {
		for _, t := range c.s.node.TopicStatuses(vhost) {
			if !t.Internal {
				rows = append(rows, t)
			}
		}
	}
	return list(c, rows, func(t *broker.TopicStatus) string { return t.Name }, func(t *broker.TopicStatus) any { return describeTopic(t) })
}

// getTopic is GET /api/topics/{vhost}/{name}.
func getTopic(c *call) error {
	t, bounds, err := c.s.node.TopicStatus(c.args[0], c.args[1], kernel.Plain)
	if err != nil && kernel.HasWildcard(c.args[1]) {
		t, bounds, err = c.s.node.TopicStatus(c.args[0], c.args[1], kernel.Filter)
	}
	if err != nil || t.Internal {
		return errNotFound
	}
	parts := make([]partitionInfo, len(bounds))
	for i, b := range bounds {
		parts[i] = partitionInfo{i, b.Start, b.End}
	}
	return one(c, struct {
		topicInfo
		Parts []partitionInfo `json:"partition_details"`
	}{describeTopic(&t), parts})
}

// putTopic is PUT /api/topics/{vhost}/{name}: it makes a topic, or checks that
// the present one has as many partitions.
func putTopic(c *call) error {
	body := struct {
		Partitions whole  `json:"partitions"`
		Retention  *int64 `json:"retention_ms"`
	}{Partitions: 1}
	if err := c.read(&body); err != nil {
		return err
	}
	keep := kernel.RetainWeek
	if r := body.Retention; r != nil {
		switch {
		case *r < -1 || *r > math.MaxInt64/int64(time.Millisecond):
			return badRequest("retention_ms is a number of milliseconds, -1 for ever or 0 for gone when settled")
		case *r == -1:
			keep = kernel.Retention{}
		case *r == 0:
			keep = kernel.RetainUsed
		default:
			keep = kernel.Retention{Age: time.Duration(*r) * time.Millisecond}
		}
	}
	fresh := true
	err := c.within(c.args[0], func(conn *broker.Conn) error {
		_, err := conn.CreateTopic(c.r.Context(), broker.TopicSpec{Name: c.args[1], Partitions: partitions(body.Partitions), Retention: keep})
		if kernel.CodeOf(err) != kernel.CodeExists {
			return err
		}
		fresh = false
		t, _, missing := c.s.node.TopicStatus(c.args[0], c.args[1], kernel.Plain)
		if missing == nil && t.Partitions != partitions(body.Partitions) {
			return kernel.Errorf(kernel.CodePrecondition, "topic", c.args[1], "topic '%s' has %s partitions",
				c.args[1], strconv.Itoa(int(t.Partitions)))
		}
		return missing
	})
	if err != nil {
		return err
	}
	return c.put(fresh)
}

// partitions fits a number into the kernel's type, which refuses what is too
// large.
func partitions(n whole) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// deleteTopic is DELETE /api/topics/{vhost}/{name}.
func deleteTopic(c *call) error {
	err := c.within(c.args[0], func(conn *broker.Conn) error { return conn.DeleteTopic(c.r.Context(), c.args[1]) })
	if kernel.CodeOf(err) == kernel.CodeNotFound && err != nil {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return c.gone()
}
