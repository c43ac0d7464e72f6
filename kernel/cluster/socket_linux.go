package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence ends a connection whose bytes are not acknowledged in time.
func limitSilence(fd uintptr, d time.Duration) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
}
