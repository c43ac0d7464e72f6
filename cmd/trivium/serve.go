package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// stopBudget is how long SIGTERM may take, clients and storage together.
const (
	stopBudget  = 9 * time.Second
	drainBudget = 6 * time.Second
)

func serveCommand() *cobra.Command {
	var file string
	flags := map[string]*string{}
	nodeID := 0
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker node",
		Long: "Run a broker node. Without flags it listens on loopback, keeps its data in ./data\n" +
			"and admits guest/guest. `off` as an address turns a listener off.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := defaultConfig()
			if err := c.load(file, cmd, flags, nodeID); err != nil {
				return usageError{err}
			}
			return serve(c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "", "YAML configuration `file`")
	for _, o := range []struct{ name, about string }{
		{"data", "data `directory` (default ./data)"},
		{"amqp", "AMQP `host:port` (default 127.0.0.1:5672)"},
		{"mqtt", "MQTT `host:port` (default 127.0.0.1:1883)"},
		{"kafka", "Kafka `host:port` (default 127.0.0.1:9092)"},
		{"kafka-advertise", "`host:port` told to Kafka clients (default: the address they connected to)"},
		{"http", "HTTP `host:port` (default 127.0.0.1:15672)"},
		{"cluster", "node to node `host:port` (default 127.0.0.1:7420)"},
		{"log-level", "debug, info, warn or error (default info)"},
	} {
		flags[o.name] = f.String(o.name, "", o.about)
	}
	f.IntVar(&nodeID, "node-id", 0, "`number` of this node in its cluster (default 1)")
	return cmd
}

// load applies file, environment and flags in this order and checks the result.
func (c *Config) load(file string, cmd *cobra.Command, flags map[string]*string, nodeID int) error {
	if file != "" {
		if err := c.loadFile(file); err != nil {
			return err
		}
	}
	if err := c.loadEnv(os.Environ()); err != nil {
		return err
	}
	targets := map[string]*string{
		"data": &c.Node.Data, "amqp": &c.AMQP.Listen, "mqtt": &c.MQTT.Listen, "kafka": &c.Kafka.Listen,
		"kafka-advertise": &c.Kafka.Advertise, "http": &c.HTTP.Listen, "cluster": &c.Cluster.Listen, "log-level": &c.Log.Level,
	}
	for name, value := range flags {
		if cmd.Flags().Changed(name) {
			*targets[name] = *value
		}
	}
	if cmd.Flags().Changed("node-id") {
		c.Node.ID = nodeID
	}
	return c.validate()
}

// serve runs a node until a signal or a failure ends it.
func serve(c Config) error {
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := c.logger(os.Stderr)
	memory := limitMemory()
	n, err := openNode(c, log)
	if err != nil {
		return err
	}
	log.Info().Str("version", Version).Int("node", c.Node.ID).Str("data", c.Node.Data).Int64("memory_limit", memory).Any("listeners", n.addresses()).Msg("Server startup complete")
	var failure error
	select {
	case <-signals.Done():
		log.Info().Msg("stopping")
	case failure = <-n.failed:
		log.Error().Err(failure).Msg("stopping after a failure")
	}
	stop() // a second signal ends the process at once
	ctx, cancel := context.WithTimeout(context.Background(), stopBudget)
	defer cancel()
	if err := errors.Join(failure, n.close(ctx)); err != nil {
		return fmt.Errorf("stopped: %s", oneLine(err))
	}
	log.Info().Msg("stopped")
	return nil
}
