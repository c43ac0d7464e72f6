package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions, versions 0-4.
//
// v3: flexible request; the response header stays v0 (KIP-511); client software
// name and version, ignored; features, none
// v4: a feature may have a minimum of 0 (KIP-1022)
//
// A newer version gets a v0 answer with UNSUPPORTED_VERSION and all ranges, so
// that the client can ask again (KIP-511). Allowed before authentication.

func (c *conn) handleApiVersions(_ *kmsg.ApiVersionsRequest, resp *kmsg.ApiVersionsResponse) {
	for key, a := range apis {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = key, a.advertised, a.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	slices.SortFunc(resp.ApiKeys, func(a, b kmsg.ApiVersionsResponseApiKey) int { return int(a.ApiKey) - int(b.ApiKey) })
}

// unsupportedApiVersions answers a version above ours; its body is not read.
func (c *conn) unsupportedApiVersions(h header) error {
	r, err := c.queue(h.correlation)
	if err != nil {
		return err
	}
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version, resp.ErrorCode = 0, kerr.UnsupportedVersion.Code
	c.handleApiVersions(nil, resp)
	r.send(resp)
	return nil
}
