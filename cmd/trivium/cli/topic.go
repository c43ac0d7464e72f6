package cli

import (
	"encoding/json"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) topicCommand() *cobra.Command {
	var partitions int
	var retention string
	create := a.verb("create NAME", "Make a topic", 1, 1, func(c *client, args []string) error {
		body := map[string]any{"partitions": partitions}
		switch retention {
		case "":
		case "forever":
			body["retention_ms"] = -1
		default:
			d, err := time.ParseDuration(retention)
			if err != nil || d < 0 {
				return usage("--retention is a time such as 36h, 0 or forever, not %q", retention)
			}
			body["retention_ms"] = d.Milliseconds()
		}
		return c.put(a.within("topics", args[0]), body)
	})
	create.Flags().IntVar(&partitions, "partitions", 1, "number of partitions")
	create.Flags().StringVar(&retention, "retention", "", "`time` that settled records stay, 0 for not at all, or forever (default 168h)")
	remove := a.verb("delete NAME", "Delete a topic", 1, 1, func(c *client, args []string) error {
		return c.remove(a.within("topics", args[0]))
	})
	return noun("topic", "Topics", a.lister("List topics", "topics", true,
		column{"tenant", "vhost"}, column{"name", "name"}, column{"kind", "kind"}, column{"partitions", "partitions"},
		column{"durable", "durable"}, column{"queue", "queue"}, column{"groups", "groups"}, column{"retention-ms", "retention_ms"},
	), create, remove, a.describer("describe NAME", "Show a topic with its partitions", "topics"))
}

// describer makes a command that shows one resource.
func (a *app) describer(use, short, kind string) *cobra.Command {
	return a.verb(use, short, 1, 1, func(c *client, args []string) error {
		var row json.RawMessage
		if err := c.get(a.within(kind, args[0]), &row); err != nil {
			return err
		}
		return a.printOne(row)
	})
}

func (a *app) groupCommand() *cobra.Command {
	return noun("group", "Groups of consumers: queues, share groups, sessions and log readers", a.lister("List groups", "groups", true,
		column{"tenant", "vhost"}, column{"name", "name"}, column{"kind", "kind"}, column{"topic", "topic"}, column{"members", "members"},
		column{"ready", "messages_ready"}, column{"unacked", "messages_unacknowledged"},
	), a.describer("describe NAME", "Show how far a group has come in each partition", "groups"),
		a.verb("rewind NAME TO", "Go on from another place: start, end, an offset, or a time such as 2026-01-31T12:00:00Z", 2, 2,
			func(c *client, args []string) error {
				return c.post(a.within("groups", args[0])+"/rewind", map[string]string{"to": args[1]})
			}))
}
