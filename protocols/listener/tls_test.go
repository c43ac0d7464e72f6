package listener

import (
	"bytes"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair connects a TLS client and returns both ends.
func pair(t *testing.T, l *Listener, config *tls.Config) (server net.Conn, client *tls.Conn) {
	t.Helper()
	client = tls.Client(dial(t, l), config)
	done := make(chan error, 1)
	go func() { done <- client.Handshake() }()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return server, client
}

func subject(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].Subject.CommonName }

func TestPeerUser(t *testing.T) {
	a := newAuthority(t)
	cert := a.client(pkix.Name{CommonName: "sensor", Organization: []string{"plant"}}, "sensor.example.com", "other")
	for _, test := range []struct {
		auth, name string
		certs      []tls.Certificate
		want       string
	}{
		{ClientAuthRequest, "", []tls.Certificate{cert}, "sensor"},
		{ClientAuthRequire, PeerNameCN, []tls.Certificate{cert}, "sensor"},
		{ClientAuthRequire, PeerNameSANDNS, []tls.Certificate{cert}, "sensor.example.com"},
		{ClientAuthRequire, PeerNameDN, []tls.Certificate{cert}, "CN=sensor,O=plant"},
		{ClientAuthRequest, PeerNameCN, nil, ""},
		{ClientAuthOff, PeerNameCN, []tls.Certificate{cert}, ""},
		{ClientAuthRequire, PeerNameSANDNS, []tls.Certificate{a.client(pkix.Name{CommonName: "no names"})}, ""},
	} {
		l := listen(t, Options{TLS: a.tls(TLSOptions{ClientAuth: test.auth, PeerName: test.name})})
		server, _ := pair(t, l, a.trust(test.certs...))
		if user, ok := PeerUser(server); user != test.want || ok != (test.want != "") {
			t.Errorf("%+v: got %q %v", test, user, ok)
		}
		if !Secure(server) {
			t.Error("not secure")
		}
	}
	l := listen(t, Options{})
	dial(t, l)
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, ok := PeerUser(server); ok || Secure(server) {
		t.Error("a plain connection is secure")
	}
}

func TestTLSRefuses(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	for name, test := range map[string]struct {
		config *tls.Config
		noise  bool
	}{
		"TLS 1.1":                        {&tls.Config{RootCAs: a.pool, ServerName: "localhost", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"no certificate":                 {a.trust(), false},
		"certificate of another":         {a.trust(stranger.client(pkix.Name{CommonName: "sensor"})), false},
		"plain text, as of a port check": {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan error, 1)
			l := listen(t, Options{TLS: a.tls(TLSOptions{ClientAuth: ClientAuthRequire}), OnError: func(err error) { failed <- err }})
			c := dial(t, l)
			if test.config == nil {
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
			} else {
				client := tls.Client(c, test.config)
				if client.Handshake() == nil { // with 1.3 the client learns it when it reads
					_, err := client.Read(make([]byte, 1))
					if err == nil {
						t.Error("served")
					}
				}
			}
			if err := <-failed; !errors.Is(err, ErrHandshake) || errors.Is(err, ErrNoise) != test.noise {
				t.Errorf("reported %v", err)
			}
			if l.Stats().Failed.Load() != 1 || l.Stats().Open.Load() != 0 {
				t.Errorf("%d failed, %d open", l.Stats().Failed.Load(), l.Stats().Open.Load())
			}
		})
	}
	if _, err := NewTLS(loadFirst(t, newAuthority(t)), TLSOptions{ClientAuth: ClientAuthRequire}); err == nil {
		t.Error("client certificates are asked for and could not be checked")
	}
}

func loadFirst(t *testing.T, a *authority) *Certificates {
	t.Helper()
	files := a.files("first", time.Time{})
	files.ClientCA = ""
	c, err := LoadCertificates(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReload: open connections stay, new ones see the new certificate, and one
// that is no good changes nothing.
func TestReload(t *testing.T) {
	a := newAuthority(t)
	certs := a.certificates()
	secure, err := NewTLS(certs, TLSOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t, Options{TLS: secure})
	oldServer, oldClient := pair(t, l, a.trust())
	if changed, err := certs.ReloadChanged(); changed || err != nil {
		t.Errorf("nothing has changed: %v %v", changed, err)
	}
	a.files("second", time.Time{})
	if changed, err := certs.ReloadChanged(); !changed || err != nil {
		t.Errorf("changed %v: %v", changed, err)
	}
	if _, c := pair(t, l, a.trust()); subject(c) != "second" {
		t.Errorf("the certificate is still %s", subject(c))
	}
	echo(t, oldServer, oldClient)

	files := a.files("expired", time.Now().Add(-time.Minute))
	if changed, err := certs.ReloadChanged(); !changed || !errors.Is(err, errExpired) {
		t.Errorf("expired: %v %v", changed, err)
	}
	a.write("key.pem", "EC PRIVATE KEY", []byte("no key"))
	if changed, err := certs.ReloadChanged(); !changed || err == nil {
		t.Errorf("no key: %v %v", changed, err)
	}
	if err := os.Remove(files.Cert); err != nil {
		t.Fatal(err)
	}
	if err := certs.Reload(); err == nil {
		t.Error("no certificate: reloaded")
	}
	if changed, _ := certs.ReloadChanged(); changed {
		t.Error("it has told already")
	}
	if _, c := pair(t, l, a.trust()); subject(c) != "second" {
		t.Errorf("now the certificate is %s", subject(c))
	}
	if good, bad := certs.Reloads(); good != 1 || bad != 3 {
		t.Errorf("%d reloads, %d failed", good, bad)
	}
}

func echo(t *testing.T, server, client net.Conn) {
	t.Helper()
	for _, way := range [][2]net.Conn{{server, client}, {client, server}} {
		if _, err := io.WriteString(way[0], "hello"); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(way[1], got); err != nil || string(got) != "hello" {
			t.Fatalf("%q %v", got, err)
		}
	}
}

// TestSecuredWriteGoesOn: a write that ran into its deadline can be gone on
// with, as the AMQP front-end does with clients that read slowly.
func TestSecuredWriteGoesOn(t *testing.T) {
	a := newAuthority(t)
	l := listen(t, Options{TLS: a.tls(TLSOptions{})})
	server, client := pair(t, l, a.trust())
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than the buffers of both sockets
	rest, stalls := want, 0
	got := make(chan []byte, 1)
	for {
		if err := server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := server.Write(rest)
		rest = rest[n:]
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		if stalls++; stalls == 2 { // the client reads from now on
			go func() {
				b := make([]byte, len(want))
				_, _ = io.ReadFull(client, b)
				got <- b
			}()
		}
	}
	if stalls < 2 {
		t.Fatalf("%d stalls", stalls)
	}
	if len(rest) != 0 || !bytes.Equal(<-got, want) {
		t.Error("what was written did not arrive")
	}
	// A close does not wait for a client that does not read.
	for {
		if err := server.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Write(want); err != nil {
			break
		}
	}
	begin := time.Now()
	_ = server.Close()
	if took := time.Since(begin); took > 4*time.Second { // tls.Conn's own limit is five
		t.Errorf("closing took %v", took)
	}
}

// TestHandshakesWait: a place in the pool is held while the server computes,
// not while it waits for the client.
func TestHandshakesWait(t *testing.T) {
	a := newAuthority(t)
	l := listen(t, Options{TLS: a.tls(TLSOptions{Handshakes: NewHandshakes(1)})})
	for range 20 { // who say nothing
		dial(t, l)
	}
	half := dial(t, l) // who says the first word, and nothing after the answer
	first, second := net.Pipe()
	go func() { _ = tls.Client(first, a.trust()).Handshake() }()
	hello := make([]byte, 4096)
	n, err := second.Read(hello)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	_ = second.Close()
	if _, err := half.Write(hello[:n]); err != nil {
		t.Fatal(err)
	}
	if _, err := half.Read(hello); err != nil {
		t.Fatal(err)
	}
	server, client := pair(t, l, a.trust())
	echo(t, server, client)
}
