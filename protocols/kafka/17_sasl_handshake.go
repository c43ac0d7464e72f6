package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// SaslHandshake, versions 0-1.
//
// v0: the SASL exchange follows as bare frames, without request headers
// v1: it follows in SaslAuthenticate requests (KIP-152)
//
// The mechanisms are listed on success too: kafkajs reads them. Authenticating
// again on an authenticated connection (KIP-368) is refused, as it is by a broker
// without connections.max.reauth.ms: sessions here have no lifetime, so no client
// is asked to.

const mechanismPlain = "PLAIN"

// mechanisms are those spoken. A client certificate needs none.
var mechanisms = append([]string{mechanismPlain}, broker.ScramMechanisms()...)

func (c *conn) handleSASLHandshake(req *kmsg.SASLHandshakeRequest, resp *kmsg.SASLHandshakeResponse) {
	resp.SupportedMechanisms = mechanisms
	switch {
	case c.client != nil || c.auth.scram != nil:
		resp.ErrorCode = kerr.IllegalSaslState.Code
	case !slices.Contains(mechanisms, req.Mechanism):
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
	default:
		c.auth = login{mechanism: req.Mechanism, bare: req.Version == 0}
	}
}
