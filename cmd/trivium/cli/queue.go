package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) queueCommand() *cobra.Command {
	return noun("queue", "Queues", a.lister("List queues and share groups", "queues", true,
		column{"tenant", "vhost"}, column{"name", "name"}, column{"type", "type"}, column{"durable", "durable"},
		column{"ready", "messages_ready"}, column{"unacked", "messages_unacknowledged"}, column{"consumers", "consumers"},
		column{"policy", "policy"}, column{"arguments", "arguments"},
	), a.declareQueue(), a.deleteQueue(), a.purgeQueue())
}

func (a *app) declareQueue() *cobra.Command {
	var durable, autoDelete bool
	var kind string
	var pairs []string
	cmd := a.verb("declare NAME", "Make a queue, or check that it is as described", 1, 1, func(c *client, args []string) error {
		values, err := arguments(pairs)
		if err != nil {
			return err
		}
		if kind != "" {
			values["x-queue-type"] = kind
		}
		return c.put(a.within("queues", args[0]), map[string]any{"durable": durable, "auto_delete": autoDelete, "arguments": values})
	})
	f := cmd.Flags()
	f.BoolVar(&durable, "durable", true, "it outlives restarts")
	f.BoolVar(&autoDelete, "auto-delete", false, "it goes with its last consumer")
	f.StringVar(&kind, "type", "", "classic, quorum or stream")
	f.StringArrayVar(&pairs, "argument", nil, "`NAME=VALUE`, such as x-message-ttl=60000; may be repeated")
	return cmd
}

func (a *app) deleteQueue() *cobra.Command {
	var unused, empty bool
	cmd := a.verb("delete NAME", "Delete a queue", 1, 1, func(c *client, args []string) error {
		var q []string
		if unused {
			q = append(q, "if-unused=true")
		}
		if empty {
			q = append(q, "if-empty=true")
		}
		at := a.within("queues", args[0])
		if len(q) > 0 {
			at += "?" + strings.Join(q, "&")
		}
		return c.remove(at)
	})
	cmd.Flags().BoolVar(&unused, "if-unused", false, "only if it has no consumers")
	cmd.Flags().BoolVar(&empty, "if-empty", false, "only if it has no messages")
	return cmd
}

func (a *app) purgeQueue() *cobra.Command {
	return a.verb("purge NAME", "Drop a queue's messages that nobody holds", 1, 1, func(c *client, args []string) error {
		return c.remove(a.within("queues", args[0]) + "/contents")
	})
}

func (a *app) exchangeCommand() *cobra.Command {
	var kind string
	var durable, autoDelete, internal, unused bool
	var pairs []string
	declare := a.verb("declare NAME", "Make an exchange, or check that it is as described", 1, 1, func(c *client, args []string) error {
		values, err := arguments(pairs)
		if err != nil {
			return err
		}
		return c.put(a.within("exchanges", args[0]), map[string]any{
			"type": kind, "durable": durable, "auto_delete": autoDelete, "internal": internal, "arguments": values,
		})
	})
	f := declare.Flags()
	f.StringVar(&kind, "type", "direct", "direct, fanout, topic, headers, ...")
	f.BoolVar(&durable, "durable", true, "it outlives restarts")
	f.BoolVar(&autoDelete, "auto-delete", false, "it goes with its last binding")
	f.BoolVar(&internal, "internal", false, "only exchanges may publish to it")
	f.StringArrayVar(&pairs, "argument", nil, "`NAME=VALUE`, such as alternate-exchange=rest; may be repeated")
	remove := a.verb("delete NAME", "Delete an exchange with its bindings", 1, 1, func(c *client, args []string) error {
		at := a.within("exchanges", args[0])
		if unused {
			at += "?if-unused=true"
		}
		return c.remove(at)
	})
	remove.Flags().BoolVar(&unused, "if-unused", false, "only if it has no bindings")
	return noun("exchange", "Exchanges", a.lister("List exchanges", "exchanges", true,
		column{"tenant", "vhost"}, column{"name", "name"}, column{"type", "type"}, column{"durable", "durable"},
		column{"auto-delete", "auto_delete"}, column{"internal", "internal"}, column{"arguments", "arguments"},
	), declare, remove)
}

func (a *app) bindingCommand() *cobra.Command {
	var key, propertiesKey string
	var toExchange bool
	var pairs []string
	between := func(args []string) string {
		kind := "q"
		if toExchange {
			kind = "e"
		}
		return a.within("bindings", "e", args[0], kind, args[1])
	}
	create := a.verb("create EXCHANGE QUEUE", "Bind a queue, or an exchange, to an exchange", 2, 2, func(c *client, args []string) error {
		values, err := arguments(pairs)
		if err != nil {
			return err
		}
		return c.post(between(args), map[string]any{"routing_key": key, "arguments": values})
	})
	create.Flags().StringArrayVar(&pairs, "argument", nil, "`NAME=VALUE`; may be repeated")
	remove := a.verb("delete EXCHANGE QUEUE", "Remove a binding", 2, 2, func(c *client, args []string) error {
		at := between(args)
		if propertiesKey == "" {
			var err error
			if propertiesKey, err = c.bindingOf(at, key); err != nil {
				return err
			}
		}
		return c.remove(at + "/" + path(propertiesKey))
	})
	remove.Flags().StringVar(&propertiesKey, "properties-key", "", "the one of several with the same key, as listed")
	for _, cmd := range []*cobra.Command{create, remove} {
		cmd.Flags().StringVar(&key, "key", "", "routing `key`")
		cmd.Flags().BoolVar(&toExchange, "to-exchange", false, "the second name is an exchange")
	}
	return noun("binding", "Bindings", a.lister("List bindings", "bindings", true,
		column{"tenant", "vhost"}, column{"source", "source"}, column{"destination", "destination"}, column{"to", "destination_type"},
		column{"key", "routing_key"}, column{"properties-key", "properties_key"}, column{"arguments", "arguments"},
	), create, remove)
}

// bindingOf finds the one binding with a key.
func (c *client) bindingOf(at, key string) (string, error) {
	var found []struct {
		Key           string `json:"routing_key"`
		PropertiesKey string `json:"properties_key"`
	}
	if err := c.get(at, &found); err != nil {
		return "", err
	}
	var keys []string
	for _, b := range found {
		if b.Key == key {
			keys = append(keys, b.PropertiesKey)
		}
	}
	switch len(keys) {
	case 0:
		return "", fmt.Errorf("there is no binding with key %q", key)
	case 1:
		return keys[0], nil
	}
	return "", fmt.Errorf("%d bindings have key %q; --properties-key says which: %s", len(keys), key, strings.Join(keys, " "))
}
