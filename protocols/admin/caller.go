package admin

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// strangerTime is how long a connection on which nobody has logged in yet may
// keep the server waiting, for a request or between two.
const strangerTime = 10 * time.Second

// callers are the connections of a listener, each a caller.
type callers struct{ net.Listener }

// Accept implements net.Listener.
func (l callers) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &caller{Conn: nc}, nil
}

// caller is the connection of a client, who may log in with a request.
type caller struct {
	net.Conn
	known atomic.Bool
}

type callerKey struct{}

func withCaller(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, nc)
}

// SetReadDeadline implements net.Conn: the time of a stranger is short, whatever
// the server allows.
func (c *caller) SetReadDeadline(t time.Time) error {
	if !c.known.Load() {
		if soon := time.Now().Add(strangerTime); t.IsZero() || t.After(soon) {
			t = soon
		}
	}
	return c.Conn.SetReadDeadline(t)
}

// loggedIn tells that the client has logged in.
func (c *caller) loggedIn() {
	if c.known.Swap(true) {
		return
	}
	listener.Authenticated(c.Conn)
	_ = c.Conn.SetReadDeadline(time.Now().Add(readTimeout)) // a socket that is closed fails the next read
}

// visitor is the connection that a request came on, nil if it is of another kind.
func (c *call) visitor() *caller {
	v, _ := c.r.Context().Value(callerKey{}).(*caller)
	return v
}
