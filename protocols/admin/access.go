package admin

import (
	"net/http"

	"github.com/trivium-mq/trivium/kernel"
)

// level is which tags a resource asks for. Each includes those above it in the
// list, but a policymaker is not a monitor.
type level uint8

const (
	anyUser       level = iota // with one of the tags
	forMonitor                 // monitoring, administrator
	forPolicy                  // policymaker, administrator
	administrator              // administrator
)

// login finds out who asks.
func (c *call) login() error {
	name, password, ok := c.r.BasicAuth()
	if !ok {
		return &refusal{http.StatusUnauthorized, "not_authorized", "Not_Authorized"}
	}
	u, err := c.s.node.Login(c.r.Context(), name, password, c.remote())
	if err != nil {
		c.s.node.Counters(protocol).Refused.Add(1)
		if kernel.CodeOf(err) == kernel.CodeLimit {
			return &refusal{http.StatusTooManyRequests, "too_many_requests", "Too many failed logins from this address"}
		}
		return &refusal{http.StatusUnauthorized, "not_authorized", "Login failed"}
	}
	c.user = *u
	if v := c.visitor(); v != nil {
		v.loggedIn()
	}
	return nil
}

func (c *call) tagged(tags ...string) bool {
	for _, tag := range tags {
		if c.user.HasTag(tag) {
			return true
		}
	}
	return false
}

// is reports whether the user has a level.
func (c *call) is(l level) bool {
	switch l {
	case administrator:
		return c.tagged(kernel.TagAdministrator)
	case forMonitor:
		return c.tagged(kernel.TagAdministrator, kernel.TagMonitoring)
	case forPolicy:
		return c.tagged(kernel.TagAdministrator, kernel.TagPolicymaker)
	default:
		return c.tagged(kernel.TagAdministrator, kernel.TagMonitoring, kernel.TagPolicymaker, kernel.TagManagement)
	}
}

// allowed refuses a user without a level in RabbitMQ's words.
func (c *call) allowed(l level) error {
	switch {
	case !c.is(anyUser):
		return unauthorised("Not management user")
	case c.is(l):
		return nil
	case l == forMonitor:
		return unauthorised("Not monitor user")
	case l == forPolicy:
		return unauthorised("Not policymaker")
	default:
		return unauthorised("Not administrator user")
	}
}

// enter checks that the user may use a tenant; monitors may look into all.
func (c *call) enter(vhost string) error {
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	if !c.s.node.HasTenant(vhost) {
		if reads {
			return errNotFound
		}
		return &refusal{http.StatusNotFound, "not_found", "vhost_not_found"}
	}
	if c.member(vhost) || reads && c.is(forMonitor) {
		return nil
	}
	return unauthorised("User not authorised to access virtual host")
}

// member reports whether the user has permissions in a tenant.
func (c *call) member(vhost string) bool {
	return c.s.node.MayEnter(kernel.Identity{User: c.user.Name, Tenant: vhost}) == nil
}

// visible are the tenants whose resources the user may see: all for a monitor,
// else his own. By name.
func (c *call) visible() []string {
	var names []string
	for _, t := range c.s.node.Tenants() {
		if c.is(forMonitor) || c.member(t.Name) {
			names = append(names, t.Name)
		}
	}
	return names
}
