package cluster

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// testAuthority signs the certificates of nodes.
type testAuthority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	life time.Duration // of what it signs, 0 = an hour
}

func newAuthority(t *testing.T) *testAuthority {
	t.Helper()
	a := &testAuthority{t: t, dir: t.TempDir()}
	a.key = a.newKey()
	der := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, a.key)
	a.write("ca.pem", "CERTIFICATE", der)
	a.cert, _ = x509.ParseCertificate(der)
	return a
}

func (a *testAuthority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *testAuthority) sign(c *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(cmp.Or(a.life, time.Hour))
	parent := a.cert
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *testAuthority) write(name, kind string, der []byte) string {
	file := filepath.Join(a.dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// node makes the files of a node.
func (a *testAuthority) node(id string) *TLS {
	key := a.newKey()
	der := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{CertificateName(id)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}, key)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return &TLS{CA: filepath.Join(a.dir, "ca.pem"), Cert: a.write(id+".pem", "CERTIFICATE", der), Key: a.write(id+"-key.pem", "PRIVATE KEY", raw)}
}

func (a *testAuthority) change(c *Config) { c.TLS = a.node(c.Identity.Node) }

// TestSecureTunnel: with TLS a tunnel is like one without.
func TestSecureTunnel(t *testing.T) { testTunnel(t, newAuthority(t).change) }

// TestCertificatesOfOthers: a node without a certificate of the cluster, and one with
// that of another node, are refused, whoever dials.
func TestCertificatesOfOthers(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	a := startNode(t, "1", ours.change)
	reach := func(from, to *Node) error {
		c, _, err := from.mux.Dial(t.Context(), to.Self().Address, transport.Hello{Kind: transport.KindTunnel, To: to.Self().Raft})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := reach(startNode(t, "2", ours.change), a); err != nil {
		t.Fatal(err)
	}
	foreign, plain := startNode(t, "2", theirs.change), startNode(t, "2", nil)
	for name, b := range map[string]*Node{"of another authority": foreign, "without": plain} {
		if reach(a, b) == nil || reach(b, a) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := reach(plain, a); err == nil || !strings.Contains(err.Error(), a.Self().Address+": the connection was closed without an answer, as by a node that has certificates") {
		t.Errorf("without, among those that have some: %v", err)
	}
	if err := reach(foreign, a); err == nil || !strings.Contains(err.Error(), "TLS with "+a.Self().Address) {
		t.Errorf("of another authority: %v", err)
	}
	// It has the certificate of node 3, and says that it is node 2.
	impostor := startNode(t, "3", ours.change)
	impostor.settle(func(i *Identity) { i.Node = "2" })
	for _, err := range []error{reach(impostor, a), reach(a, impostor)} {
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != transport.CodeCertificate {
			t.Errorf("an impostor: %v", err)
		}
	}
	if err := theirs.node("2").Check("3"); err == nil {
		t.Error("a node starts with the certificate of another one")
	}
	mixed := ours.node("2")
	mixed.CA = filepath.Join(theirs.dir, "ca.pem")
	if err := mixed.Check("2"); err == nil {
		t.Error("a node starts with a certificate of another authority")
	}
}

// TestCertificatesAreReadAgain: new files count without a restart, and files that do
// not fit together do not.
func TestCertificatesAreReadAgain(t *testing.T) {
	ours := newAuthority(t)
	k, err := openKeys(*ours.node("1"), "1")
	if err != nil {
		t.Fatal(err)
	}
	old, _ := k.current()
	ours.node("1")
	k.read = time.Time{}
	renewed, _ := k.current()
	if renewed == old {
		t.Error("the new certificate does not count")
	}
	ours.write("1.pem", "CERTIFICATE", ours.cert.Raw)
	k.read = time.Time{}
	if now, _ := k.current(); now != renewed {
		t.Error("a certificate without its key counts")
	}
}

// TestCertificatesOfNoUseAreNotTaken: files that a node would not start with do not
// replace those that it runs with, and the log says so.
func TestCertificatesOfNoUseAreNotTaken(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	k, err := openKeys(*ours.node("1"), "1")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	k.log = zerolog.New(&log)
	good, _ := k.current()
	files := k.files
	ours.life = -time.Minute
	expired := *ours.node("2")
	ours.life = 0
	for name, files := range map[string]TLS{"expired": expired, "of another node": *ours.node("3"), "of another authority": {CA: files.CA, Cert: theirs.node("1").Cert, Key: filepath.Join(theirs.dir, "1-key.pem")}} {
		k.files, k.read, k.said = files, time.Time{}, time.Time{}
		if name == "expired" {
			k.node = "2"
		}
		log.Reset()
		if now, _ := k.current(); now != good {
			t.Errorf("%s: taken", name)
		}
		if !strings.Contains(log.String(), "of no use") {
			t.Errorf("%s: the log says %q", name, &log)
		}
		k.node = "1"
	}
	k.files, k.read = files, time.Time{}
	ours.node("1")
	if now, _ := k.current(); now == good {
		t.Error("a good one is not taken any more")
	}
}

// TestExpiryIsTold: a certificate that ends soon is warned of once a day, and what has
// ended is an error; the new one is good again.
func TestExpiryIsTold(t *testing.T) {
	ours := newAuthority(t)
	ours.life = expiryWarning + time.Hour
	k, err := openKeys(*ours.node("1"), "1")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	k.log = zerolog.New(&log)
	n := &Node{keys: k}
	until, ok := n.CertificateExpiry()
	if left := time.Until(until); !ok || left > ours.life || left < ours.life-time.Minute {
		t.Errorf("it ends at %v, %v", until, ok)
	}
	for _, tc := range []struct {
		before time.Duration
		text   string
	}{
		{expiryWarning + time.Minute, ""},
		{expiryWarning - time.Minute, `"level":"warn"`},
		{expiryWarning - time.Hour, ""},
		{expiryWarning - 25*time.Hour, `"level":"warn"`},
		{-time.Minute, `"level":"error"`},
		{expiryWarning + time.Minute, ""},
		{time.Hour, `"level":"warn"`},
	} {
		log.Reset()
		k.warn(until.Add(-tc.before))
		if got := log.String(); (got == "") != (tc.text == "") || !strings.Contains(got, tc.text) {
			t.Errorf("%v before its end the log says %q", tc.before, got)
		}
	}
}
