package kernel

// ClusterStatus is what a node knows of its cluster.
type ClusterStatus struct {
	Cluster string // its id
	Node    string // that was asked
	Refused string // why the others do not want that node any more; "" = they do
	Nodes   []ClusterNode
	Groups  []ClusterGroup
}

// NodeState is what a node of a cluster does.
type NodeState string

// The states.
const (
	NodeServing     NodeState = "serving"     // leads all groups: clients of all nodes are served here
	NodeLeading     NodeState = "leading"     // leads some, the others are about to follow
	NodeStandby     NodeState = "standby"     // votes, and can take over
	NodeCatchingUp  NodeState = "catching up" // votes, and lacks segments or much of a log, which it fetches
	NodeLearner     NodeState = "learner"     // has no vote, or not yet
	NodeUnreachable NodeState = "unreachable" // has not been heard of for some seconds
	NodeRefused     NodeState = "refused"     // its data directory is older than what others have seen of it
)

// ClusterNode is a member.
type ClusterNode struct {
	Name     string
	Address  string // where nodes reach it
	State    NodeState
	Draining bool
	Low      bool // on disk, as it has told lately
	Slow     bool // its disk is
	Version  string
	Fronts   map[string]string // addresses for clients, by listener
	Replicas []ClusterReplica
}

// ClusterReplica is a node's part in a Raft group.
type ClusterReplica struct {
	Group   uint32
	Leads   bool
	Votes   bool
	Whole   bool   // lacks nothing of what it has applied
	Applied uint64 // index; 0 = not known
}

// ClusterGroup is a Raft group as the node that was asked sees it.
type ClusterGroup struct {
	Group    uint32
	Leader   string // node, "" = none that is known
	Term     uint64
	Commit   uint64 // index
	Voters   []string
	Learners []string
}

// ReplicaChecksum is of what all replicas of a partition have in common, as far as
// they have applied the same entries.
type ReplicaChecksum struct {
	Catalog       bool // it is of the catalog, with Index and Records only
	Tenant, Topic string
	Kind          TopicKind
	Partition     uint64 // number inside its placement group; 0 = the group's tables and keyed state
	Index         uint64 // of the log, as of which it is
	Start, End    int64  // offsets
	Records       uint64 // or tables and keyed state, or the catalog
	Windows       uint64 // of share groups
}
