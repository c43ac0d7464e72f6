package cluster

import (
	"net"
	"syscall"
	"time"
)

// silence is how long a peer may leave bytes unacknowledged, or take none, before the
// connection ends: it has gone without a word.
const silence = 15 * time.Second

// dialer notices within half a minute that a peer has gone.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { limitSilence(fd, silence) })
	},
}

// impatient has the connections that a listener accepts notice it, too.
func impatient(l net.Listener) {
	if tcp, ok := l.(*net.TCPListener); ok {
		if c, err := tcp.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { limitSilence(fd, silence) }) // without it, it takes longer
		}
	}
}

// patient undoes that for a socket that carries a client's bytes: what the client does not
// read yet, or the node that serves does not take during an alarm, waits as long as that
// takes, and the system counts the time for silence.
func patient(socket net.Conn) {
	if tcp, ok := socket.(*net.TCPConn); ok {
		if c, err := tcp.SyscallConn(); err == nil {
			_ = c.Control(func(fd uintptr) { limitSilence(fd, 0) })
		}
	}
}
