package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func restoreCommand(out io.Writer) *cobra.Command {
	var from, data string
	var node int
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Make a data directory of a backup",
		Long: "Make of a backup the data directory of a new cluster with one node. Each file is compared with its\n" +
			"checksum, and the backup is only read. Other nodes join the new one as usual, with empty directories.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if from == "" || node < 1 {
				return usageError{fmt.Errorf("--from is needed, and --node-id is 1 or more")}
			}
			source, err := filepath.Abs(from)
			if err != nil {
				return err
			}
			dir, err := filepath.Abs(data)
			if err != nil {
				return err
			}
			r, err := broker.Restore(vfs.OS(), source, dir, strconv.Itoa(node))
			if err != nil {
				return openError(err)
			}
			for _, name := range r.Damaged {
				fmt.Fprintf(os.Stderr, "trivium: warning: segment %s was damaged or missing when the backup was made: its records are lost\n", name)
			}
			fmt.Fprintf(out, "restored %d files, %d bytes: node %s as of %s\n%s is the directory of node %s, which founds cluster %s\n",
				r.Files, r.Bytes, r.From, r.Begun.Format(time.RFC3339), dir, r.Node, r.Cluster)
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`directory` of the backup")
	cmd.Flags().StringVar(&data, "data", "./data", "data `directory`, new or empty")
	cmd.Flags().IntVar(&node, "node-id", 1, "number of the node")
	return cmd
}
