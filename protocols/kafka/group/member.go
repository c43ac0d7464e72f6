package group

import "time"

// Protocol is one assignment strategy that a member supports, with what the
// member has to say for it.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Member is what a group's leader, and a listing, learn of a member.
type Member struct {
	ID, Instance         string // Instance is "" for a dynamic member
	ClientID, ClientHost string
	Metadata             []byte // for the group's protocol
	Assignment           []byte
}

// Join is a request to join or to join again. The slices are kept.
type Join struct {
	Group                string
	Member               string // "" at first
	Instance             string // "" for a dynamic member
	ClientID, ClientHost string
	ProtocolType         string
	Protocols            []Protocol // most wanted first
	Session, Rebalance   time.Duration
	// NewID is the id that the member gets if it needs one.
	NewID string
	// MustKnow makes a new dynamic member come back with its id first (KIP-394).
	MustKnow bool
	// CanSkip says that the client understands Joined.SkipAssignment (KIP-814).
	CanSkip bool
}

// Joined is the answer to Join.
type Joined struct {
	Err                    Error
	Generation             int32
	ProtocolType, Protocol string
	Leader, Member         string
	SkipAssignment         bool
	Members                []Member // for the leader only
}

// Sync asks for the member's assignment; the leader brings those of all.
type Sync struct {
	Group, Member, Instance string
	Generation              int32
	// ProtocolType and Protocol are checked if not nil.
	ProtocolType, Protocol *string
	Assignments            map[string][]byte // by member id; kept
}

// Synced is the answer to Sync.
type Synced struct {
	Err                    Error
	ProtocolType, Protocol string
	Assignment             []byte
}

// member is one member of a group.
type member struct {
	id, instance         string
	clientID, clientHost string
	protocols            []Protocol
	session, rebalance   time.Duration
	seen                 time.Time // last sign of life
	assignment           []byte
	synced               bool         // has its assignment of this generation
	joining              func(Joined) // waits for the next generation
	syncing              func(Synced) // waits for its assignment
	isNew                bool         // waits in its first join
}

func (m *member) supports(protocol string) bool { return m.find(protocol) >= 0 }

func (m *member) find(protocol string) int {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return i
		}
	}
	return -1
}

func (m *member) metadata(protocol string) []byte {
	if i := m.find(protocol); i >= 0 {
		return m.protocols[i].Metadata
	}
	return nil
}

// size is roughly what the member costs in memory.
func (m *member) size() int {
	return 512 + len(m.id) + len(m.instance) + len(m.clientID) + protocolsSize(m.protocols) + len(m.assignment)
}

func protocolsSize(ps []Protocol) int {
	n := 0
	for i := range ps {
		n += 64 + len(ps[i].Name) + len(ps[i].Metadata)
	}
	return n
}

func sameProtocols(a, b []Protocol) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name || string(a[i].Metadata) != string(b[i].Metadata) {
			return false
		}
	}
	return true
}
