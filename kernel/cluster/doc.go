// Package cluster is how a node takes part in its cluster: who it is, who the
// others are, and all that nodes say to each other, over one port.
//
// A [Node] is opened before the Raft groups, whose transports it makes. A node
// without a cluster joins one ([Node.Join]), a member tells the others that it is
// back ([Node.Announce]); both may be refused, for a data directory that was wiped,
// copied, set back or removed is no member. With [Node.Attach] the groups are known,
// and a reconciler brings their members in line with the catalog.
//
// Every connection begins with a hello (package metasvc/transport). Before two nodes
// exchange the first message of a Raft group, each has seen how far the logs of the
// other one go, and that they do not end before what it has seen of them: see
// meeting.go and witness.go.
package cluster
