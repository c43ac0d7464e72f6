package group

// Error is a refusal. Its values are Kafka's error codes.
type Error int16

// The refusals.
const (
	OK                   Error = 0
	NotAvailable         Error = 15 // COORDINATOR_NOT_AVAILABLE: stopping, or out of memory for groups
	NotCoordinator       Error = 16 // another node coordinates the group
	IllegalGeneration    Error = 22 // the generation is over
	InconsistentProtocol Error = 23 // no common protocol, or another protocol type
	InvalidGroupID       Error = 24 // empty or too long
	UnknownMember        Error = 25 // no such member
	InvalidSession       Error = 26 // session timeout out of range
	RebalanceInProgress  Error = 27 // join again
	NonEmpty             Error = 68 // the group has members
	NotFound             Error = 69 // no such group
	MemberIDRequired     Error = 79 // come again with the id given
	Full                 Error = 81 // too many members, or too much metadata
	FencedInstance       Error = 82 // another member has taken the instance id
	invalidRequest       Error = 42 // malformed
)
