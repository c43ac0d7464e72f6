package admin

import (
	"github.com/trivium-mq/trivium/kernel"
)

// topicPermissionInfo restricts the routing keys that a user may use with an
// exchange.
type topicPermissionInfo struct {
	User     string `json:"user"`
	VHost    string `json:"vhost"`
	Exchange string `json:"exchange"`
	Write    string `json:"write"`
	Read     string `json:"read"`
}

func describeTopicPermission(p *kernel.TopicPermission) any {
	return topicPermissionInfo{p.User, p.Tenant, p.Exchange, p.Write, p.Read}
}

// topicPermissions are those that want admits.
func (c *call) topicPermissions(want func(c *call, p *kernel.TopicPermission) bool) []kernel.TopicPermission {
	rows := []kernel.TopicPermission{}
	for _, p := range c.s.node.TopicPermissions() {
		if want(c, &p) {
			rows = append(rows, p)
		}
	}
	return rows
}

func topicPermissionsOf(c *call, rows []kernel.TopicPermission) error {
	return list(c, rows, func(p *kernel.TopicPermission) string { return p.User },
		func(p *kernel.TopicPermission) any { return describeTopicPermission(p) })
}

// listTopicPermissions answers with the topic permissions that want admits.
func listTopicPermissions(want func(c *call, p *kernel.TopicPermission) bool) handler {
	return func(c *call) error { return topicPermissionsOf(c, c.topicPermissions(want)) }
}

func everyTopicPermission(*call, *kernel.TopicPermission) bool      { return true }
func topicPermissionOf(c *call, p *kernel.TopicPermission) bool     { return p.User == c.args[0] }
func topicPermissionWithin(c *call, p *kernel.TopicPermission) bool { return p.Tenant == c.args[0] }

func topicPermissionBetween(c *call, p *kernel.TopicPermission) bool {
	return p.Tenant == c.args[0] && p.User == c.args[1]
}

// vhostTopicPermissions is GET /api/vhosts/{vhost}/topic-permissions.
func vhostTopicPermissions(c *call) error {
	if !c.s.node.HasTenant(c.args[0]) {
		return errNotFound
	}
	return listTopicPermissions(topicPermissionWithin)(c)
}

// getTopicPermissions is GET /api/topic-permissions/{vhost}/{user}.
func getTopicPermissions(c *call) error {
	rows := c.topicPermissions(topicPermissionBetween)
	if len(rows) == 0 {
		return errNotFound
	}
	return topicPermissionsOf(c, rows)
}

// putTopicPermission is PUT /api/topic-permissions/{vhost}/{user}.
func putTopicPermission(c *call) error {
	var body struct{ Exchange, Write, Read *string }
	if err := c.read(&body); err != nil {
		return err
	}
	if err := missing("exchange", body.Exchange == nil, "write", body.Write == nil, "read", body.Read == nil); err != nil {
		return err
	}
	p := kernel.TopicPermission{Tenant: c.args[0], User: c.args[1], Exchange: *body.Exchange, Write: *body.Write, Read: *body.Read}
	fresh := true
	for _, old := range c.topicPermissions(topicPermissionBetween) {
		fresh = fresh && old.Exchange != p.Exchange
	}
	if err := c.s.node.PutTopicPermission(c.r.Context(), p); err != nil {
		return nobody(err)
	}
	return c.put(fresh)
}

// deleteTopicPermissions is DELETE /api/topic-permissions/{vhost}/{user}[/{exchange}].
func deleteTopicPermissions(c *call) error {
	exchange := ""
	if len(c.args) == 3 {
		exchange = c.args[2]
	}
	err := c.s.node.DropTopicPermission(c.r.Context(), c.args[0], c.args[1], exchange)
	if err != nil && kernel.CodeOf(err) == kernel.CodeNotFound {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return c.gone()
}
