package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trivium-mq/trivium/kernel"
)

// clusterInfo is the part of a cluster's status that commands look at.
type clusterInfo struct {
	Cluster, Node, Refused string
	Nodes                  []nodeInfo
	Groups                 []struct {
		Group            uint32
		Leader           string
		Term, Commit     uint64
		Voters, Learners []string
	}
}

// nodeInfo is the part of a node's status that commands look at.
type nodeInfo struct {
	Name     string
	State    kernel.NodeState
	Draining bool
	Leads    []uint32
}

func (a *app) clusterCommand() *cobra.Command {
	cmd := noun("cluster", "The cluster and its nodes", a.clusterStatus(), a.clusterRemove(), a.clusterDrain(),
		a.clusterRebalance(), a.clusterMove(), a.clusterCerts())
	cmd.Long = "The cluster and its nodes. Any node can be asked (--url); what is to be done is done by the one\n" +
		"that leads. In this version one node at a time serves the clients of all: the one that leads\n" +
		"group 1, and group 0, the catalog, follows it."
	return cmd
}

func (a *app) clusterStatus() *cobra.Command {
	return a.verb("status", "Show the nodes and who leads", 0, 0, func(c *client, _ []string) error {
		var raw json.RawMessage
		if err := c.get("cluster", &raw); err != nil {
			return err
		}
		print := a.printCluster
		if a.format != "table" {
			print = a.printOne
		}
		if err := print(raw); err != nil {
			return err
		}
		return majorities(raw)
	})
}

// majorities returns an error if the node that was asked reaches no majority of the nodes
// that vote in some group: nothing can be confirmed then, whatever the states are.
func majorities(raw json.RawMessage) error {
	var s clusterInfo
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the answer is not that of a node: %w", err)
	}
	reached := map[string]bool{}
	for _, n := range s.Nodes {
		reached[n.Name] = n.State != kernel.NodeUnreachable && n.State != kernel.NodeRefused
	}
	for _, g := range s.Groups {
		up := 0
		for _, voter := range g.Voters {
			if reached[voter] {
				up++
			}
		}
		if len(g.Voters) > 0 && up <= len(g.Voters)/2 {
			return fmt.Errorf("no majority: of the %d nodes that vote in group %d node %s reaches %d, itself included", len(g.Voters), g.Group, s.Node, up)
		}
	}
	return nil
}

// printCluster prints a status as two tables.
func (a *app) printCluster(raw json.RawMessage) error {
	var s clusterInfo
	var lists struct{ Nodes, Groups rawList }
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("the answer is not that of a node: %w", err)
	}
	if err := json.Unmarshal(raw, &lists); err != nil {
		return fmt.Errorf("the answer is not that of a node: %w", err)
	}
	fmt.Fprintf(a.out, "cluster %s, as node %s sees it\n", cell(s.Cluster), cell(s.Node))
	if s.Refused != "" {
		fmt.Fprintf(a.out, "node %s is no member any more: %s\n", cell(s.Node), cell(s.Refused))
	}
	fmt.Fprintln(a.out)
	err := a.print(lists.Nodes, []column{{"node", "name"}, {"state", "state"}, {"leads", "leads"}, {"draining", "draining"},
		{"disk low", "disk_low"}, {"disk slow", "disk_slow"}, {"address", "address"}, {"version", "version"}})
	if err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	return a.print(lists.Groups, []column{{"group", "group"}, {"leader", "leader"}, {"term", "term"}, {"commit", "commit"},
		{"voters", "voters"}, {"learners", "learners"}})
}

func (a *app) clusterRemove() *cobra.Command {
	var force bool
	cmd := a.verb("remove NODE", "Remove a node for good", 1, 1, func(c *client, args []string) error {
		at, begun := path("cluster", "nodes", args[0]), time.Now()
		if force {
			at += "?force=true"
		}
		if err := c.remove(at); err != nil {
			return err
		}
		return a.done(begun, map[string]any{"node": args[0], "removed": true}, "node %s is removed", cell(args[0]))
	})
	cmd.Long = "Remove a node for good, whether it runs or not. Its data directory cannot come back: the node may\n" +
		"join again with an empty one. A node that runs stops serving clients and says why. It is refused\n" +
		"when the nodes that are left and can be reached would have no majority, also with --force, as that has to\n" +
		"confirm the removal: of several that are lost for good, remove one after the other. When the majority is\n" +
		"lost itself no node can be removed: trivium recover --alone goes on with one."
	cmd.Flags().BoolVar(&force, "force", false, "also if nobody else that can be reached has all data")
	return cmd
}

func (a *app) clusterDrain() *cobra.Command {
	var wait, undo bool
	cmd := a.verb("drain NODE", "Have a node lead nothing, as before maintenance", 1, 1, func(c *client, args []string) error {
		at, begun := path("cluster", "nodes", args[0], "drain"), time.Now()
		said := map[string]any{"node": args[0], "draining": !undo}
		if undo {
			if err := c.remove(at); err != nil {
				return err
			}
			return a.done(begun, said, "node %s may lead again", cell(args[0]))
		}
		if wait {
			if err := someoneElse(c, args[0]); err != nil {
				return err
			}
		}
		if err := c.put(at, nil); err != nil {
			return err
		}
		if !wait {
			return a.done(begun, said, "node %s is to lead nothing", cell(args[0]))
		}
		if err := awaitDrained(c, args[0]); err != nil {
			return err
		}
		said["leads"] = []uint32{}
		return a.done(begun, said, "node %s leads nothing", cell(args[0]))
	})
	cmd.Long = "Have a node lead nothing, as before maintenance: its leaderships move to others, and none comes back\n" +
		"until that is undone. If it served, what clients of all nodes do waits for a moment, and some have to\n" +
		"connect again."
	cmd.Flags().BoolVar(&wait, "wait", false, "return when it leads nothing any more, and another one serves")
	cmd.Flags().BoolVar(&undo, "undo", false, "it may lead again")
	return cmd
}

func (a *app) clusterRebalance() *cobra.Command {
	var wait bool
	cmd := a.verb("rebalance", "Bring the leaderships to where they belong", 0, 0, func(c *client, _ []string) error {
		begun := time.Now()
		var said, again struct{ Leader string }
		if err := c.do(http.MethodPost, "cluster/rebalance", nil, &said, nil); err != nil {
			return err
		}
		err := a.leads(c, begun, said.Leader, wait)
		if _, moved := errors.AsType[elsewhere](err); !moved {
			return err
		}
		if failed := c.do(http.MethodPost, "cluster/rebalance", nil, &again, nil); failed != nil || again == said {
			return err
		}
		return a.leads(c, begun, again.Leader, wait) // the first answer was of a moment before a move
	})
	cmd.Long = "Bring the leaderships to where they belong. In this version one node leads all groups; rebalance\n" +
		"makes sure of that, and that it is none that is drained."
	cmd.Flags().BoolVar(&wait, "wait", false, waitServes)
	return cmd
}

func (a *app) clusterMove() *cobra.Command {
	var wait bool
	cmd := a.verb("move GROUP NODE", "Hand the leadership of a group to a node", 2, 2, func(c *client, args []string) error {
		if _, err := strconv.ParseUint(args[0], 10, 32); err != nil {
			return usage("%q is no number of a group", args[0])
		}
		begun := time.Now()
		if err := c.put(path("cluster", "groups", args[0], "leader"), map[string]string{"node": args[1]}); err != nil {
			return err
		}
		return a.leads(c, begun, args[1], wait)
	})
	cmd.Long = "Hand the leadership of a group to a node that votes in it. In this version groups 0 (the catalog)\n" +
		"and 1 (all data) are led by one node: moving one moves both, and with them all clients."
	cmd.Flags().BoolVar(&wait, "wait", false, waitServes)
	return cmd
}

// waitServes says what --wait waits for where leaderships go to a node.
const waitServes = "return when it leads all groups and serves the clients"

// leads ends a command that has given the leadership to a node.
func (a *app) leads(c *client, begun time.Time, node string, wait bool) error {
	said := map[string]any{"leader": node}
	if !wait {
		return a.done(begun, said, "node %s leads", cell(node))
	}
	if err := awaitServing(c, node); err != nil {
		return err
	}
	said["serving"] = true
	return a.done(begun, said, "node %s serves", cell(node))
}

// done ends a command that has changed the cluster: it prints what was done, as said or,
// in a table's place, as text, and how long it took.
func (a *app) done(begun time.Time, said map[string]any, text string, args ...any) error {
	seconds := time.Since(begun).Seconds()
	if a.format == "table" {
		_, err := fmt.Fprintf(a.out, text+", %.2f s\n", append(args, seconds)...)
		return err
	}
	said["seconds"] = seconds
	raw, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return a.printOne(raw)
}

// hosts takes NODE[=HOST,...] apart.
func hosts(arg string) (node string, names []string, err error) {
	node, list, given := strings.Cut(arg, "=")
	if n, err := strconv.ParseInt(node, 10, 32); err != nil || n < 1 || node != strconv.FormatInt(n, 10) {
		return "", nil, usage("%q is no NODE[=HOST,...]: a node is a number from 1, as in node.id", arg)
	}
	for _, h := range strings.Split(list, ",") {
		if h = strings.TrimSpace(h); h != "" {
			names = append(names, h)
		}
	}
	if given && len(names) == 0 {
		return "", nil, usage("%q names no host", arg)
	}
	return node, names, nil
}
