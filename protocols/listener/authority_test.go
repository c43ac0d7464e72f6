package listener

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
	"testing"
	"time"
)

// authority issues certificates for a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
	dir  string
	next int64
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t), pool: x509.NewCertPool(), dir: t.TempDir(), next: 1}
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, a.key)
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	template.SerialNumber = big.NewInt(a.next)
	a.next++
	template.NotBefore = time.Now().Add(-time.Hour)
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func (a *authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	// Renamed into place, as those who renew certificates do.
	if err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// files are a new certificate of the server, and the authority for clients.
func (a *authority) files(name string, until time.Time) Files {
	a.t.Helper()
	key := newKey(a.t)
	cert := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: until,
	}, key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return Files{
		Cert: a.write("cert.pem", "CERTIFICATE", cert.Raw), Key: a.write("key.pem", "EC PRIVATE KEY", der),
		ClientCA: a.write("ca.pem", "CERTIFICATE", a.cert.Raw),
	}
}

func (a *authority) certificates() *Certificates {
	a.t.Helper()
	c, err := LoadCertificates(a.files("first", time.Time{}))
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// client is a client's certificate.
func (a *authority) client(subject pkix.Name, names ...string) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	cert := a.sign(&x509.Certificate{
		Subject: subject, DNSNames: names, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) tls(opt TLSOptions) *TLS {
	a.t.Helper()
	secure, err := NewTLS(a.certificates(), opt)
	if err != nil {
		a.t.Fatal(err)
	}
	return secure
}

// trust is the configuration of a client.
func (a *authority) trust(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: "localhost", Certificates: certs}
}
