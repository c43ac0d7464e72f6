package main

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestDialsAreFew: of many clients at a time only some are asked for at the node that
// serves, the others wait their turn, and those that it does not take ask less and less.
func TestDialsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e exchange
		e.init()
		asking, most := make(chan struct{}, 1000), 0
		done := make(chan error)
		for range 200 {
			go func() {
				_, err := e.dial(t.Context(), func() (net.Conn, error) {
					asking <- struct{}{}
					<-time.After(time.Second)
					<-asking
					return nil, nil
				})
				done <- err
			}()
		}
		for range 5 {
			synctest.Wait()
			most = max(most, len(asking))
			for range min(edgeDials, 200) {
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(2 * time.Second):
				}
			}
		}
		if most != edgeDials {
			t.Errorf("%d at a time", most)
		}
	})
	var e exchange
	e.init()
	for range edgeDials {
		e.dials <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.dial(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if retryPause(1) != edgeRetry || retryPause(2) != 2*edgeRetry || retryPause(100) != edgeRetryMax {
		t.Error(retryPause(1), retryPause(2), retryPause(100))
	}
}
