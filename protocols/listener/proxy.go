package listener

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Proxy reads the PROXY protocol, version 1 or 2, at the beginning of
// connections from trusted addresses
// (haproxy.org/download/3.0/doc/proxy-protocol.txt). TLVs of version 2 are
// skipped.
type Proxy struct {
	// Trusted are the networks of the proxies. From elsewhere nobody's word is
	// taken: with Required such connections are closed, else they are clients.
	Trusted []netip.Prefix
	// Required closes connections without a header.
	Required bool
}

// Bounds of a header in bytes.
const (
	maxProxyV1   = 107  // section 2.1
	maxProxyBody = 4096 // of version 2, TLVs included
	proxyV2Head  = 16
)

const (
	proxyV1Start = "PROXY "
	proxyV2Start = "\r\n\r\n\x00\r\nQUIT\n"
)

var (
	errNoProxy    = errors.New("no header")
	errBadProxy   = errors.New("malformed header")
	errNotTrusted = errors.New("not from a trusted network")
)

// read reads the header of c and gives c the addresses in it.
func (p *Proxy) read(c *conn) error {
	if !p.trusts(c.TCPConn.RemoteAddr()) {
		if p.Required {
			return errNotTrusted
		}
		return nil
	}
	head, version, err := proxyStart(c.TCPConn)
	if err != nil {
		return err
	}
	var from, to netip.AddrPort
	switch version {
	case 1:
		from, to, err = proxyV1(c.TCPConn, head)
	case 2:
		from, to, err = proxyV2(c.TCPConn, head)
	default:
		if p.Required {
			return errNoProxy
		}
		c.head = head
		return nil
	}
	if err != nil {
		return err
	}
	if from.Addr().IsLoopback() && !isLoopback(c.TCPConn.RemoteAddr()) {
		return nil // it is the proxy's loopback, not ours, where more is allowed
	}
	if from.IsValid() {
		c.remote, c.local = net.TCPAddrFromAddrPort(from), net.TCPAddrFromAddrPort(to)
	}
	return nil
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

func (p *Proxy) trusts(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, n := range p.Trusted {
		if n.Contains(ip) {
			return true
		}
	}
	return false
}

// proxyStart reads until it is clear whether a header comes, of which version;
// not more than the start of one, and of anything else not more than there is.
func proxyStart(r io.Reader) (head []byte, version int, err error) {
	head = make([]byte, 0, proxyV2Head)
	for {
		want := len(proxyV1Start)
		if len(head) > 0 && head[0] == proxyV2Start[0] {
			want = len(proxyV2Start)
		}
		n, err := r.Read(head[len(head):want])
		head = head[:len(head)+n]
		switch {
		case string(head) == proxyV1Start:
			return head, 1, nil
		case string(head) == proxyV2Start:
			return head, 2, nil
		case n > 0 && !strings.HasPrefix(proxyV1Start, string(head)) && !strings.HasPrefix(proxyV2Start, string(head)):
			return head, 0, nil
		case err != nil:
			return head, 0, err
		}
	}
}

// proxyV1 reads the rest of a line such as "PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
// byte by byte: nothing after it may be taken from the connection.
func proxyV1(r io.Reader, line []byte) (from, to netip.AddrPort, err error) {
	for !bytes.HasSuffix(line, []byte("\r\n")) {
		if len(line) == maxProxyV1 {
			return from, to, fmt.Errorf("%w: a line of more than %d bytes", errBadProxy, maxProxyV1)
		}
		var b [1]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return from, to, err
		}
		line = append(line, b[0])
	}
	f := strings.Split(string(line[:len(line)-2]), " ")
	if f[1] == "UNKNOWN" {
		return from, to, nil
	}
	if len(f) != 6 || f[1] != "TCP4" && f[1] != "TCP6" {
		return from, to, fmt.Errorf("%w: %.107q", errBadProxy, line)
	}
	from, errFrom := addrPort(f[2], f[4], f[1] == "TCP4")
	to, errTo := addrPort(f[3], f[5], f[1] == "TCP4")
	if errFrom != nil || errTo != nil {
		return netip.AddrPort{}, to, fmt.Errorf("%w: %.107q", errBadProxy, line)
	}
	return from, to, nil
}

func addrPort(host, port string, four bool) (netip.AddrPort, error) {
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" || ip.Is4() != four {
		return netip.AddrPort{}, errBadProxy
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, errBadProxy
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}

// proxyV2 reads the rest of a binary header (section 2.2): after the signature
// version and command, family and transport, length, addresses, TLVs.
func proxyV2(r io.Reader, head []byte) (from, to netip.AddrPort, err error) {
	head = head[:proxyV2Head]
	if _, err := io.ReadFull(r, head[len(proxyV2Start):]); err != nil {
		return from, to, err
	}
	size := int(binary.BigEndian.Uint16(head[14:]))
	if version, command := head[12]>>4, head[12]&15; version != 2 || command > 1 || size > maxProxyBody {
		return from, to, fmt.Errorf("%w: version %d, command %d, %d bytes", errBadProxy, version, command, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return from, to, err
	}
	if head[12]&15 == 0 { // LOCAL: the proxy speaks for itself
		return from, to, nil
	}
	switch head[13] {
	case 0x11: // TCP over IPv4
		return addresses(body, 4)
	case 0x21: // TCP over IPv6
		return addresses(body, 16)
	default: // UNSPEC, UNIX, datagrams: "must ignore address information"
		return from, to, nil
	}
}

// addresses reads source, destination and their ports, IPs of n bytes.
func addresses(b []byte, n int) (from, to netip.AddrPort, err error) {
	if len(b) < 2*n+4 {
		return from, to, fmt.Errorf("%w: %d bytes of addresses", errBadProxy, len(b))
	}
	source, _ := netip.AddrFromSlice(b[:n])
	target, _ := netip.AddrFromSlice(b[n : 2*n])
	ports := b[2*n:]
	return netip.AddrPortFrom(source.Unmap(), binary.BigEndian.Uint16(ports)),
		netip.AddrPortFrom(target.Unmap(), binary.BigEndian.Uint16(ports[2:])), nil
}
