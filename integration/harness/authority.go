package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Authority issues the certificates of a test. Its files are in a folder of the
// test's own.
type Authority struct {
	CA string // file with its own certificate, PEM

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next atomic.Int64
}

// NewAuthority makes an authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(t, err)
	a := &Authority{t: t, dir: t.TempDir(), key: key}
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key)
	a.CA = a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// validity is how long certificates are valid, to either side: longer than a
// test runs and than a clock is set forward or back, and than nodes warn of.
const validity = 30 * 24 * time.Hour

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(a.next.Add(1))
	template.NotBefore, template.NotAfter = time.Now().Add(-validity), time.Now().Add(validity)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	Must(a.t, err)
	cert, err := x509.ParseCertificate(der)
	Must(a.t, err)
	return cert
}

// write replaces a file at one go.
func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	Must(a.t, os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	Must(a.t, os.Rename(path+".new", path))
	return path
}

func (a *Authority) issue(file string, template *x509.Certificate) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Must(a.t, err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	Must(a.t, err)
	public := a.sign(template, private)
	return a.write(file+".pem", "CERTIFICATE", public.Raw), a.write(file+".key", "PRIVATE KEY", der)
}

// Server writes a certificate for localhost and 127.0.0.1 with this common name,
// in place of the one before.
func (a *Authority) Server(name string) (cert, key string) {
	a.t.Helper()
	return a.issue("server", &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// ClientFiles writes a client's certificate with this common name.
func (a *Authority) ClientFiles(name string) (cert, key string) {
	a.t.Helper()
	return a.issue("client-"+name, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Node writes the certificate of a node of a cluster, which is client and server:
// its common name says which.
func (a *Authority) Node(id, host string) (cert, key string) {
	a.t.Helper()
	return a.issue("node-"+id, &x509.Certificate{
		Subject: pkix.Name{CommonName: "trivium-node-" + id}, IPAddresses: []net.IP{net.ParseIP(host)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// Trust is the configuration of clients that trust the authority, with
// certificates of these names.
func (a *Authority) Trust(names ...string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	c.RootCAs.AddCert(a.cert)
	for _, name := range names {
		pair, err := tls.LoadX509KeyPair(a.ClientFiles(name))
		Must(a.t, err)
		c.Certificates = append(c.Certificates, pair)
	}
	return c
}

// Secure are a node's further listeners: those with TLS, and WebSocket.
type Secure struct{ AMQP, MQTT, Kafka, HTTP, WS, WSS string }

// StartSecure is Start with all further listeners, and a certificate from a.
func StartSecure(t testing.TB, a *Authority, args ...string) (*Broker, Secure) {
	t.Helper()
	var at Secure
	flags := []string{"--tls-client-ca", a.CA}
	for name, addr := range map[string]*string{
		"amqp-tls": &at.AMQP, "mqtt-tls": &at.MQTT, "kafka-tls": &at.Kafka, "http-tls": &at.HTTP, "mqtt-ws": &at.WS, "mqtt-wss": &at.WSS,
	} {
		var err error
		*addr, err = freeAddress()
		Must(t, err)
		flags = append(flags, "--"+name+"-listen", *addr)
	}
	cert, key := a.Server("first")
	return Start(t, append(append(flags, "--tls-cert", cert, "--tls-key", key), args...)...), at
}
