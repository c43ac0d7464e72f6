package config

import (
	"time"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// TLS is what all listeners with TLS have in common.
type TLS struct {
	Cert       string `key:"cert" about:"''file'' with the server's certificate and those up to the root, PEM"`
	Key        string `key:"key" about:"''file'' with its private key, PEM"`
	ClientCA   string `key:"client_ca" about:"''file'' with the roots of client certificates, PEM"`
	ClientAuth string `key:"client_auth" default:"off" choice:"off|request|require" about:"whether clients may or must show a certificate"`
	PeerName   string `key:"peer_name" default:"cn" choice:"cn|san_dns|dn" about:"what in a client's certificate is its user name: common name, first DNS name, whole subject"`
	MinVersion string `key:"min_version" default:"1.2" choice:"1.2|1.3" about:"oldest TLS version"`
}

// Files are the certificate files.
func (t *TLS) Files() listener.Files {
	return listener.Files{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}
}

// checkTLS: what listens with TLS needs certificates that load.
func (c *Config) checkTLS(p *problems) {
	used := false
	for _, s := range c.Sockets() {
		if !s.TLS || s.Address.Off() {
			continue
		}
		used = true
		if s.ClientAuth != listener.ClientAuthOff && c.TLS.ClientCA == "" {
			p.add("tls.client_ca", "empty, but %s asks clients for certificates", s.Setting)
		}
		if c.TLS.Cert == "" || c.TLS.Key == "" {
			p.add(s.Setting, "needs tls.cert and tls.key")
		}
	}
	if c.TLS.Cert == "" || c.TLS.Key == "" {
		if !used && c.TLS.Cert+c.TLS.Key != "" {
			p.add("tls.cert", "needs tls.key, and the other way round")
		}
		return
	}
	certs, err := listener.LoadCertificates(c.TLS.Files())
	if err != nil {
		p.add("tls.cert", "%s", oneLine(err))
	} else if until := certs.Expiry(); time.Now().After(until) {
		p.warn("tls.cert", "%s has expired at %s", c.TLS.Cert, until.UTC().Format(time.RFC3339))
	}
}
