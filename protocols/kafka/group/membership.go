package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// A membership is what is kept of a group for the coordinators to come: its last generation
// that became stable, with the assignments. docs/formats/kv.md has the form:
//
//	version, generation, protocol type, protocol, leader, number of members, and each:
//	id, instance id, client id, host, session and rebalance timeout (ms),
//	number of protocols, and each: name, metadata; assignment
//
// Numbers are varints; texts and bytes have their length in front.
const membershipVersion = 1

// The bounds of what is read.
const (
	maxText    = math.MaxInt16 // Kafka's, of a client id
	maxSession = 24 * time.Hour
	// maxRestored leaves room for generations to come.
	maxRestored = math.MaxInt32 - 2*leap
)

// membership is one, read.
type membership struct {
	generation             int32
	protocolType, protocol string
	leader                 string
	members                []*member // with no times and no requests
}

// appendMembership appends the group's present generation.
func (g *group) appendMembership(b []byte) []byte {
	b = binary.AppendUvarint(append(b, membershipVersion), uint64(g.generation))
	b = appendText(appendText(appendText(b, g.protocolType), g.protocol), g.leader)
	b = binary.AppendUvarint(b, uint64(len(g.members)))
	for _, m := range g.members {
		for _, s := range []string{m.id, m.instance, m.clientID, m.clientHost} {
			b = appendText(b, s)
		}
		b = binary.AppendUvarint(b, uint64(m.session.Milliseconds()))
		b = binary.AppendUvarint(b, uint64(m.rebalance.Milliseconds()))
		b = binary.AppendUvarint(b, uint64(len(m.protocols)))
		for i := range m.protocols {
			b = appendText(appendText(b, m.protocols[i].Name), m.protocols[i].Metadata)
		}
		b = appendText(b, m.assignment)
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// errMembership says that a membership is not what appendMembership writes.
var errMembership = errors.New("group: malformed membership")

// readMembership reads one; the slices are copies. It takes nothing that no group could be.
func readMembership(b []byte) (*membership, error) {
	r := reader{b: b}
	if v := r.number(math.MaxUint8); v != membershipVersion {
		return nil, fmt.Errorf("%w: of version %d", errMembership, v)
	}
	m := &membership{generation: int32(r.number(maxRestored))}
	m.protocolType, m.protocol, m.leader = r.text(maxText), r.text(maxText), r.text(maxText)
	const least = 8 // bytes of a member
	for range r.number(uint64(len(r.b) / least)) {
		m.members = append(m.members, r.member())
		if r.bad {
			break
		}
	}
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("%w: %d of %d bytes are left", errMembership, len(r.b), len(b))
	}
	return m, m.check()
}

// check returns an error for what no group could be.
func (m *membership) check() error {
	ids, instances := make(map[string]bool), make(map[string]bool)
	for _, o := range m.members {
		switch {
		case o.id == "" || ids[o.id]:
			return fmt.Errorf("%w: member %q twice", errMembership, o.id)
		case o.instance != "" && instances[o.instance]:
			return fmt.Errorf("%w: instance %q twice", errMembership, o.instance)
		case !o.supports(m.protocol):
			return fmt.Errorf("%w: member %q does not know protocol %q", errMembership, o.id, m.protocol)
		case o.session <= 0 || o.session > maxSession || o.rebalance > maxSession:
			return fmt.Errorf("%w: member %q has timeouts of %v and %v", errMembership, o.id, o.session, o.rebalance)
		}
		ids[o.id], instances[o.instance] = true, true
	}
	if m.generation < 1 || m.protocolType == "" || !ids[m.leader] {
		return fmt.Errorf("%w: generation %d of type %q, leader %q", errMembership, m.generation, m.protocolType, m.leader)
	}
	return nil
}

// reader reads numbers and texts; once something is wrong, all that follows is zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

// bytes aliases what is read.
func (r *reader) bytes(most int) []byte {
	n := int(r.number(uint64(min(most, len(r.b)))))
	if n > len(r.b) { // the length itself has taken some
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) text(most int) string { return string(r.bytes(most)) }

func (r *reader) member() *member {
	m := &member{id: r.text(maxText), instance: r.text(maxText), clientID: r.text(maxText), clientHost: r.text(maxText), synced: true}
	m.session = time.Duration(r.number(math.MaxInt32)) * time.Millisecond
	m.rebalance = time.Duration(r.number(math.MaxInt32)) * time.Millisecond
	const least = 2 // bytes of a protocol
	for range r.number(uint64(len(r.b) / least)) {
		p := Protocol{Name: r.text(maxText), Metadata: slices.Clone(r.bytes(len(r.b)))}
		if r.bad {
			break
		}
		m.protocols = append(m.protocols, p)
	}
	m.assignment = slices.Clone(r.bytes(len(r.b)))
	return m
}

// leap is by how much generations go on after a membership was read. Those that the
// coordinator before has told in answers to joins only, whose assignments nobody knows, are not
// given a second time: who has heard of one of them must not commit in another of that number.
const leap = 1000

// restore makes g, which is new, what a membership says, as of now: stable; who is not heard of in
// time is removed.
func (g *group) restore(m *membership, now time.Time) {
	g.state, g.generation, g.ahead = Stable, m.generation, leap
	g.protocolType, g.protocol, g.leader, g.members = m.protocolType, m.protocol, m.leader, m.members
	for _, o := range g.members {
		o.seen = now
		g.size += o.size()
	}
}
