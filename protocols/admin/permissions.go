package admin

import (
	"github.com/trivium-mq/trivium/kernel"
)

// permissionInfo is what a user may do in a tenant.
type permissionInfo struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

func describePermission(p *kernel.Permission) any {
	return permissionInfo{p.User, p.Tenant, p.Configure, p.Write, p.Read}
}

// listPermissions answers with the permissions that want admits.
func listPermissions(want func(c *call, p *kernel.Permission) bool) handler {
	return func(c *call) error {
		rows := []kernel.Permission{}
		for _, p := range c.s.node.Permissions() {
			if want(c, &p) {
				rows = append(rows, p)
			}
		}
		return list(c, rows, func(p *kernel.Permission) string { return p.User }, func(p *kernel.Permission) any { return describePermission(p) })
	}
}

func everyPermission(*call, *kernel.Permission) bool      { return true }
func permissionOf(c *call, p *kernel.Permission) bool     { return p.User == c.args[0] }
func permissionWithin(c *call, p *kernel.Permission) bool { return p.Tenant == c.args[0] }

// vhostPermissions is GET /api/vhosts/{vhost}/permissions.
func vhostPermissions(c *call) error {
	if !c.s.node.HasTenant(c.args[0]) {
		return errNotFound
	}
	return listPermissions(permissionWithin)(c)
}

// getPermission is GET /api/permissions/{vhost}/{user}.
func getPermission(c *call) error {
	p, err := c.s.node.Permission(c.args[0], c.args[1])
	if err != nil {
		return errNotFound
	}
	return one(c, describePermission(&p))
}

// putPermission is PUT /api/permissions/{vhost}/{user}.
func putPermission(c *call) error {
	var body struct{ Configure, Write, Read *string }
	if err := c.read(&body); err != nil {
		return err
	}
	if err := missing("configure", body.Configure == nil, "write", body.Write == nil, "read", body.Read == nil); err != nil {
		return err
	}
	_, absent := c.s.node.Permission(c.args[0], c.args[1])
	err := c.s.node.PutPermission(c.r.Context(), kernel.Permission{
		Tenant: c.args[0], User: c.args[1], Configure: *body.Configure, Write: *body.Write, Read: *body.Read,
	})
	if err != nil {
		return nobody(err)
	}
	return c.put(absent != nil)
}

// nobody gives the missing end of a permission RabbitMQ's name.
func nobody(err error) error {
	if kernel.CodeOf(err) == kernel.CodeNotFound {
		return badRequest("vhost_or_user_not_found")
	}
	return err
}

// deletePermission is DELETE /api/permissions/{vhost}/{user}.
func deletePermission(c *call) error {
	err := c.s.node.DropPermission(c.r.Context(), c.args[0], c.args[1])
	if err != nil && kernel.CodeOf(err) == kernel.CodeNotFound {
		return errNotFound
	}
	if err != nil {
		return err
	}
	return c.gone()
}
