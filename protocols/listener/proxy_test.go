package listener

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// v2 is a binary header: version and command, family, body.
func v2(command, family byte, body []byte) string {
	return proxyV2Start + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + string(body)
}

var (
	ip4   = []byte{192, 0, 2, 7, 198, 51, 100, 1, 0x9c, 0x40, 0x16, 0x28} // 192.0.2.7:40000 -> 198.51.100.1:5672
	ip6   = append(append(net.ParseIP("2001:db8::7"), net.ParseIP("2001:db8::1")...), 0x9c, 0x40, 0x16, 0x28)
	tlv   = []byte{0x02, 0, 3, 'a', '.', 'b'}
	local = "127.0.0.1" // the address is the socket's
)

// TestProxyHeaders: what each header makes of a connection (specification,
// sections 2.1 and 2.2), and that not a byte after it is lost.
func TestProxyHeaders(t *testing.T) {
	for _, test := range []struct {
		name, header string
		remote       string // "" = refused
		local        string
		required     bool
	}{
		{"v1 TCP4", "PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\n", "192.0.2.7:40000", "198.51.100.1:5672", true},
		{"v1 TCP6", "PROXY TCP6 2001:db8::7 2001:db8::1 40000 5672\r\n", "[2001:db8::7]:40000", "[2001:db8::1]:5672", true},
		{"v1 UNKNOWN", "PROXY UNKNOWN\r\n", local, local, true},
		{"v1 UNKNOWN with addresses", "PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", local, local, true},
		{"v1 of the wrong family", "PROXY TCP4 2001:db8::7 2001:db8::1 40000 5672\r\n", "", "", false},
		{"v1 with a port too large", "PROXY TCP4 192.0.2.7 198.51.100.1 70000 5672\r\n", "", "", false},
		{"v1 with a field missing", "PROXY TCP4 192.0.2.7 198.51.100.1 40000\r\n", "", "", false},
		{"v1 without an end", "PROXY TCP4 " + strings.Repeat("1", 200), "", "", false},
		{"v2 IPv4", v2(0x21, 0x11, ip4), "192.0.2.7:40000", "198.51.100.1:5672", true},
		{"v2 IPv6", v2(0x21, 0x21, ip6), "[2001:db8::7]:40000", "[2001:db8::1]:5672", true},
		{"v2 with TLVs", v2(0x21, 0x11, append(bytes.Clone(ip4), tlv...)), "192.0.2.7:40000", "198.51.100.1:5672", true},
		{"v2 LOCAL", v2(0x20, 0x11, ip4), local, local, true},
		{"v2 UNSPEC", v2(0x21, 0x00, tlv), local, local, true},
		{"v2 too short", v2(0x21, 0x11, ip4[:11]), "", "", false},
		{"v2 of version 3", v2(0x31, 0x11, ip4), "", "", false},
		{"v2 with an unknown command", v2(0x22, 0x11, ip4), "", "", false},
		{"v2 too long", proxyV2Start + "\x21\x11\xff\xff", "", "", false},
		{"none, required", "", "", "", true},
		{"none, optional", "", local, local, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			failed := make(chan error, 1)
			l := listen(t, Options{Proxy: &Proxy{Trusted: loopback, Required: test.required}, OnError: func(err error) { failed <- err }})
			c := dial(t, l)
			// Byte by byte, and then what the client itself sends first.
			for _, b := range []byte(test.header + "AMQP\x00\x00\x09\x01") {
				if _, err := c.Write([]byte{b}); err != nil {
					break
				}
			}
			if test.remote == "" {
				if err := <-failed; !errors.Is(err, ErrHandshake) {
					t.Errorf("reported %v", err)
				}
				return
			}
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if got := nc.RemoteAddr().String(); !strings.HasPrefix(got, test.remote) {
				t.Errorf("remote %s, want %s", got, test.remote)
			}
			if got := nc.LocalAddr().String(); !strings.HasPrefix(got, test.local) {
				t.Errorf("local %s, want %s", got, test.local)
			}
			first := make([]byte, 8)
			if _, err := io.ReadFull(nc, first); err != nil || string(first) != "AMQP\x00\x00\x09\x01" {
				t.Errorf("read %q, %v", first, err)
			}
		})
	}
}

// TestProxyFromElsewhere: nobody but the proxies may say who somebody is.
func TestProxyFromElsewhere(t *testing.T) {
	elsewhere := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	failed := make(chan error, 1)
	l := listen(t, Options{Proxy: &Proxy{Trusted: elsewhere, Required: true}, OnError: func(err error) { failed <- err }})
	dial(t, l)
	if err := <-failed; !errors.Is(err, errNotTrusted) {
		t.Errorf("reported %v", err)
	}
	l = listen(t, Options{Proxy: &Proxy{Trusted: elsewhere}})
	c := dial(t, l)
	const line = "PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\n"
	if _, err := io.WriteString(c, line); err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got := make([]byte, len(line))
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != line || !strings.HasPrefix(nc.RemoteAddr().String(), local) {
		t.Errorf("read %q from %s, %v", got, nc.RemoteAddr(), err)
	}
}

// outside is a net.Listener's address of this machine that is no loopback.
func outside(t *testing.T) string {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	t.Skip("this machine has the loopback only")
	return ""
}

// TestProxyClaimsLoopback: a header of a proxy elsewhere that names a loopback
// address does not make its connection one of ours: it stays the proxy's.
func TestProxyClaimsLoopback(t *testing.T) {
	ip := outside(t)
	l, err := Listen("0.0.0.0:0", Options{Proxy: &Proxy{Trusted: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	mapped := append(append(net.ParseIP("::ffff:127.0.0.1"), net.ParseIP("::1")...), 0, 1, 0, 2)
	for host, headers := range map[string]map[string]string{
		ip: {
			"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n": ip, "PROXY TCP6 ::1 ::1 1 2\r\n": ip, v2(0x21, 0x21, mapped): ip,
			"PROXY TCP4 192.0.2.7 127.0.0.1 1 2\r\n": "192.0.2.7",
		},
		"127.0.0.1": {"PROXY TCP4 127.0.0.2 127.0.0.1 1 2\r\n": "127.0.0.2"},
	} {
		for header, want := range headers {
			c, err := net.Dial("tcp4", net.JoinHostPort(host, port))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, header); err != nil {
				t.Fatal(err)
			}
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if got, _, _ := net.SplitHostPort(nc.RemoteAddr().String()); got != want {
				t.Errorf("%q to %s: from %s, want %s", header, host, got, want)
			}
			_ = nc.Close()
			_ = c.Close()
		}
	}
}

// FuzzProxy: no input makes the parser fail otherwise than with an error, take
// more than it may, or take bytes behind the header.
func FuzzProxy(f *testing.F) {
	for _, s := range []string{"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\nrest", "PROXY UNKNOWN\r\n", v2(0x21, 0x11, ip4) + "rest", v2(0x21, 0x21, ip6), "AMQP", "\r\n\r\n", "P"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		head, version, err := proxyStart(r)
		if err != nil {
			return
		}
		taken := len(in) - r.Len()
		switch version {
		case 0:
			if taken != len(head) || !bytes.HasPrefix(in, head) {
				t.Fatalf("%d bytes taken, %q kept", taken, head)
			}
			return
		case 1:
			if _, _, err = proxyV1(r, head); err == nil && !bytes.HasSuffix(in[:len(in)-r.Len()], []byte("\r\n")) {
				t.Fatal("took more than a line")
			}
			if taken = len(in) - r.Len(); taken > maxProxyV1 {
				t.Fatalf("%d bytes taken", taken)
			}
		case 2:
			from, to, err := proxyV2(r, head)
			if err == nil && from.IsValid() != to.IsValid() {
				t.Fatalf("%v %v", from, to)
			}
			if taken = len(in) - r.Len(); taken > proxyV2Head+maxProxyBody {
				t.Fatalf("%d bytes taken", taken)
			}
		}
	})
}
