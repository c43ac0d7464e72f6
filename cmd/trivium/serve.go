package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
)

// storeTime is how long the storage may take to stop once the clients are gone.
const storeTime = 3 * time.Second

func serveCommand() *cobra.Command {
	var flags config.Flags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a broker node",
		Long: "Run a broker node. Without flags it listens on loopback, keeps its data in ./data\n" +
			"and admits guest/guest. `off` as an address turns a listener off.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := config.Load(&flags, os.Environ())
			if problems, ok := errors.AsType[config.Problems](err); ok {
				if err := problems.Serious(); err != nil {
					return usageError{err}
				}
			}
			return serve(&loaded.Config)
		},
	}
	flags.Register(cmd.Flags())
	return cmd
}

// serve runs a node until a signal or a failure ends it.
func serve(c *config.Config) error {
	signals, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(signals, stop) // a second signal ends the process at once, also while the node opens
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	log := c.Log.Logger(os.Stderr)
	memory := limitMemory(int64(c.Memory.Limit))
	n, err := openNode(signals, c, memory, log)
	if err != nil && signals.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info().Msg("stopped before the node was open")
		return nil
	}
	if err != nil {
		return err
	}
	log.Info().Str("version", Version).Int("node", c.Node.ID).Str("data", c.Node.Data).Int64("memory_limit", memory).Any("listeners", n.addresses()).Msg("Server startup complete")
	var failure error
	for running := true; running; {
		select {
		case <-signals.Done():
			log.Info().Msg("stopping")
			running = false
		case failure = <-n.failed:
			log.Error().Err(failure).Msg("stopping after a failure")
			running = false
		case <-hangups:
			n.reload()
		}
	}
	stop() // after a failure the first one does
	ctx, cancel := context.WithTimeout(context.Background(), c.Node.DrainTimeout+storeTime)
	defer cancel()
	if err := errors.Join(failure, n.close(ctx)); err != nil {
		stopped := fmt.Errorf("stopped: %s", oneLine(err))
		if n.replicas.Refused() != nil {
			return usageError{stopped} // as when it had been refused at its start
		}
		return stopped
	}
	log.Info().Msg("stopped")
	return nil
}

// oneLine joins the lines of an error, since what the process says at its end
// is one line.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
