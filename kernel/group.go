package kernel

import (
	"net/url"
	"strings"
)

// Prefixes of share addresses (DESIGN section 1).
const (
	sharePrefix   = "$share/"
	queuePrefix   = "$queue/"
	sessionPrefix = "$session/" // groups of durable sessions; no client can name one
)

// GroupAddress names a share group: a group on a topic of one tenant.
type GroupAddress struct {
	Tenant string
	Kind   TopicKind
	Group  string
	Topic  string
}

// QueueAddress is the address of a queue's own group.
func QueueAddress(tenant, queue string) GroupAddress {
	return GroupAddress{Tenant: tenant, Group: queue, Topic: queue}
}

// SessionAddress is the address of the group through which one durable session
// reads one topic.
func SessionAddress(tenant, clientID string, kind TopicKind, topic string) GroupAddress {
	return GroupAddress{Tenant: tenant, Kind: kind, Group: sessionPrefix + clientID, Topic: topic}
}

// IsShare reports whether name is written as a share address, well formed or
// not.
func IsShare(name string) bool {
	return strings.HasPrefix(name, sharePrefix) || strings.HasPrefix(name, queuePrefix)
}

// ParseShare parses "$share/<group>/<topic>" or "$queue/<queue>". The group of
// the first form percent-encodes % / + #; the second takes its name raw and
// never creates, which create reports. wildcard says whether the topic part
// contains a wildcard level, which makes the address one of kind Filter.
func ParseShare(tenant, name string) (addr GroupAddress, create bool, err error) {
	if q, ok := strings.CutPrefix(name, queuePrefix); ok {
		if q == "" {
			return addr, false, Errorf(CodeInvalidName, "share", name, "the queue name is empty")
		}
		return QueueAddress(tenant, q), false, nil
	}
	rest, ok := strings.CutPrefix(name, sharePrefix)
	if !ok {
		return addr, false, Errorf(CodeInvalidName, "share", name, "it is not a share address")
	}
	raw, topic, ok := strings.Cut(rest, "/")
	if !ok || raw == "" || topic == "" {
		return addr, false, Errorf(CodeInvalidName, "share", name, "a share address is $share/<group>/<topic>")
	}
	if strings.ContainsAny(raw, "+#") {
		return addr, false, Errorf(CodeInvalidName, "share", name, "the group may not contain + or #")
	}
	group, uerr := url.PathUnescape(raw)
	if uerr != nil || strings.HasPrefix(group, sessionPrefix) {
		return addr, false, Errorf(CodeInvalidName, "share", name, "the group is not a valid name")
	}
	kind := Plain
	if HasWildcard(topic) {
		kind = Filter
	}
	return GroupAddress{Tenant: tenant, Kind: kind, Group: group, Topic: topic}, true, nil
}

// String returns the address as $share/<group>/<topic>.
func (a GroupAddress) String() string {
	return sharePrefix + escapeGroup(a.Group) + "/" + a.Topic
}

// IsOwn reports whether the address is a queue's own group.
func (a GroupAddress) IsOwn() bool { return a.Kind == Plain && a.Group == a.Topic }

// IsSession reports whether the group belongs to one durable session.
func (a GroupAddress) IsSession() bool { return strings.HasPrefix(a.Group, sessionPrefix) }

// Session returns the client id of the session that the group belongs to.
func (a GroupAddress) Session() (clientID string, ok bool) {
	return strings.CutPrefix(a.Group, sessionPrefix)
}

// HasWildcard reports whether a topic filter contains a wildcard level.
func HasWildcard(filter string) bool { return strings.ContainsAny(filter, "+#") }

func escapeGroup(g string) string { return groupEscaper.Replace(g) }

var groupEscaper = strings.NewReplacer("%", "%25", "/", "%2F", "+", "%2B", "#", "%23")
