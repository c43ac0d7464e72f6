package listener

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Files name what a server shows and trusts, in PEM.
type Files struct {
	Cert     string // the server's certificate, and those between it and the root
	Key      string
	ClientCA string // roots of clients' certificates; "" = none
}

// Certificates is what Files hold, as of the last reload that succeeded. Safe
// for concurrent use.
type Certificates struct {
	files   Files
	current atomic.Pointer[material]
	good    atomic.Uint64
	bad     atomic.Uint64

	mu   sync.Mutex // of a reload
	seen stamps
}

// material is one generation of certificates, immutable.
type material struct {
	pair    tls.Certificate
	clients *x509.CertPool // nil = none
}

// stamps tell whether a file is another one than before.
type stamps [3]struct {
	modified time.Time
	size     int64
}

// LoadCertificates reads files. An expired certificate is no error here, so
// that a node does not stay down because of it; see Expiry.
func LoadCertificates(files Files) (*Certificates, error) {
	c := &Certificates{files: files}
	c.seen = c.stat()
	m, err := files.load()
	if err != nil {
		return nil, err
	}
	c.current.Store(m)
	return c, nil
}

func (f Files) load() (*material, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	m := &material{pair: pair}
	if f.ClientCA == "" {
		return m, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("client certificate authorities: %w", err)
	}
	m.clients = x509.NewCertPool()
	if !m.clients.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("client certificate authorities: %s holds no certificate", f.ClientCA)
	}
	return m, nil
}

// Expiry returns when the server's certificate ceases to be valid.
func (c *Certificates) Expiry() time.Time { return c.current.Load().pair.Leaf.NotAfter }

// Reloads returns how many reloads took a new certificate, and how many kept
// the old one because the files were no good.
func (c *Certificates) Reloads() (good, bad uint64) { return c.good.Load(), c.bad.Load() }

// errExpired refuses to replace a certificate by a worthless one.
var errExpired = errors.New("the certificate has expired")

// Reload reads the files again. Connections stay as they are; further ones see
// the new certificate. After an error all is as before.
func (c *Certificates) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reload(c.stat())
}

func (c *Certificates) reload(now stamps) error {
	c.seen = now
	m, err := c.files.load()
	if err == nil && time.Now().After(m.pair.Leaf.NotAfter) {
		err = fmt.Errorf("%s: %w", c.files.Cert, errExpired)
	}
	if err != nil {
		c.bad.Add(1)
		return fmt.Errorf("reload: %w", err)
	}
	c.current.Store(m)
	c.good.Add(1)
	return nil
}

// ReloadChanged reloads if a file has changed since the last look, and reports
// whether it has. A half-done replacement is an error at first and another
// change when it is done.
func (c *Certificates) ReloadChanged() (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stat()
	if now == c.seen {
		return false, nil
	}
	return true, c.reload(now)
}

func (c *Certificates) stat() (s stamps) {
	for i, name := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil { // a missing file is another one, too
			s[i].modified, s[i].size = info.ModTime().UTC(), info.Size()
		}
	}
	return s
}
