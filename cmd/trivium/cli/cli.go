// Package cli holds the commands that operate a node over its HTTP API. One
// file per noun; api.go is the client, output.go what is printed.
package cli

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Environment variables for what the flags of every command say.
const (
	envURL      = "TRIVIUM_URL"
	envUser     = "TRIVIUM_USER"
	envPassword = "TRIVIUM_PASSWORD"
)

const (
	defaultURL    = "http://127.0.0.1:15672"
	defaultUser   = "guest"
	defaultTenant = "/"
)

// UsageError is a mistake in the command line: nothing was asked of the node.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }
func (e UsageError) Unwrap() error { return e.Err }

// ConnectError says that the node cannot be reached.
type ConnectError struct{ Err error }

func (e ConnectError) Error() string { return e.Err.Error() }
func (e ConnectError) Unwrap() error { return e.Err }

func usage(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// app is what the commands share: the flags and where they write to.
type app struct {
	url, user, password, caFile string
	tenant, format              string
	in                          io.Reader
	out                         io.Writer
}

// Commands returns the commands, reading secrets from in and writing to out.
func Commands(in io.Reader, out io.Writer) []*cobra.Command {
	a := &app{in: in, out: out}
	list := []*cobra.Command{
		a.queueCommand(), a.exchangeCommand(), a.bindingCommand(), a.topicCommand(), a.groupCommand(),
		a.connectionCommand(), a.channelCommand(), a.consumerCommand(), a.userCommand(), a.tenantCommand(),
		a.permissionCommand(), a.topicPermissionCommand(), a.policyCommand(), a.definitionsCommand(), a.nodeCommand(),
		a.clusterCommand(), a.backupCommand(),
	}
	for _, cmd := range list {
		a.flags(cmd)
	}
	return list
}

// flags adds the flags that all commands have.
func (a *app) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&a.url, "url", "", "`URL` of the node's HTTP listener (default $"+envURL+" or "+defaultURL+")")
	f.StringVar(&a.user, "user", "", "user `name` (default $"+envUser+" or "+defaultUser+")")
	f.StringVar(&a.password, "password", "", "password (default $"+envPassword+" or guest)")
	f.StringVar(&a.caFile, "ca-file", "", "PEM `file` of the authority that signed the node's certificate")
	f.StringVarP(&a.tenant, "tenant", "t", "", "tenant (default "+defaultTenant+"; lists show all)")
	f.StringVarP(&a.format, "output", "o", "table", "`format` of what is printed: table, json or yaml")
}

// noun makes a command that only has commands below it.
func noun(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("%s: unknown command %q", cmd.CommandPath(), args[0])
			}
			return usage("%s: a command is missing; see --help", cmd.CommandPath())
		},
	}
	cmd.AddCommand(below...)
	return cmd
}

// verb makes a command that takes least to most arguments.
func (a *app) verb(use, short string, least, most int, run func(c *client, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < least || len(args) > most {
				return usage("usage: %s", cmd.UseLine())
			}
			return checkNames(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd.Context())
			if err != nil {
				return err
			}
			return run(c, args)
		},
	}
}

// nameArguments are the arguments that name something: an empty one would ask the node
// for something else.
var nameArguments = []string{"NAME", "USER", "EXCHANGE", "QUEUE"}

// checkNames refuses empty names.
func checkNames(cmd *cobra.Command, args []string) error {
	labels := strings.Fields(cmd.Use)[1:]
	for i, arg := range args {
		if i == len(labels) {
			break
		}
		if label := strings.Trim(labels[i], "[]"); arg == "" && slices.Contains(nameArguments, label) {
			return usage("%s: %s is empty", cmd.CommandPath(), label)
		}
	}
	if f := cmd.Flags().Lookup("tenant"); f != nil && f.Changed && f.Value.String() == "" {
		return usage("%s: --tenant is empty", cmd.CommandPath())
	}
	return nil
}

// lister makes a command that prints a listing. With scoped the listing of one
// tenant is below that of all.
func (a *app) lister(short, path string, scoped bool, columns ...column) *cobra.Command {
	return a.verb("list", short, 0, 0, func(c *client, _ []string) error {
		at := path
		if scoped && a.tenant != "" {
			at += "/" + url.PathEscape(a.tenant)
		}
		var rows rawList
		if err := c.get(at, &rows); err != nil {
			return err
		}
		return a.print(rows, columns)
	})
}

// within is the path of something in the tenant.
func (a *app) within(kind string, names ...string) string {
	tenant := a.tenant
	if tenant == "" {
		tenant = defaultTenant
	}
	return path(append([]string{kind, tenant}, names...)...)
}

// path joins escaped names.
func path(names ...string) string {
	for i := range names {
		names[i] = url.PathEscape(names[i])
	}
	return strings.Join(names, "/")
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// settings takes what the flags leave open from the environment.
func (a *app) settings() error {
	a.url = firstOf(a.url, os.Getenv(envURL), defaultURL)
	a.user = firstOf(a.user, os.Getenv(envUser), defaultUser)
	a.password = firstOf(a.password, os.Getenv(envPassword))
	if a.user == defaultUser && a.password == "" {
		a.password = defaultUser // that of a new node
	}
	switch a.format {
	case "table", "json", "yaml":
	default:
		return usage("--output is table, json or yaml, not %q", a.format)
	}
	u, err := url.Parse(a.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return usage("--url %q is no http:// or https:// address", a.url)
	}
	if u.User != nil {
		return UsageError{errors.New("--url: the user belongs into --user or " + envUser)}
	}
	return nil
}
