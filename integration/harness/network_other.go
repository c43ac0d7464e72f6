//go:build !linux

package harness

import "testing"

// NewNetwork skips the test: there are no network namespaces here.
func NewNetwork(t testing.TB, _ int) *Network {
	t.Helper()
	t.Skip("SKIPPED: network namespaces are Linux's")
	return nil
}

// Command returns the command as it is.
func (n *Network) Command(_ int, argv ...string) []string { return argv }
