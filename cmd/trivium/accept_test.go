package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/listener"
)

func TestConnectionBudget(t *testing.T) {
	for files, want := range map[uint64]int{0: 0, 50: 1, 256: 192, 1024: 922, 1 << 20: 943719, 1<<64 - 1: 0} {
		if got := connectionBudget(files); got != want {
			t.Errorf("%d files: %d connections, want %d", files, got, want)
		}
	}
	if files := openFiles(); files != 0 && connectionBudget(files) >= int(min(files, 1<<40)) {
		t.Errorf("nothing is left of %d files", files)
	}
}

// TestSharesOfConnections: one address without a login gets a quarter at most,
// and HTTP keeps places that the others cannot take.
func TestSharesOfConnections(t *testing.T) {
	for _, c := range []struct {
		node, unknown int
		want          shares
	}{
		{0, 1000, shares{0, 0, 1000}}, {0, 0, shares{}}, {922, 1000, shares{922, 858, 230}}, {236, 1000, shares{236, 207, 59}},
		{100_000, 1000, shares{100_000, 99_936, 1000}}, {236, 10, shares{236, 207, 10}}, {236, 0, shares{236, 207, 0}}, {1, 1000, shares{1, 1, 1}},
	} {
		if got := shareOut(c.node, c.unknown); got != c.want {
			t.Errorf("%d connections, %d of one address: %+v, want %+v", c.node, c.unknown, got, c.want)
		}
	}
}

// TestAcceptLog: each kind of refusal is told, and then counted for a while.
func TestAcceptLog(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(0, 0)
	a := newAcceptLog(zerolog.New(&out))
	a.now = func() time.Time { return now }
	for range 10 {
		a.report(fmt.Errorf("peer: %w", listener.ErrBudget))
		a.report(errors.New("accept"))
	}
	if got := strings.Count(out.String(), "\n"); got != 2 {
		t.Errorf("%d lines: %s", got, &out)
	}
	now = now.Add(acceptEvery)
	out.Reset()
	a.report(fmt.Errorf("peer: %w", listener.ErrBudget))
	if !strings.Contains(out.String(), `"untold":9`) {
		t.Errorf("told %s", &out)
	}
}
