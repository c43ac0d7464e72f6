package cluster

import "context"

// strain is how unfit the disk of a node is for one that serves.
type strain int

const (
	fit  strain = iota
	slow        // writes to its log take longer than others are to wait for
	low         // publishes are refused
)

// String says it to an operator.
func (s strain) String() string { return [...]string{"fit", "slow", "low"}[s] }

func (n *Node) low() bool  { return n.cfg.Low != nil && n.cfg.Low() }
func (n *Node) slow() bool { return n.cfg.Slow != nil && n.cfg.Slow() }

// strain is that of this node's disk.
func (n *Node) strain() strain { return strained(n.low(), n.slow()) }

// strain is that of the node's disk, as it has told.
func (i *Info) strain() strain { return strained(i.Low, i.Slow) }

func strained(isLow, isSlow bool) strain {
	switch {
	case isLow:
		return low
	case isSlow:
		return slow
	}
	return fit
}

// relieve hands a leadership to a voter whose disk is better: the others can go on without
// this node, but with it as their leader all publishes are refused, or wait.
func (n *Node) relieve(ctx context.Context, g *Group, m *mark) error {
	own := n.strain()
	if own == fit || !n.drains(g) {
		return nil
	}
	for _, heir := range n.heirs(g, m) {
		if i := n.fresh(heir); i != nil && i.strain() < own {
			n.log.Warn().Uint32("group", g.ID).Str("to", heir).Stringer("disk", own).Msg("the disk is low or slow: the leadership is handed over")
			return g.handOver(ctx, heir)
		}
	}
	return nil
}
