package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/cmd/trivium/config"
)

// backupRate is how fast a backup reads at most, in bytes a second, unless said otherwise.
const backupRate = 32 << 20

func (a *app) backupCommand() *cobra.Command {
	var to string
	rate := config.Bytes(backupRate)
	cmd := a.verb("backup", "Make a backup of a node while it runs", 0, 0, func(c *client, _ []string) error {
		if !filepath.IsAbs(to) {
			return usage("--to %q is to be an absolute path: it is on the node's machine", to)
		}
		var raw json.RawMessage
		c.http.Timeout = 0 // it takes as long as it takes
		body := map[string]any{"directory": to, "rate": int64(rate)}
		if err := c.do(http.MethodPost, "backup", body, &raw, nil); err != nil {
			return err
		}
		var b struct {
			Directory, Node string
			Files           int
			Bytes           int64
			Linked          int64 `json:"linked_bytes"`
			Seconds         float64
			Damaged         []string
		}
		if err := json.Unmarshal(raw, &b); err != nil {
			return fmt.Errorf("the answer is not that of a node: %w", err)
		}
		for _, name := range b.Damaged {
			fmt.Fprintf(os.Stderr, "trivium: warning: segment %s was damaged or missing already, and is so in the backup\n", cell(name))
		}
		if a.format != "table" {
			return a.printOne(raw)
		}
		fmt.Fprintf(a.out, "node %s: %d files, %d bytes (%d of them linked) in %s, %.1f s\n", cell(b.Node), b.Files, b.Bytes, b.Linked, cell(b.Directory), b.Seconds)
		return nil
	})
	cmd.Long = "Make a backup of a node while it runs: a directory on the node's machine, new or empty, from which\n" +
		"`trivium restore` makes a data directory. All that was confirmed before is in it. On the volume of the\n" +
		"data directory files are linked where that is possible: such a backup shares the fate of the disk."
	cmd.Flags().StringVar(&to, "to", "", "`directory` on the node's machine, new or empty, absolute")
	cmd.Flags().TextVar(&rate, "rate", rate, "`bytes` that are read in a second at most, such as 32MiB; 0 = no limit")
	return cmd
}
