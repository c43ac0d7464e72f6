package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) userCommand() *cobra.Command {
	var tags []string
	add := a.verb("add NAME [PASSWORD]", "Make a user; the password may also come on standard input", 1, 2, func(c *client, args []string) error {
		if err := c.get(path("users", args[0]), nil); err == nil {
			return fmt.Errorf("user %q exists", args[0])
		} else if !missing(err) {
			return err
		}
		password, err := a.secret(args)
		if err != nil {
			return err
		}
		return c.put(path("users", args[0]), map[string]any{"password": password, "tags": tags})
	})
	add.Flags().StringSliceVar(&tags, "tags", []string{}, "administrator, monitoring, policymaker, management, or others, with commas")
	return noun("user", "Users", a.lister("List users", "users", false, column{"name", "name"}, column{"tags", "tags"}),
		add, a.deleteUser(), a.userPassword(), a.userTags())
}

func (a *app) deleteUser() *cobra.Command {
	return a.verb("delete NAME", "Delete a user and close his connections", 1, 1, func(c *client, args []string) error {
		return c.remove(path("users", args[0]))
	})
}

func (a *app) userPassword() *cobra.Command {
	return a.verb("password NAME [PASSWORD]", "Change a user's password; it may also come on standard input", 1, 2, func(c *client, args []string) error {
		var u struct {
			Tags []string `json:"tags"`
		}
		if err := c.get(path("users", args[0]), &u); err != nil {
			return err
		}
		password, err := a.secret(args)
		if err != nil {
			return err
		}
		return c.put(path("users", args[0]), map[string]any{"password": password, "tags": u.Tags})
	})
}

func (a *app) userTags() *cobra.Command {
	const many = 100
	return a.verb("tags NAME [TAG...]", "Replace a user's tags", 1, many, func(c *client, args []string) error {
		if err := c.get(path("users", args[0]), nil); err != nil {
			return err
		}
		return c.put(path("users", args[0]), map[string]any{"tags": args[1:], "keep_password": true})
	})
}

// secret is the password among the arguments, or else the first line of the
// input.
func (a *app) secret(args []string) (string, error) {
	if len(args) > 1 && args[1] == "" {
		return "", usage("the password is empty")
	}
	if len(args) > 1 {
		return args[1], nil
	}
	line, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the password: %w", err)
	}
	if line = strings.TrimRight(line, "\r\n"); line == "" {
		return "", usage("the password is empty")
	}
	return line, nil
}

func (a *app) tenantCommand() *cobra.Command {
	var about string
	add := a.verb("add NAME", "Make a tenant, in which you have all permissions", 1, 1, func(c *client, args []string) error {
		return c.put(path("vhosts", args[0]), map[string]any{"description": about})
	})
	add.Flags().StringVar(&about, "description", "", "what it is for")
	var yes bool
	remove := a.verb("delete NAME", "Delete a tenant with everything in it", 1, 1, func(c *client, args []string) error {
		if args[0] == defaultTenant && !yes {
			return usage("tenant %q is the one of all clients that name none; with --yes it is deleted with everything in it", args[0])
		}
		return c.remove(path("vhosts", args[0]))
	})
	remove.Flags().BoolVar(&yes, "yes", false, "also the default tenant "+defaultTenant)
	cmd := noun("tenant", "Tenants (virtual hosts)", a.lister("List tenants", "vhosts", false,
		column{"name", "name"}, column{"description", "description"}, column{"tags", "tags"},
	), add, remove)
	cmd.Aliases = []string{"vhost"}
	return cmd
}

func (a *app) permissionCommand() *cobra.Command {
	set := a.verb("set USER CONFIGURE WRITE READ", "Say what a user may do: regular expressions over names", 4, 4, func(c *client, args []string) error {
		return c.put(a.within("permissions", args[0]), map[string]any{"configure": args[1], "write": args[2], "read": args[3]})
	})
	end := a.verb("clear USER", "Take a user's access to the tenant", 1, 1, func(c *client, args []string) error {
		return c.remove(a.within("permissions", args[0]))
	})
	return noun("permission", "Permissions of users in tenants", a.lister("List permissions", "permissions", false,
		column{"tenant", "vhost"}, column{"user", "user"}, column{"configure", "configure"}, column{"write", "write"}, column{"read", "read"},
	), set, end)
}

func (a *app) topicPermissionCommand() *cobra.Command {
	set := a.verb("set USER EXCHANGE WRITE READ", "Restrict the routing keys of a user at a topic exchange", 4, 4, func(c *client, args []string) error {
		return c.put(a.within("topic-permissions", args[0]), map[string]any{"exchange": args[1], "write": args[2], "read": args[3]})
	})
	end := a.verb("clear USER [EXCHANGE]", "Lift the restriction, at one exchange or at all", 1, 2, func(c *client, args []string) error {
		return c.remove(a.within("topic-permissions", args...))
	})
	return noun("topic-permission", "Restrictions of routing keys", a.lister("List topic permissions", "topic-permissions", false,
		column{"tenant", "vhost"}, column{"user", "user"}, column{"exchange", "exchange"}, column{"write", "write"}, column{"read", "read"},
	), set, end)
}

func (a *app) policyCommand() *cobra.Command {
	var applyTo string
	var priority int
	var operator bool
	kind := func() string {
		if operator {
			return "operator-policies"
		}
		return "policies"
	}
	set := a.verb("set NAME PATTERN DEFINITION", "Make or change a policy; the definition is a JSON object", 3, 3, func(c *client, args []string) error {
		var definition map[string]json.RawMessage
		if err := json.Unmarshal([]byte(args[2]), &definition); err != nil {
			return usage("the definition is no JSON object: %v", err)
		}
		return c.put(a.within(kind(), args[0]), map[string]any{
			"pattern": args[1], "definition": definition, "priority": priority, "apply-to": applyTo,
		})
	})
	set.Flags().StringVar(&applyTo, "apply-to", "all", "all, queues, classic_queues, quorum_queues, streams or exchanges")
	set.Flags().IntVar(&priority, "priority", 0, "of those that match, the highest applies")
	end := a.verb("clear NAME", "Delete a policy", 1, 1, func(c *client, args []string) error {
		return c.remove(a.within(kind(), args[0]))
	})
	list := a.verb("list", "List policies", 0, 0, func(c *client, _ []string) error {
		at := kind()
		if a.tenant != "" {
			at = a.within(at)
		}
		var rows rawList
		if err := c.get(at, &rows); err != nil {
			return err
		}
		return a.print(rows, []column{{"tenant", "vhost"}, {"name", "name"}, {"pattern", "pattern"}, {"apply-to", "apply-to"},
			{"priority", "priority"}, {"definition", "definition"}})
	})
	cmd := noun("policy", "Policies for queues and exchanges", list, set, end)
	cmd.PersistentFlags().BoolVar(&operator, "operator", false, "operator policies, which bound what others ask for")
	return cmd
}
