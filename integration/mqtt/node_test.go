// Package mqtt tests the MQTT front-end from outside: real clients and raw
// bytes over real sockets, the real binary.
package mqtt

import (
	"os"
	"testing"

	"github.com/trivium-mq/trivium/integration/harness"
)

// shared is the node that most tests use together, with names of their own.
var shared harness.Addresses

func TestMain(m *testing.M) { os.Exit(harness.Shared(m, &shared)) }

var (
	must = harness.Must
	name = harness.Name
)
