package cli

import (
	"net/http"

	"github.com/spf13/cobra"
)

func (a *app) connectionCommand() *cobra.Command {
	var reason string
	end := a.verb("close NAME", "Close a client's connection", 1, 1, func(c *client, args []string) error {
		header := http.Header{}
		if reason != "" {
			header.Set("X-Reason", reason)
		}
		return c.do(http.MethodDelete, path("connections", args[0]), nil, nil, header)
	})
	end.Flags().StringVar(&reason, "reason", "", "what the client is told")
	return noun("connection", "Connections of clients", a.lister("List connections", "connections", false,
		column{"name", "name"}, column{"protocol", "protocol"}, column{"user", "user"}, column{"tenant", "vhost"},
		column{"client", "client_id"}, column{"channels", "channels"}, column{"consumers", "consumer_count"}, column{"state", "state"},
	), end)
}

func (a *app) channelCommand() *cobra.Command {
	return noun("channel", "Channels of connections", a.lister("List channels", "channels", false,
		column{"name", "name"}, column{"user", "user"}, column{"tenant", "vhost"}, column{"consumers", "consumer_count"},
		column{"unacked", "messages_unacknowledged"}, column{"prefetch", "prefetch_count"}, column{"confirm", "confirm"},
	))
}

func (a *app) consumerCommand() *cobra.Command {
	return noun("consumer", "Consumers", a.lister("List consumers", "consumers", true,
		column{"tenant", "queue.vhost"}, column{"queue", "queue.name"}, column{"tag", "consumer_tag"},
		column{"connection", "channel_details.connection_name"}, column{"user", "channel_details.user"}, column{"acks", "ack_required"},
		column{"prefetch", "prefetch_count"},
	))
}

func (a *app) nodeCommand() *cobra.Command {
	return noun("node", "Nodes of the cluster", a.lister("List nodes", "nodes", false,
		column{"name", "name"}, column{"running", "running"}, column{"uptime-ms", "uptime"}, column{"memory", "mem_used"},
		column{"connections", "sockets_used"},
	))
}
