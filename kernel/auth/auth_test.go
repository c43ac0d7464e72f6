package auth

import (
	"net"
	"testing"
)

func TestCheck(t *testing.T) {
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	local6 := &net.TCPAddr{IP: net.IPv6loopback, Port: 1}
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.5"), Port: 1}
	far := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, tc := range []struct {
		user, password string
		remote         net.Addr
		want           bool
	}{
		{"guest", "guest", local, true},
		{"guest", "guest", local6, true},
		{"guest", "guest", mapped, true},
		{"guest", "guest", &net.UnixAddr{Name: "/s", Net: "unix"}, true},
		{"guest", "guest", far, false},
		{"guest", "guest", nil, false},
		{"guest", "Guest", local, false},
		{"guest", "", local, false},
		{"", "guest", local, false},
		{"guest2", "guest", local, false},
	} {
		if got := Check(tc.user, tc.password, tc.remote); got != tc.want {
			t.Errorf("Check(%q, %q, %v) = %v, want %v", tc.user, tc.password, tc.remote, got, tc.want)
		}
	}
}
