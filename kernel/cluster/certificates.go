package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TLS names the files of a node, in PEM: the authority that has signed the
// certificates of all nodes, this node's certificate, for servers and clients, and
// its key. They are read again when they have changed.
type TLS struct{ CA, Cert, Key string }

// Check returns an error if the files cannot be those of a node.
func (t TLS) Check(node string) error {
	_, err := openKeys(t, node)
	return err
}

// CertificateName is the name of a node in its certificate: the common name, or one
// of the DNS names.
func CertificateName(node string) string { return "trivium-node-" + node }

// rereadTime is how long files are believed to be as they were.
const rereadTime = 10 * time.Second

// keys are the loaded files.
type keys struct {
	files TLS
	node  string // whose they have to be

	// Of their own each: nodes that shake hands with each other must not wait for each
	// other's places.
	incoming, outgoing shakes

	mu    sync.Mutex
	cert  *tls.Certificate
	roots *x509.CertPool
	read  time.Time
	said  time.Time // when it was told last that the files are of no use
	ends  time.Time // when it was told last that the certificate's time ends
	log   zerolog.Logger
}

// openKeys reads the files, and finds out whether they are this node's.
func openKeys(files TLS, node string) (*keys, error) {
	k := &keys{files: files, node: node, incoming: newShakes(), outgoing: newShakes(), log: zerolog.Nop()}
	if err := k.load(); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return k, nil
}

// load reads the files. What is of no use to this node changes nothing.
func (k *keys) load() error {
	k.read = time.Now()
	cert, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	if err != nil {
		return fmt.Errorf("certificate %s with key %s: %w", k.files.Cert, k.files.Key, err)
	}
	pem, err := os.ReadFile(k.files.CA)
	if err != nil {
		return fmt.Errorf("authority of the cluster: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("authority of the cluster: %s holds no certificate", k.files.CA)
	}
	if err := names(cert.Leaf, k.node); err != nil {
		return fmt.Errorf("%s: %w", k.files.Cert, err)
	}
	if err := verifyChain([]*x509.Certificate{cert.Leaf}, cert.Certificate[1:], roots); err != nil {
		return fmt.Errorf("%s is not good, or not of the authority in %s: %w", k.files.Cert, k.files.CA, err)
	}
	k.cert, k.roots = &cert, roots
	return nil
}

// current returns what is in the files, or was when they were good last. The log tells
// why they are not.
func (k *keys) current() (*tls.Certificate, *x509.CertPool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.read) > rereadTime {
		if err := k.load(); err == nil {
			k.said = time.Time{}
		} else if time.Since(k.said) > complainEvery {
			k.said = time.Now()
			k.log.Error().Err(err).Msg("the certificate files of the cluster are of no use: what was read before is kept")
		}
	}
	return k.cert, k.roots
}

func verifyChain(chain []*x509.Certificate, rest [][]byte, roots *x509.CertPool) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	for _, der := range rest {
		if c, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(c)
		}
	}
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{usage}})
		if err != nil {
			return err
		}
	}
	return nil
}

// config is that of both sides. The name in a certificate says which node it is, not
// at which address: [names] looks at it when the node has said who it is.
func (k *keys) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			cert, roots := k.current()
			return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, _ := k.current()
			return cert, nil
		},
		InsecureSkipVerify: true, // VerifyConnection does it, without a name
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 {
				return errors.New("no certificate")
			}
			_, roots := k.current()
			return verifyChain(s.PeerCertificates, nil, roots)
		},
	}
}

func (k *keys) listen(l net.Listener) net.Listener {
	return shakingListener{l, k.config(), k.incoming}
}

func (k *keys) client(ctx context.Context, c net.Conn) (net.Conn, error) {
	s := &shaking{Conn: c, places: k.outgoing}
	defer s.settle()
	s.compute()
	t := tls.Client(s, k.config())
	if err := t.HandshakeContext(ctx); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("TLS with %s: %w", c.RemoteAddr(), err)
	}
	return t, nil
}

// names returns an error if a certificate is not that of a node.
func names(leaf *x509.Certificate, node string) error {
	name := CertificateName(node)
	if leaf.Subject.CommonName == name || slices.Contains(leaf.DNSNames, name) {
		return nil
	}
	return &Refusal{Code: transport.CodeCertificate, Reason: fmt.Sprintf("the certificate of %q is not that of node %s: it does not name %s", leaf.Subject.CommonName, node, name)}
}

// certified looks at the certificate of a peer that says it is a node.
func (n *Node) certified(c net.Conn, node string) error {
	if n.keys == nil {
		return nil
	}
	t, ok := c.(*tls.Conn)
	if !ok || len(t.ConnectionState().PeerCertificates) == 0 {
		return &Refusal{Code: transport.CodeCertificate, Reason: "no certificate"}
	}
	return names(t.ConnectionState().PeerCertificates[0], node)
}
