package cluster

import (
	"crypto/rand"
	"encoding/hex"
	"errors"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// Identity is who a node is. Boot is drawn by Open if it is 0.
type Identity = transport.Identity

// Refusal is why other nodes do not want this one, or what it asks for.
type Refusal = transport.Refusal

// Errors of Open and Join.
var (
	// ErrInsecure: without TLS nodes reach each other on the loopback only.
	ErrInsecure = errors.New("cluster: beyond the loopback nodes need certificates (cluster.ca, cluster.cert, cluster.key)")
	// ErrFounds is no failure: this node is the first seed, and a majority of the seeds
	// have said that they belong to no cluster. It founds one. Those who do not answer may
	// be members: a first node whose directory was lost must not found another cluster
	// while they are down.
	ErrFounds = errors.New("cluster: this node is the first one")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("cluster: closed")
	// ErrUnknownNode: there is no member of that name.
	ErrUnknownNode = errors.New("cluster: no such node")
)

// NewIncarnation draws what tells a data directory from all others.
func NewIncarnation() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// RaftName is the name in Raft groups of a node that joins. A founder's is its id.
func RaftName(node, incarnation string) string {
	return node + "-" + incarnation[:min(len(incarnation), 8)]
}

// Final reports whether an error says that this node, with this data directory and
// as it is set up, is not to take part: trying again does not help.
func Final(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	if !ok {
		return false
	}
	return expelled(r) || r.Code == transport.CodeCluster || r.Code == transport.CodeCertificate
}

// expelled reports whether a refusal is about the data directory.
func expelled(r *Refusal) bool {
	switch r.Code {
	case transport.CodeIncarnation, transport.CodeTwin, transport.CodeRemoved, transport.CodeRolledBack:
		return true
	}
	return false
}
