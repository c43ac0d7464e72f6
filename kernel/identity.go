package kernel

import (
	"net"
	"time"
)

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

	// The rest may be empty.
	Version    string     // of the protocol, as the client chose it
	Mechanism  string     // how it authenticated
	Secure     bool       // encrypted
	Properties []Argument // what the client says of itself
	Heartbeat  time.Duration
	Channels   ChannelLister
	Node       string // that holds the socket; "" is the one that serves
	// Token stays the same when the connection is made again on behalf of the same
	// client: then it takes the place of the one before. Nobody can guess it.
	Token string
}

// ChannelLister lists the channels of a connection whose protocol has several
// on one. It is called from any goroutine, until the connection is closed, and
// must be quick.
type ChannelLister interface {
	Channels() []ChannelStatus
}

// ChannelStatus is a channel in listings.
type ChannelStatus struct {
	Number    int
	Consumers int
	Unsettled int  // records handed out and not settled
	Prefetch  int  // records a consumer may hold, 0 = unlimited
	Confirms  bool // publishes are confirmed
}
