package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func (a *app) definitionsCommand() *cobra.Command {
	at := func() string {
		if a.tenant != "" {
			return a.within("definitions")
		}
		return "definitions"
	}
	export := a.verb("export [FILE]", "Write users, tenants, permissions, queues, exchanges, bindings and policies", 0, 1, func(c *client, args []string) error {
		var all json.RawMessage
		if err := c.get(at(), &all); err != nil {
			return err
		}
		if len(args) == 0 {
			if a.format == "table" {
				return a.printJSON(all)
			}
			return a.printOne(all)
		}
		if err := os.WriteFile(args[0], append(all, '\n'), 0o600); err != nil { // it holds password hashes
			return fmt.Errorf("write the definitions: %w", err)
		}
		return nil
	})
	restore := a.verb("import FILE", "Make what an export of Trivium or RabbitMQ holds; - is standard input", 1, 1, func(c *client, args []string) error {
		var raw []byte
		var err error
		if args[0] == "-" {
			raw, err = io.ReadAll(a.in)
		} else {
			raw, err = os.ReadFile(args[0])
		}
		if err != nil {
			return UsageError{fmt.Errorf("read the definitions: %w", err)}
		}
		if !json.Valid(raw) {
			return usage("%s is not JSON", args[0])
		}
		return c.post(at(), raw)
	})
	return noun("definitions", "Everything that was declared", export, restore)
}
