package placement

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// hear has the catalog of a node apply its commands up to a revision, as far as there are
// any. Every node gets them all in the same order, and when it gets them: what one of them
// knows when it applies an entry of the group, another one does not know yet, or knows
// better.
func (n *wlife) hear(revision int) {
	for k := int(n.knows.Revision()); k < min(revision, len(n.w.catalog)); k++ {
		next, _, err := n.knows.Apply([]catalog.Op{n.w.catalog[k]})
		if err != nil {
			n.w.failf("node %d: command %d of the catalog: %v", n.i, k, err)
			return
		}
		n.knows = next
	}
	if n.w.rng.Intn(4) == 0 {
		n.knew = n.knows
	}
}

// declare has the catalog changed by a facade: it knows all that was before.
func (n *wlife) declare(op catalog.Op) {
	n.w.catalog = append(n.w.catalog, op)
	n.hear(len(n.w.catalog))
}

// retentionOf is what the node knows of a topic at the moment.
func (n *wlife) retentionOf(id kernel.TopicID) (kernel.Retention, bool) {
	t, ok := n.knows.TopicByID(id)
	if !ok {
		return kernel.Retention{}, false
	}
	return t.Retention, true
}

// churn makes, changes or drops what nobody looks at, but for the comparison of the
// replicas; or purges a group. The catalog is told first, then the group gets what the
// catalog of this node says, as from a facade.
func (n *wlife) churn() {
	if !n.serves() {
		return
	}
	id := topicN(byte(100 + n.w.rng.Intn(4)))
	put := catalog.PutTopic{Topic: kernel.Topic{ID: id, Tenant: "/", Name: id.String(), Partitions: 1,
		Retention: kernel.Retention{Age: time.Duration(1+n.w.rng.Intn(24)) * time.Hour, Dedup: time.Duration(n.w.rng.Intn(3)) * time.Hour}}}
	var body []byte
	switch n.w.rng.Intn(5) {
	case 0:
		n.declare(put)
		keep, _ := n.retentionOf(id)
		body = createPartitionsCommand(id, []PartitionSpec{{Retention: keep}}, n.knows.Revision())
	case 1:
		n.declare(put)
		keep, _ := n.retentionOf(id)
		body = setRetentionCommand(id, keep, n.knows.Revision())
	case 2:
		body = createGroupCommand(GroupSpec{Address: kernel.QueueAddress("/", "d"), Topic: id, FromStart: true}, n.knows.Revision())
	case 3:
		n.declare(catalog.DropTopic{ID: id})
		body = topicCommand(cmdDropTopic, id, n.knows.Revision())
	default:
		n.purge(n.w.truth.groups[n.w.rng.Intn(len(n.w.truth.groups))])
		return
	}
	n.g.prop.command(body) //nolint:errcheck // if it leads
}

// purge has a group archive all that it has.
func (n *wlife) purge(g *wgroup) {
	if g.dying {
		return // what is purged has no dead letter
	}
	sh := n.g.machine.groups[g.id]
	sh.topic.shard.call(func() {
		if term := sh.topic.shard.term; term != 0 {
			g.purged[term] = true
			sh.topic.shard.purge(sh) //nolint:errcheck // it leads
		}
	})
}
