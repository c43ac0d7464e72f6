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
