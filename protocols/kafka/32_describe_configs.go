package kafka

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// DescribeConfigs, versions 0-4.
//
// v1: sources and synonyms (KIP-226)
// v3: types and documentation (KIP-569)
//
// Topics have Kafka's whole list, because tools fail on what is missing; the
// values are those that hold here. Brokers have the settings that clients ask
// for.

func (c *conn) handleDescribeConfigs(req *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse) {
	for i := range req.Resources {
		q := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = q.ResourceType, q.ResourceName
		settings, code, text := c.settingsOf(q)
		out.ErrorCode, out.ErrorMessage = code, optional(text)
		for _, s := range settings {
			if q.ConfigNames == nil || slices.Contains(q.ConfigNames, s.name) {
				out.Configs = append(out.Configs, s.describe(req.IncludeSynonyms))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
}

func (c *conn) settingsOf(q *kmsg.DescribeConfigsRequestResource) (s []setting, code int16, text string) {
	switch q.ResourceType {
	case kmsg.ConfigResourceTypeTopic:
		t, code := c.topic(q.ResourceName, false)
		if code != 0 {
			return nil, code, "there is no such topic"
		}
		return topicSettings(c.srv, t), 0, ""
	case kmsg.ConfigResourceTypeBroker:
		if !c.client.HasTag(kernel.TagAdministrator) && !c.client.HasTag(kernel.TagMonitoring) {
			return nil, kerr.ClusterAuthorizationFailed.Code, "the user is neither administrator nor monitoring"
		}
		if q.ResourceName == "" { // the cluster's dynamic defaults: none are set
			return nil, 0, ""
		}
		if q.ResourceName != strconv.Itoa(int(c.srv.cfg.NodeID)) {
			return nil, kerr.InvalidRequest.Code, "there is no such broker"
		}
		return brokerSettings(c), 0, ""
	default:
		return nil, kerr.InvalidRequest.Code, "only topics and brokers have settings here"
	}
}

func (s *setting) describe(synonyms bool) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.Source, out.ConfigType = s.name, &s.value, s.source, s.kind
	out.ReadOnly, out.IsDefault = s.fixed, s.source == kmsg.ConfigSourceDefaultConfig
	if synonyms {
		syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		syn.Name, syn.Value, syn.Source = s.name, &s.value, s.source
		out.ConfigSynonyms = append(out.ConfigSynonyms, syn)
	}
	return out
}
