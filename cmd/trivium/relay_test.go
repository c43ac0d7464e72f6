package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestStalledClientsAreGivenUp: a client that takes nothing is given up after a while, one
// that is slow is not.
func TestStalledClientsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, client := net.Pipe()
		defer client.Close()
		p := patient{here, 50 * time.Millisecond}
		slow := make(chan error, 1)
		go func() {
			var one [1]byte
			for range 8 {
				select { // slower than all at once, faster than nothing
				case <-time.After(10 * time.Millisecond):
				case <-t.Context().Done():
				}
				if _, err := io.ReadFull(client, one[:]); err != nil {
					slow <- err
					return
				}
			}
			slow <- nil
		}()
		if n, err := p.Write(make([]byte, 8)); n != 8 || err != nil {
			t.Errorf("a slow client got %d bytes: %v", n, err)
		}
		if err := <-slow; err != nil {
			t.Error(err)
		}
		if n, err := p.Write(make([]byte, 8)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a client that reads nothing got %d bytes: %v", n, err)
		}
	})
}
