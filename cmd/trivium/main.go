// Command trivium is a message broker in which AMQP 0-9-1, MQTT and Kafka
// clients share one log, and the tools that go with it.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/cmd/trivium/cli"
)

// Version is set at link time.
var Version = "0.1.0-dev"

// exit codes of every command.
const (
	exitFailed      = 1 // it ran and failed, or was refused
	exitUsage       = 2 // wrong flags, configuration, or surroundings; nothing was started
	exitUnreachable = 3 // there is no node at the address
)

// usageError is an error the user can mend before starting again.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func main() {
	if err := root().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "trivium: "+err.Error())
		os.Exit(exitCode(err))
	}
}

func exitCode(err error) int {
	_, wrong := errors.AsType[usageError](err)
	_, wrongToo := errors.AsType[cli.UsageError](err)
	_, unreachable := errors.AsType[cli.ConnectError](err)
	switch {
	case wrong || wrongToo:
		return exitUsage
	case unreachable:
		return exitUnreachable
	}
	return exitFailed
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "trivium",
		Short:         "AMQP 0-9-1, MQTT and Kafka on one log",
		Version:       Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownCommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	cmd.AddCommand(serveCommand(), configCommand(), benchCommand(), hashCommand(), recoverCommand(os.Stdout), restoreCommand(os.Stdout), versionCommand())
	cmd.AddCommand(cli.Commands(os.Stdin, os.Stdout)...)
	return cmd
}

// versionCommand prints what --version does.
func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s version %s\n", cmd.Root().Name(), Version)
			return err
		},
	}
}

// knownCommand refuses what is no command, and names what may have been meant.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := "`trivium --help` lists them"
	if cmd.SuggestionsMinimumDistance = 2; len(cmd.SuggestionsFor(args[0])) > 0 {
		hint = "did you mean " + strings.Join(cmd.SuggestionsFor(args[0]), " or ") + "?"
	}
	return usageError{fmt.Errorf("unknown command %q; %s", args[0], hint)}
}

// noArgs refuses stray arguments with the usage exit code.
func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}
