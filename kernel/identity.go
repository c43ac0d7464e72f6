package kernel

import "net"

// ConnectionID is unique on a node while the process runs; 0 is none.
type ConnectionID uint64

// Protocol names a front-end in listings and metrics ("amqp", "mqtt",
// "kafka"). The kernel never branches on it.
type Protocol string

// Identity is who a connection acts as, fixed at authentication.
type Identity struct {
	User      string
	Tenant    string
	Anonymous bool
}

// ConnectionInfo describes a connection for listings.
type ConnectionInfo struct {
	Protocol Protocol
	Name     string // "peer -> local" or what the client calls itself
	ClientID string
	Remote   net.Addr
	Local    net.Addr
}
