// Command scale measures what a broker takes that keeps much: memory, open
// files, CPU time and restarts with large backlogs, many queues, many
// connections, many retained messages and sessions. It runs the real binary in a
// directory of its own.
//
//	go run ./integration/bench/scale -bin bin/trivium [-messages N] [SCENARIO...]
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

// options are the sizes of the scenarios.
type options struct {
	bin      string
	dir      string
	messages int
	queues   int
	idle     int
	retained int
	sessions int
}

// scenarios in the order in which they are run.
var scenarios = []struct {
	name string
	run  func(*options) error
}{
	{"amqp-backlog", amqpBacklog},
	{"mqtt-backlog", mqttBacklog},
	{"kafka-backlog", kafkaBacklog},
	{"queues", manyQueues},
	{"idle", idleConnections},
	{"retained", manyRetained},
	{"checkpoint", checkpoints},
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/trivium", "the broker's program")
	flag.StringVar(&o.dir, "dir", os.TempDir(), "where the data directories are made")
	flag.IntVar(&o.messages, "messages", 5_000_000, "messages of a backlog")
	flag.IntVar(&o.queues, "queues", 10_000, "durable queues")
	flag.IntVar(&o.idle, "idle", 15_000, "idle MQTT connections")
	flag.IntVar(&o.retained, "retained", 1_000_000, "retained messages")
	flag.IntVar(&o.sessions, "sessions", 10_000, "sessions, of ten subscriptions each")
	flag.Parse()
	failed := false
	for _, s := range scenarios {
		if flag.NArg() > 0 && !slices.Contains(flag.Args(), s.name) {
			continue
		}
		fmt.Printf("== %s\n", s.name)
		if err := s.run(&o); err != nil {
			fmt.Printf("FAILED: %s\n", strings.TrimSpace(err.Error()))
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

// say prints one measured figure.
func say(what, format string, args ...any) {
	fmt.Printf("%-44s %s\n", what, fmt.Sprintf(format, args...))
}
