package broker

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// Coordinators are the Raft names of the nodes that coordinate groups of readers of a
// protocol, in order: all that are reached and take its clients, as the node that serves
// sees it, and at least that one.
func (b *Broker) Coordinators(p kernel.Protocol) []string {
	self := b.node.ID()
	list := []string{}
	aside := false // it is drained, or has no such clients itself
	for _, m := range b.node.Members() {
		if m.Self {
			aside = m.Draining || !listens(m.Fronts, p)
			continue
		}
		if m.Reachable && !m.Draining && m.Protocols != nil && m.Takes(p) && listens(m.Fronts, p) {
			list = append(list, m.Raft)
		}
	}
	if !aside || len(list) == 0 {
		list = append(list, self)
	}
	slices.Sort(list)
	return list
}

// listens reports whether a node has told an address for clients of a protocol.
func listens(fronts map[string]string, p kernel.Protocol) bool {
	for name := range fronts {
		if name, _, _ := strings.Cut(name, "/"); name == string(p) {
			return true
		}
	}
	return false
}

// Coordinator returns which of several nodes coordinates something of a tenant: when one
// goes, only what it has coordinated gets another one (rendezvous hashing). nodes is not
// empty.
func Coordinator(nodes []string, tenant, name string) (node string) {
	best := uint64(0)
	for i, n := range nodes {
		if s := score(n, tenant, name); i == 0 || s > best {
			node, best = n, s
		}
	}
	return node
}

// Ranked returns nodes in the order in which they would coordinate something.
func Ranked(nodes []string, tenant, name string) []string {
	return slices.SortedFunc(slices.Values(nodes), func(a, b string) int {
		return cmp.Compare(score(b, tenant, name), score(a, tenant, name))
	})
}

func score(node, tenant, name string) uint64 {
	h := fnv.New64a()
	for _, s := range []string{node, tenant, name} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	return mix(h.Sum64())
}

// mix spreads what little two names differ in over all bits (splitmix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Coordinates returns CodeFenced unless a node coordinates a group of readers: another one
// does, which may not know that this one has not heard of it.
func (c *Conn) Coordinates(node, group string) error {
	if now := Coordinator(c.b.Coordinators(c.about.Protocol), c.tenant.name, group); now != node {
		return kernel.Errorf(kernel.CodeFenced, KindGroup, group, "another node coordinates it")
	}
	return nil
}

// Acts returns what the connection's user may do to a resource, see May.
func (c *Conn) Acts(kind, name string) (acts kernel.Acts) {
	r, resource := c.rights(), c.resource(kind, name)
	for _, a := range []kernel.Act{kernel.Configure, kernel.Write, kernel.Read} {
		if r.May(a, resource) {
			acts = acts.With(a)
		}
	}
	return acts
}
