// Package auth decides who may connect. Today there is one user, guest, and
// anonymous access; both come from the loopback only.
package auth

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/netip"
)

// The default user. It is refused from anywhere but the loopback.
const (
	DefaultUser     = "guest"
	defaultPassword = "guest"
)

// Check reports whether user and password are right for a connection from
// remote. It takes the same time whatever is wrong with them.
func Check(user, password string, remote net.Addr) bool {
	return equal(user, DefaultUser)&equal(password, defaultPassword) == 1 && Loopback(remote)
}

// equal compares without telling by its time where, or at which length, the
// two differ.
func equal(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

// Loopback reports whether an address is on this machine's loopback; so are
// Unix sockets and in-memory pipes. Nil is not.
func Loopback(remote net.Addr) bool {
	if remote == nil {
		return false
	}
	switch remote.Network() {
	case "unix", "pipe":
		return true
	}
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	ap, err := netip.ParseAddrPort(remote.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}
