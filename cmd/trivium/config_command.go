package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show the configuration",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(configCheckCommand(), configShowCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	var flags config.Flags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "List all that is wrong with the configuration",
		Long: "List all that is wrong with the configuration that `serve` would have with the same\n" +
			"file, environment and flags. It opens no socket and no data directory.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := config.Load(&flags, os.Environ())
			return check(cmd.OutOrStdout(), err)
		},
	}
	flags.Register(cmd.Flags())
	return cmd
}

// check tells what is wrong, one problem a line.
func check(w io.Writer, err error) error {
	problems, ok := errors.AsType[config.Problems](err)
	if !ok {
		_, err := fmt.Fprintln(w, "ok")
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintln(w, p); err != nil {
			return err
		}
	}
	return fmt.Errorf("problems with the configuration: %d", len(problems))
}

func configShowCommand() *cobra.Command {
	var flags config.Flags
	output := "yaml"
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show all settings and where each comes from",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "yaml" && output != "json" {
				return usageError{fmt.Errorf("--output: %q is neither yaml nor json", output)}
			}
			loaded, err := config.Load(&flags, os.Environ())
			if output == "json" {
				return errors.Join(loaded.WriteJSON(cmd.OutOrStdout()), err)
			}
			return errors.Join(loaded.WriteYAML(cmd.OutOrStdout()), err)
		},
	}
	flags.Register(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "yaml or json")
	return cmd
}
