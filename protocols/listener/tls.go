package listener

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
)

// Texts that TLSOptions.ClientAuth and TLSOptions.PeerName may have.
const (
	ClientAuthOff     = "off"     // clients are not asked for certificates
	ClientAuthRequest = "request" // they may show one, which must then be valid
	ClientAuthRequire = "require" // they must

	PeerNameCN     = "cn"      // common name of the subject
	PeerNameSANDNS = "san_dns" // first DNS name of the alternative names
	PeerNameDN     = "dn"      // the whole subject, as in RFC 2253
)

// TLSOptions are the choices of TLS; "" is the first text of each kind.
type TLSOptions struct {
	ClientAuth string
	PeerName   string
	MinVersion uint16      // of package crypto/tls; 0 = 1.2
	Handshakes *Handshakes // nil = as many as come
}

// TLS encrypts the connections of listeners, with whatever certificate is
// current when each comes. Safe for concurrent use.
type TLS struct {
	certificates *Certificates
	opt          TLSOptions
	outer        *tls.Config // keeps the session tickets' keys
	derived      atomic.Pointer[derived]
}

// derived is a configuration made for one generation of certificates.
type derived struct {
	from   *material
	config *tls.Config
}

// NewTLS returns TLS with certificates from c. It fails if clients' certificates
// are asked for and there is nothing to check them with.
func NewTLS(c *Certificates, opt TLSOptions) (*TLS, error) {
	if opt.MinVersion == 0 {
		opt.MinVersion = tls.VersionTLS12
	}
	t := &TLS{certificates: c, opt: opt}
	if t.asks() && c.current.Load().clients == nil {
		return nil, fmt.Errorf("client certificates cannot be checked without certificate authorities")
	}
	t.outer = &tls.Config{GetConfigForClient: t.configFor, MinVersion: opt.MinVersion, SessionTicketsDisabled: t.asks()}
	return t, nil
}

func (t *TLS) asks() bool { return t.opt.ClientAuth != "" && t.opt.ClientAuth != ClientAuthOff }

// configFor is called with the client's first message read and nothing computed.
func (t *TLS) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if s, ok := hello.Conn.(*sealed); ok {
		if err := s.begin(hello.Context()); err != nil {
			return nil, err
		}
	}
	m := t.certificates.current.Load()
	if d := t.derived.Load(); d != nil && d.from == m {
		return d.config, nil
	}
	d := &derived{from: m, config: &tls.Config{
		Certificates: []tls.Certificate{m.pair}, MinVersion: t.opt.MinVersion,
		DynamicRecordSizingDisabled: true, // records leave together anyway
		// A ticket would outlive the authority that its certificate was checked with.
		SessionTicketsDisabled: t.asks(),
	}}
	switch t.opt.ClientAuth {
	case ClientAuthRequest:
		d.config.ClientAuth, d.config.ClientCAs = tls.VerifyClientCertIfGiven, m.clients
	case ClientAuthRequire:
		d.config.ClientAuth, d.config.ClientCAs = tls.RequireAndVerifyClientCert, m.clients
	}
	t.derived.Store(d)
	return d.config, nil
}

// handshake makes c secure, within its deadline.
func (t *TLS) handshake(c *conn) (net.Conn, error) {
	s := newSealed(c, t.opt.Handshakes)
	inner := tls.Server(s, t.outer)
	ctx, cancel := context.WithTimeout(context.Background(), c.opt.HandshakeTimeout)
	defer cancel()
	err := inner.HandshakeContext(ctx)
	s.finish()
	if err != nil {
		return nil, err
	}
	c.secure = true
	if chains := inner.ConnectionState().VerifiedChains; len(chains) > 0 && len(chains[0]) > 0 {
		c.user = t.peerName(chains[0][0])
	}
	return &secured{Conn: inner, wire: s}, nil
}

func (t *TLS) peerName(cert *x509.Certificate) string {
	switch t.opt.PeerName {
	case PeerNameSANDNS:
		if len(cert.DNSNames) > 0 {
			return cert.DNSNames[0]
		}
		return ""
	case PeerNameDN:
		return cert.Subject.String()
	default:
		return cert.Subject.CommonName
	}
}

// Handshakes bounds how many TLS handshakes compute at a time, so that a storm
// of connections leaves the processors to those that are connected. Those that
// wait for the client do not count. Safe for concurrent use.
type Handshakes struct{ places chan struct{} }

// NewHandshakes returns a bound of n; 0 is half of the processors, at least one.
func NewHandshakes(n int) *Handshakes {
	if n <= 0 {
		n = max(runtime.GOMAXPROCS(0)/2, 1)
	}
	return &Handshakes{places: make(chan struct{}, n)}
}
