package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/cmd/trivium/bench"
)

func benchCommand() *cobra.Command {
	o := bench.Options{}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "bench SCENARIO",
		Short: "Load a broker and measure it",
		Long: "Load a broker, ours or another, and measure it.\n\nScenarios:\n  " + strings.Join(bench.Names(), "\n  ") +
			"\n\nThe queue or topic named by --name is deleted and made anew.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("bench takes one scenario; see --help")}
			}
			if o.Name == "" {
				o.Name = "trivium-bench-" + args[0]
			}
			if o.Target == "" {
				o.Target = defaultTarget(args[0])
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			res, err := bench.Run(ctx, args[0], o)
			if err != nil {
				return err
			}
			if asJSON {
				return res.JSON(os.Stdout)
			}
			res.Text(os.Stdout)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Target, "target", "", "broker's host:port (default: the protocol's port on 127.0.0.1; AMQP for mixed)")
	f.StringVar(&o.Target2, "mqtt-target", "127.0.0.1:1883", "MQTT host:port for mixed")
	f.StringVar(&o.User, "user", "", "user (AMQP default guest; MQTT default none)")
	f.StringVar(&o.Password, "password", "", "password")
	f.IntVar(&o.Size, "size", 100, "payload `bytes`")
	f.DurationVar(&o.Duration, "duration", 10*time.Second, "how long to publish")
	f.IntVar(&o.Messages, "messages", 0, "publish this many messages instead of for a time")
	f.IntVar(&o.Publishers, "publishers", 1, "publishing connections")
	f.IntVar(&o.Outstanding, "outstanding", 1000, "unconfirmed messages a publisher may have")
	f.IntVar(&o.Prefetch, "prefetch", 1000, "unsettled messages a consumer may have")
	f.IntVar(&o.Rate, "rate", 0, "messages a second in all, 0 = as fast as possible")
	f.StringVar(&o.QueueType, "queue-type", "quorum", "AMQP x-queue-type; empty sends none")
	f.StringVar(&o.Name, "name", "", "queue or topic to use (default trivium-bench-SCENARIO)")
	f.IntVar(&o.Partitions, "partitions", 1, "partitions of the Kafka topic")
	f.IntVar(&o.Batch, "batch", 0, "most messages in one write, 0 = as many as fit 64 KiB (1 = a client that flushes every publish)")
	f.IntVar(&o.PID, "pid", 0, "broker process whose CPU time is measured")
	f.BoolVar(&asJSON, "json", false, "print one line of JSON")
	return cmd
}

func defaultTarget(scenario string) string {
	switch {
	case strings.HasPrefix(scenario, "kafka"):
		return "127.0.0.1:9092"
	case strings.HasPrefix(scenario, "mqtt"):
		return "127.0.0.1:1883"
	default:
		return "127.0.0.1:5672"
	}
}
