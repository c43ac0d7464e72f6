package cluster

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silenceOf is what limitSilence has set.
func silenceOf(t *testing.T, c net.Conn) (d time.Duration) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		ms, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
		if err != nil {
			t.Error(err)
		}
		d = time.Duration(ms) * time.Millisecond
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTunnelsWait: a client that does not read, or that is not read from during an alarm,
// keeps its connection by way of another node; what nodes say to each other has to
// be acknowledged in time.
func TestTunnelsWait(t *testing.T) {
	for name, change := range map[string]func(*Config){"plain": nil, "TLS": newAuthority(t).change} {
		t.Run(name, func(t *testing.T) {
			a, b := startNode(t, "1", change), startNode(t, "2", change)
			know(t, a, b)
			near, far := tunnelBetween(t, a, b)
			for _, c := range []net.Conn{near, far} {
				if d := silenceOf(t, c.(*tunnel).socket()); d != 0 {
					t.Errorf("a tunnel ends when %v is waited", d)
				}
				_ = c.Close()
			}
		})
	}
	a, b := startNode(t, "1", nil), startNode(t, "2", nil)
	c, err := a.dial(t.Context(), b.Self().Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if d := silenceOf(t, c); d != silence {
		t.Errorf("other connections end after %v, not %v", d, silence)
	}
}
