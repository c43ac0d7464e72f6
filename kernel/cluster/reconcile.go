package cluster

// reconcile keeps the members of the groups that this node leads in line with the
// catalog.
func (n *Node) reconcile() {
	<-n.ctx.Done()
}
