package cli

import (
	"fmt"
	"net/url"
	"strings"
)

// kinds are the lists of the API whose members commands name, and what one is called.
var kinds = map[string]struct {
	one    string
	tenant bool // the tenant comes before the name
}{
	"connections": {"connection", false}, "users": {"user", false}, "vhosts": {"tenant", false},
	"queues": {"queue", true}, "exchanges": {"exchange", true}, "topics": {"topic", true}, "groups": {"group", true},
	"policies": {"policy", true}, "operator-policies": {"operator policy", true},
}

// plain says in words of the commands what the API says in RabbitMQ's or not at all:
// what is not there. Other reasons stay as they are.
func plain(reason string, at *url.URL) string {
	switch reason {
	case "Not Found":
		return "there is no such thing" + absent(at)
	case "vhost_not_found":
		return "there is no such tenant"
	case "vhost_or_user_not_found":
		return "there is no such tenant or user"
	}
	return reason
}

// absent names what an address of the API stands for.
func absent(at *url.URL) string {
	_, below, _ := strings.Cut(at.EscapedPath(), "/api/")
	parts := strings.Split(below, "/")
	for i, p := range parts {
		if text, err := url.PathUnescape(p); err == nil {
			parts[i] = text
		}
	}
	list, known := kinds[parts[0]]
	switch {
	case known && list.tenant && len(parts) > 2:
		return fmt.Sprintf(": %s '%s' in tenant '%s'", list.one, parts[2], parts[1])
	case known && !list.tenant && len(parts) > 1:
		return fmt.Sprintf(": %s '%s'", list.one, parts[1])
	case parts[0] == "cluster": // members answer whatever is asked of it
		return ": the node was started without --cluster"
	}
	return " at " + at.Path
}
