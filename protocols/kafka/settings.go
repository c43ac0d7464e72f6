package kafka

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// setting is one entry of a topic's or broker's configuration.
type setting struct {
	name, value string
	kind        kmsg.ConfigType
	source      kmsg.ConfigSource
	fixed       bool // cannot be changed by clients
}

// The kinds of setting, under short names for the tables below.
const (
	boolean = kmsg.ConfigTypeBoolean
	text    = kmsg.ConfigTypeString
	integer = kmsg.ConfigTypeInt
	long    = kmsg.ConfigTypeLong
	double  = kmsg.ConfigTypeDouble
	list    = kmsg.ConfigTypeList
)

const (
	forever    = "9223372036854775807"
	retention  = "retention.ms"
	retainSize = "retention.bytes"
	maxMessage = "max.message.bytes"
)

// topicDefaults are Kafka's topic settings (TopicConfig of 4.x) with the values
// that hold here, in the order of their names.
var topicDefaults = []setting{
	{name: "cleanup.policy", value: "delete", kind: list},
	{name: "compression.gzip.level", value: "-1", kind: integer},
	{name: "compression.lz4.level", value: "9", kind: integer},
	{name: "compression.type", value: "producer", kind: text},
	{name: "compression.zstd.level", value: "3", kind: integer},
	{name: "delete.retention.ms", value: "86400000", kind: long},
	{name: "file.delete.delay.ms", value: "60000", kind: long},
	{name: "flush.messages", value: "1", kind: long}, // nothing is acknowledged before it is synced
	{name: "flush.ms", value: "0", kind: long},
	{name: "follower.replication.throttled.replicas", value: "", kind: list},
	{name: "index.interval.bytes", value: "4096", kind: integer},
	{name: "leader.replication.throttled.replicas", value: "", kind: list},
	{name: "local.retention.bytes", value: "-2", kind: long},
	{name: "local.retention.ms", value: "-2", kind: long},
	{name: "max.compaction.lag.ms", value: forever, kind: long},
	{name: maxMessage, kind: integer},
	{name: "message.timestamp.after.max.ms", value: forever, kind: long},
	{name: "message.timestamp.before.max.ms", value: forever, kind: long},
	{name: "message.timestamp.type", value: "CreateTime", kind: text},
	{name: "min.cleanable.dirty.ratio", value: "0.5", kind: double},
	{name: "min.compaction.lag.ms", value: "0", kind: long},
	{name: "min.insync.replicas", value: "1", kind: integer},
	{name: "preallocate", value: "false", kind: boolean},
	{name: "remote.log.copy.disable", value: "false", kind: boolean},
	{name: "remote.log.delete.on.disable", value: "false", kind: boolean},
	{name: "remote.storage.enable", value: "false", kind: boolean},
	{name: retainSize, kind: long},
	{name: retention, kind: long},
	{name: "segment.bytes", value: "1073741824", kind: integer},
	{name: "segment.index.bytes", value: "10485760", kind: integer},
	{name: "segment.jitter.ms", value: "0", kind: long},
	{name: "segment.ms", value: "604800000", kind: long},
	{name: "unclean.leader.election.enable", value: "false", kind: boolean},
}

// topicSettings returns the settings of a topic.
func topicSettings(s *Server, t *kernel.Topic) []setting {
	out := make([]setting, len(topicDefaults))
	for i, d := range topicDefaults {
		d.source, d.fixed = kmsg.ConfigSourceDefaultConfig, true
		switch d.name {
		case maxMessage:
			d.value = strconv.Itoa(s.cfg.MaxBatchBytes)
		case retention:
			d.value, d.fixed = retentionText(t.Retention), false
			if t.Retention.Delete || t.Retention.Age != kernel.RetainWeek.Age {
				d.source = kmsg.ConfigSourceDynamicTopicConfig
			}
		case retainSize:
			d.value, d.fixed = "-1", false
			if t.Retention.Bytes > 0 {
				d.value, d.source = strconv.FormatInt(t.Retention.Bytes, 10), kmsg.ConfigSourceDynamicTopicConfig
			}
		}
		out[i] = d
	}
	return out
}

// applySetting takes a setting of a new topic over into its spec.
func applySetting(s *Server, spec *broker.TopicSpec, name string, value *string) error {
	if value == nil {
		return fmt.Errorf("setting %q has no value", name)
	}
	for _, d := range topicDefaults {
		if d.name != name {
			continue
		}
		switch name {
		case retention:
			r, err := parseRetention(*value)
			r.Bytes = spec.Retention.Bytes
			spec.Retention = r
			return err
		case retainSize:
			n, err := strconv.ParseInt(*value, 10, 64)
			if err != nil || n < -1 || n == 0 || n > math.MaxInt64/2 {
				return fmt.Errorf("setting %q: %q is not a positive number of bytes or -1", retainSize, *value)
			}
			spec.Retention.Bytes = max(n, 0)
			return nil
		case maxMessage:
			d.value = strconv.Itoa(s.cfg.MaxBatchBytes)
		}
		if *value != d.value {
			return fmt.Errorf("setting %q: only %q is supported", name, d.value)
		}
		return nil
	}
	return fmt.Errorf("unknown setting %q", name)
}

// retentionText writes a retention as retention.ms: -1 keeps for ever, 0
// deletes what has been consumed.
func retentionText(r kernel.Retention) string {
	switch {
	case r.Delete:
		return "0"
	case r.Age == 0:
		return "-1"
	default:
		return strconv.FormatInt(r.Age.Milliseconds(), 10)
	}
}

func parseRetention(value string) (kernel.Retention, error) {
	ms, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil || ms < -1:
		return kernel.Retention{}, fmt.Errorf("setting %q: %q is not a number of milliseconds or -1", retention, value)
	case ms == -1 || ms > math.MaxInt64/int64(time.Millisecond):
		return kernel.Retention{}, nil
	case ms == 0:
		return kernel.RetainUsed, nil
	default:
		return kernel.Retention{Age: time.Duration(ms) * time.Millisecond}, nil
	}
}

// brokerSettings returns the settings of this broker.
func brokerSettings(c *conn) []setting {
	cfg := &c.srv.cfg
	host, port := c.srv.advertised(c.net)
	out := []setting{
		{name: "advertised.listeners", value: fmt.Sprintf("PLAINTEXT://%s:%d", host, port), kind: text},
		{name: "auto.create.topics.enable", value: strconv.FormatBool(c.srv.auto.AutoCreateTopics), kind: boolean},
		{name: "broker.id", value: strconv.Itoa(int(cfg.NodeID)), kind: integer},
		{name: "compression.type", value: "producer", kind: text},
		{name: "default.replication.factor", value: "1", kind: integer},
		{name: "delete.topic.enable", value: "true", kind: boolean},
		{name: "fetch.max.bytes", value: strconv.Itoa(cfg.MaxFetchBytes), kind: integer},
		{name: "log.cleanup.policy", value: "delete", kind: list},
		{name: "log.message.timestamp.type", value: "CreateTime", kind: text},
		{name: "log.retention.ms", value: retentionText(kernel.RetainWeek), kind: long},
		{name: "message.max.bytes", value: strconv.Itoa(cfg.MaxBatchBytes), kind: integer},
		{name: "min.insync.replicas", value: "1", kind: integer},
		{name: "node.id", value: strconv.Itoa(int(cfg.NodeID)), kind: integer},
		{name: "num.partitions", value: strconv.Itoa(int(c.srv.auto.AutoCreatePartitions)), kind: integer},
		{name: "offset.metadata.max.bytes", value: strconv.Itoa(maxOffsetMetadata), kind: integer},
		{name: "socket.request.max.bytes", value: strconv.Itoa(maxFrame), kind: integer},
	}
	for i := range out {
		out[i].source, out[i].fixed = kmsg.ConfigSourceStaticBrokerConfig, true
	}
	return out
}
