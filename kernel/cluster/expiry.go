package cluster

import "time"

const (
	// expiryWarning is how long before the end of its certificate a node begins to warn.
	expiryWarning = 14 * 24 * time.Hour
	// expiryEvery is how often it says so.
	expiryEvery = 24 * time.Hour
)

// CertificateExpiry returns when the certificate that the node shows to others ceases to
// be valid; ok is false without TLS between nodes.
func (n *Node) CertificateExpiry() (until time.Time, ok bool) {
	if n.keys == nil {
		return time.Time{}, false
	}
	cert, _ := n.keys.current()
	return cert.Leaf.NotAfter, true
}

// warn tells the log once a day that the certificate's time ends soon, or has ended: nodes
// that know each other go on until a connection breaks, and then they do not.
func (k *keys) warn(now time.Time) {
	cert, _ := k.current()
	until := cert.Leaf.NotAfter
	k.mu.Lock()
	defer k.mu.Unlock()
	left := until.Sub(now)
	if left >= expiryWarning {
		k.ends = time.Time{}
		return
	}
	if now.Sub(k.ends) < expiryEvery {
		return
	}
	k.ends = now
	if left <= 0 {
		k.log.Error().Time("until", until).Str("file", k.files.Cert).Msg("the certificate for other nodes has expired")
		return
	}
	k.log.Warn().Time("until", until).Str("file", k.files.Cert).Msg("the certificate for other nodes expires soon")
}
