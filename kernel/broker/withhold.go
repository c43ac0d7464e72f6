package broker

import (
	"context"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
)

// withhold moves groups to the end of a topic that is about to lose its right of
// its own, or has just lost it: those whose readers have not had that right and
// would get with the next subscription what it kept from them. Of a session that
// is the owner; of a share group, which is nobody's, any user who may read it.
func (t *tenant) withhold(ctx context.Context, kt *kernel.Topic) error {
	if kt.Kind != kernel.Plain {
		return nil
	}
	t.mu.Lock()
	var groups []*group
	for g := range t.topics[kt.ID].groups.all() {
		if !g.spec.Address.IsOwn() {
			groups = append(groups, g)
		}
	}
	t.mu.Unlock()
	for _, g := range groups {
		if t.mayRead(g, kt.Name) {
			continue
		}
		if err := g.place.Rewind(ctx, g.id, kernel.Position{Kind: kernel.AtEnd}); err != nil {
			return fmt.Errorf("withhold the backlog of %q: %w", kt.Name, err)
		}
	}
	return nil
}

// mayRead reports whether all who may read a group now may read a topic.
func (t *tenant) mayRead(g *group, topic string) bool {
	d := t.b.directory()
	if client, ok := g.spec.Address.Session(); ok {
		t.mu.Lock()
		e := t.sessions[client]
		t.mu.Unlock()
		if e == nil {
			return false
		}
		r := d.Rights(e.owner.get(), t.name, client)
		return r != nil && r.May(kernel.Read, topic)
	}
	all, name := true, groupResource(g.spec.Address)
	t.b.catalog.State().Users(func(u *kernel.User) {
		r := d.Rights(u.Name, t.name, "")
		if r != nil && r.May(kernel.Read, name) && !r.May(kernel.Read, topic) {
			all = false
		}
	})
	return all
}
