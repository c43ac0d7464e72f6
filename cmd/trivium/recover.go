package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/vfs"
)

func recoverCommand(out io.Writer) *cobra.Command {
	var data string
	var node int
	var check, accept, alone, yes bool
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Find damage in the data directory of a stopped node, and make it start again",
		Long: "Find damage in the data directory of a stopped node and tell what is lost by it.\n" +
			"With --accept-loss the directory is made one that a node starts on: what is whole stays,\n" +
			"what is damaged is moved to lost+TIME in it, beside a report.\n" +
			"With --alone the node of a cluster whose majority is lost for ever becomes the only one of a new\n" +
			"cluster, with all that it has; what only the others had is lost. Needs --yes.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if check && (accept || alone) || !check && !accept && !alone {
				return usageError{fmt.Errorf("one of --check, --accept-loss and --alone is needed; --alone and --accept-loss go together")}
			}
			dir, err := filepath.Abs(data)
			if err != nil {
				return err
			}
			if err := dataDirectory(dir); err != nil {
				return err
			}
			if alone {
				return recoverAlone(out, dir, accept, yes)
			}
			found, err := broker.Recover(vfs.OS(), dir, strconv.Itoa(node), accept, time.Now())
			printFindings(out, found.Damage)
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
	cmd.Flags().BoolVar(&alone, "alone", false, "go on without the other nodes of the cluster, which are lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "with --alone: the others will never come back, and what only they had is given up")
	return cmd
}

// dataDirectory refuses a directory in which no node has ever been: all of one would
// seem to be lost there, and giving that up would make a directory of it.
func dataDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return usageError{fmt.Errorf("--data: %w", err)}
	}
	for _, e := range entries {
		switch e.Name() {
		case "node.json", "wal", "catalog", "placement-1", "kv":
			return nil
		}
	}
	return usageError{fmt.Errorf("--data %s is not the data directory of a node: nothing of one is in it", dir)}
}

func printFindings(out io.Writer, list []broker.Finding) {
	for _, f := range list {
		lost := f.Lost
		if lost == "" {
			lost = "nothing"
		}
		fmt.Fprintf(out, "%s\n  damage: %s\n  lost:   %s\n", f.File, f.What, lost)
	}
}

// recoverAlone makes the node of a directory the only one of a new cluster.
func recoverAlone(out io.Writer, dir string, accept, yes bool) error {
	if !yes {
		return usageError{fmt.Errorf("--alone gives up what the other nodes have confirmed and this one lacks, and never lets them back; " +
			"if a majority of the nodes that vote can still be started, start them instead. Add --yes if not")}
	}
	r, err := broker.RecoverAlone(vfs.OS(), dir, accept, time.Now())
	printFindings(out, r.Damage)
	if r.Aside != "" {
		fmt.Fprintf(out, "what was damaged is in %s\n", r.Aside)
	}
	if err != nil {
		return openError(err)
	}
	printFindings(out, r.Lacks)
	fmt.Fprintf(out, "node %s is the only one of a new cluster, %s; it was in %s with %s\n", r.Node, r.Cluster, r.Former, strings.Join(r.Others, ", "))
	fmt.Fprintf(out, "it has the catalog up to entry %d of the log, and messages and sessions up to entry %d\n", r.Catalog, r.Messages)
	fmt.Fprintln(out, "What the others had confirmed after these entries is lost. What was under way when the cluster was lost may be there although nobody had it confirmed.")
	fmt.Fprintln(out, "The others must never be started again on their directories: they would be another cluster with the same messages. New nodes join this one with empty directories.")
	return nil
}
