package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SaslHandshake, versions 0-1.
//
// v0: the SASL exchange follows as bare frames, without request headers
// v1: it follows in SaslAuthenticate requests (KIP-152)
//
// The mechanisms are listed on success too: kafkajs reads them. Authenticating
// again on an authenticated connection (KIP-368) is refused: sessions here have
// no lifetime, so no client is asked to.

const mechanismPlain = "PLAIN"

func (c *conn) handleSASLHandshake(req *kmsg.SASLHandshakeRequest, resp *kmsg.SASLHandshakeResponse) {
	resp.SupportedMechanisms = []string{mechanismPlain}
	switch {
	case c.client != nil:
		resp.ErrorCode = kerr.IllegalSaslState.Code
	case req.Mechanism != mechanismPlain:
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
	default:
		c.auth = login{chosen: true, bare: req.Version == 0}
	}
}
