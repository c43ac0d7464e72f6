package raftgroup

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

// TestOrdinaryOperationIsNoWarning: nodes that join, stop and take over leave neither
// warnings nor errors of the library; what is serious stays so, whatever the level that is logged.
func TestOrdinaryOperationIsNoWarning(t *testing.T) {
	down := errors.New("connection refused")
	for _, tc := range []struct {
		severe bool
		msg    string
		err    error
		want   string
	}{
		{true, "failed to heartbeat to", down, "info"},
		{true, "failed to appendEntries to", down, "info"},
		{false, "heartbeat timeout reached, starting election", nil, "info"},
		{false, "appendEntries rejected, sending older logs", nil, "debug"},
		{false, "failed to get previous log", raft.ErrLogNotFound, "debug"},
		{false, "failed to get previous log", errors.New("input/output error"), "warn"},
		{false, "failed to contact quorum of nodes, stepping down", nil, "warn"},
		{false, "Election timeout reached, restarting election", nil, "warn"},
		{true, "failed to commit logs", down, "error"},
	} {
		var out bytes.Buffer
		l := newLogger(zerolog.New(&out))
		args := []any{"error", tc.err}
		if tc.err == nil {
			args = nil
		}
		if tc.severe {
			l.Error(tc.msg, args...)
		} else {
			l.Warn(tc.msg, args...)
		}
		if got := out.String(); !strings.Contains(got, `"level":"`+tc.want+`"`) || !strings.Contains(got, tc.msg) {
			t.Errorf("%s (%v): %s, want %s", tc.msg, tc.err, got, tc.want)
		}
		out.Reset()
		l = newLogger(zerolog.New(&out).Level(zerolog.WarnLevel))
		if l.Warn(tc.msg, args...); (out.Len() == 0) != (tc.want == "info" || tc.want == "debug") {
			t.Errorf("%s at level warn: %q", tc.msg, &out)
		}
	}
}
