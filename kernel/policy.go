package kernel

// PolicyTarget says what kinds of object a policy applies to.
type PolicyTarget string

// The targets of a policy.
const (
	PolicyAll           PolicyTarget = "all"
	PolicyQueues        PolicyTarget = "queues"
	PolicyClassicQueues PolicyTarget = "classic_queues"
	PolicyQuorumQueues  PolicyTarget = "quorum_queues"
	PolicyStreams       PolicyTarget = "streams"
	PolicyExchanges     PolicyTarget = "exchanges"
)

// Policy gives settings to all queues or exchanges of a tenant whose name
// matches a pattern. An operator policy bounds what owners and other policies
// ask for.
type Policy struct {
	Tenant   string
	Name     string
	Operator bool
	Pattern  string // regular expression, found anywhere in the name
	ApplyTo  PolicyTarget
	Priority int
	// Definition is sorted by name: int64, bool and string values, and for
	// settings that are not looked at Raw ones.
	Definition []Argument
}
