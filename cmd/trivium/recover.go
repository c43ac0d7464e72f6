package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func recoverCommand(out io.Writer) *cobra.Command {
	var data string
	var node int
	var check, accept bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Find damage in the data directory of a stopped node, and make it start again",
		Long: "Find damage in the data directory of a stopped node and tell what is lost by it.\n" +
			"With --accept-loss the directory is made one that a node starts on: what is whole stays,\n" +
			"what is damaged is moved to lost+TIME in it, beside a report.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if check == accept {
				return usageError{fmt.Errorf("one of --check and --accept-loss is needed")}
			}
			dir, err := filepath.Abs(data)
			if err != nil {
				return err
			}
			found, err := broker.Recover(vfs.OS(), dir, strconv.Itoa(node), accept, time.Now())
			for _, f := range found.Damage {
				lost := f.Lost
				if lost == "" {
					lost = "nothing"
				}
				fmt.Fprintf(out, "%s\n  damage: %s\n  lost:   %s\n", f.File, f.What, lost)
			}
			switch {
			case err != nil:
				return openError(err)
			case len(found.Damage) == 0:
				fmt.Fprintln(out, "no damage found")
			default:
				fmt.Fprintf(out, "the directory can be started on; what was damaged is in %s\n", found.Aside)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&data, "data", "./data", "data `directory`")
	cmd.Flags().IntVar(&node, "node-id", 1, "number of the node, if its file is lost")
	cmd.Flags().BoolVar(&check, "check", false, "only tell; exit code 1 if there is damage")
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "give up what is damaged")
	return cmd
}
