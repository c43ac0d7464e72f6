package broker

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// coordinators are the Raft names of the nodes that are to coordinate groups of readers of
// a protocol, in order.
func (b *Broker) coordinators(p kernel.Protocol) []string {
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
func Coordinator(nodes []Tenure, tenant, name string) (node Tenure) {
	best := uint64(0)
	for i, n := range nodes {
		if s := score(n.Node, tenant, name); i == 0 || s > best {
			node, best = n, s
		}
	}
	return node
}

// Ranked returns the names of nodes in the order in which they would coordinate something.
func Ranked(nodes []Tenure, tenant, name string) []string {
	out := make([]string, len(nodes))
	for i := range nodes {
		out[i] = nodes[i].Node
	}
	slices.SortFunc(out, func(a, b string) int {
		return cmp.Compare(score(b, tenant, name), score(a, tenant, name))
	})
	return out
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
