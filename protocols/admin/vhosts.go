package admin

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trivium-mq/trivium/kernel"
)

// vhostInfo is one tenant, which RabbitMQ calls virtual host.
type vhostInfo struct {
	Name         string            `json:"name"`
	Description  string            `json:"description"`
	Tags         []string          `json:"tags"`
	DefaultType  string            `json:"default_queue_type"`
	Metadata     vhostMetadata     `json:"metadata"`
	Tracing      bool              `json:"tracing"`
	Messages     int64             `json:"messages"`
	Ready        int64             `json:"messages_ready"`
	Unacked      int64             `json:"messages_unacknowledged"`
	ClusterState map[string]string `json:"cluster_state"`
}

type vhostMetadata struct {
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// undefined is how RabbitMQ says that a tenant has no default queue type.
const undefined = "undefined"

// depths are how many messages are ready and held in the queues of a tenant.
type depths struct{ ready, held int64 }

func (s *Server) depths() map[string]depths {
	all := map[string]depths{}
	for _, q := range s.node.QueueStatuses() {
		d := all[q.Address.Tenant]
		all[q.Address.Tenant] = depths{d.ready + q.Info.Ready, d.held + q.Info.Held}
	}
	return all
}

// listed is a list that JSON shows as one, empty or not.
func listed(tags []string) []string {
	if tags == nil {
		return []string{}
	}
	return tags
}

func (s *Server) vhostInfo(t *kernel.Tenant, d depths) vhostInfo {
	tags := listed(t.Tags)
	return vhostInfo{
		Name: t.Name, Description: t.Description, Tags: tags, DefaultType: undefined,
		Metadata: vhostMetadata{t.Description, tags}, ClusterState: map[string]string{s.name(): "running"},
		Messages: d.ready + d.held, Ready: d.ready, Unacked: d.held,
	}
}

// listVHosts is GET /api/vhosts.
func listVHosts(c *call) error {
	rows := []kernel.Tenant{}
	for _, t := range c.s.node.Tenants() {
		if c.is(forMonitor) || c.member(t.Name) {
			rows = append(rows, t)
		}
	}
	all := c.s.depths()
	return list(c, rows, func(t *kernel.Tenant) string { return t.Name }, func(t *kernel.Tenant) any { return c.s.vhostInfo(t, all[t.Name]) })
}

// getVHost is GET /api/vhosts/{vhost}.
func getVHost(c *call) error {
	t, err := c.s.node.Tenant(c.args[0])
	if err != nil {
		return errNotFound
	}
	return one(c, c.s.vhostInfo(&t, c.s.depths()[t.Name]))
}

// words are a list, or a text with commas between them.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(b []byte) error {
	var list []string
	if err := json.Unmarshal(b, &list); err == nil {
		*w = list
		return nil
	}
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("tags are a list or a text: %w", err)
	}
	*w = words{}
	for _, tag := range strings.Split(text, ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			*w = append(*w, tag)
		}
	}
	return nil
}

// vhostBody is what a client may say of a tenant.
type vhostBody struct {
	Description string `json:"description"`
	Tags        words  `json:"tags"`
	Tracing     flag   `json:"tracing"`
	DefaultType string `json:"default_queue_type"`
}

func (b *vhostBody) check() error {
	switch {
	case bool(b.Tracing):
		return badRequest("tracing is not supported")
	case b.DefaultType != "" && b.DefaultType != undefined && b.DefaultType != "classic":
		return badRequest("a default_queue_type is not supported")
	}
	return nil
}

// putVHost is PUT /api/vhosts/{vhost}. Who makes a tenant has all permissions
// in it.
func putVHost(c *call) error {
	var body vhostBody
	if err := c.read(&body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	name, ctx := c.args[0], c.r.Context()
	fresh := !c.s.node.HasTenant(name)
	if err := c.s.node.PutTenant(ctx, kernel.Tenant{Name: name, Description: body.Description, Tags: body.Tags}); err != nil {
		return err
	}
	if fresh {
		err := c.s.node.PutPermission(ctx, kernel.Permission{Tenant: name, User: c.user.Name, Configure: ".*", Write: ".*", Read: ".*"})
		if err != nil {
			return err
		}
	}
	return c.put(fresh)
}

// deleteVHost is DELETE /api/vhosts/{vhost}.
func deleteVHost(c *call) error {
	if !c.s.node.HasTenant(c.args[0]) {
		return errNotFound
	}
	if err := c.s.node.DropTenant(c.r.Context(), c.args[0]); err != nil {
		return err
	}
	return c.gone()
}
