package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster, versions 0-2.
//
// v1: endpoint type; controllers are not reachable by clients (KIP-919)
// v2: fenced brokers, of which there are none (KIP-1073)
//
// Authorized operations are not computed: answered as not requested.

func (c *conn) handleDescribeCluster(req *kmsg.DescribeClusterRequest, resp *kmsg.DescribeClusterResponse) {
	resp.EndpointType = req.EndpointType
	if req.EndpointType != 1 {
		text := "only brokers can be described"
		resp.ErrorCode, resp.ErrorMessage = kerr.UnsupportedEndpointType.Code, &text
		return
	}
	all := c.whereabouts()
	resp.ClusterID, resp.ControllerID = c.srv.cfg.ClusterID, all.serving
	for _, one := range all.brokers {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port = one.id, one.host, one.port
		resp.Brokers = append(resp.Brokers, b)
	}
}
