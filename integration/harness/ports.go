package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// Ports of nodes are below those that the system gives to connections: a node that is
// down for a moment finds its own free when it comes back.
const (
	firstPort = 10000
	lastPort  = 32000
)

// reserved are the ports that this process has got. It keeps a lock on a file for each
// until it ends: other test processes run beside it, and what a port is for may not be
// listening yet, or not just now.
var reserved struct {
	sync.Mutex
	locks []*os.File
}

// freeAddress returns a loopback address that no other test gets while this process
// runs.
func freeAddress() (string, error) {
	reserved.Lock()
	defer reserved.Unlock()
	dir := filepath.Join(os.TempDir(), fmt.Sprint("trivium-test-ports-", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("reserve a port: %w", err)
	}
	for range 1000 {
		port := strconv.Itoa(firstPort + rand.IntN(lastPort-firstPort))
		lock, err := os.OpenFile(filepath.Join(dir, port), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return "", fmt.Errorf("reserve a port: %w", err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !unused(port) {
			_ = lock.Close()
			continue
		}
		reserved.locks = append(reserved.locks, lock)
		return "127.0.0.1:" + port, nil
	}
	return "", fmt.Errorf("no free port from %d to %d", firstPort, lastPort)
}

// unused reports whether nobody listens there.
func unused(port string) bool {
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// FreeAddress is a loopback address for a program that is no broker.
func FreeAddress() (string, error) { return freeAddress() }
