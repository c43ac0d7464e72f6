// Package auth decides who may log in and what he may do. It is pure: the users
// and permissions come from the replicated catalog, through Source.
package auth

import (
	"net"
	"net/netip"
)

// The default user, made at the first start unless another administrator is
// named. It is refused from anywhere but the loopback.
const (
	DefaultUser     = "guest"
	DefaultPassword = "guest"
)

// LoopbackOnly reports whether a user may come from the loopback only.
func LoopbackOnly(user string) bool { return user == DefaultUser }

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
