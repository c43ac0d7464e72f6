package cluster

import (
	"os"
	"runtime"

	"github.com/rs/zerolog"
)

// testLog is silent unless CLUSTER_TEST_LOG is set.
func testLog(node string) zerolog.Logger {
	if os.Getenv("CLUSTER_TEST_LOG") == "" {
		return zerolog.Nop()
	}
	return zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true, TimeFormat: "05.000"}).With().Timestamp().Str("self", node).Logger()
}

// dumpStacks tells where everybody waits, if CLUSTER_TEST_LOG is set.
func dumpStacks() {
	if os.Getenv("CLUSTER_TEST_LOG") != "" {
		b := make([]byte, 4<<20)
		_, _ = os.Stderr.Write(b[:runtime.Stack(b, true)])
	}
}
