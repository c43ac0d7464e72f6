package kernel

import "time"

// SessionForever is the expiry of a session that never expires.
const SessionForever = time.Duration(1<<63 - 1)

// Subscription is one filter of a session.
type Subscription struct {
	Filter string // as the client wrote it, share addresses included
	QoS    byte   // delivery guarantee the subscriber asked for: 0, 1 or 2
	// Options are kept for the adapter: bits it defines, and an identifier.
	Options    byte
	Identifier uint32
}

// SessionState is what is kept for a client id while it is away.
type SessionState struct {
	ClientID      string
	Expiry        time.Duration // after the connection ends; SessionForever = never
	Subscriptions []Subscription
	// ExpiresAt is when a detached session goes; zero while attached or never.
	ExpiresAt time.Time
}
