package broker

import (
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
)

// ownerName is a user's name. It is written with the session locked, and read
// without.
type ownerName struct{ name atomic.Pointer[string] }

func (o *ownerName) set(user string) { o.name.Store(&user) }

// get returns "" if there is none.
func (o *ownerName) get() string {
	if p := o.name.Load(); p != nil {
		return *p
	}
	return ""
}

// allowSession returns CodeLocked if a session belongs to another user. An
// administrator may take any, which makes it his. The session is locked.
func (c *Conn) allowSession(e *sessionEntry) error {
	owner := e.owner.get()
	if e.fresh || e.orphan || owner == "" || owner == c.identity.User || c.HasTag(kernel.TagAdministrator) {
		return nil
	}
	return kernel.Errorf(kernel.CodeLocked, "session", e.id, "it belongs to another user")
}

// orphan discards the sessions of a user who has been deleted: one who is made
// with his name does not inherit them. Those that are attached go when their
// connections do, which are told to end. access.mu is held.
func (b *Broker) orphan(user string) {
	ctx, cancel := b.changeContext()
	defer cancel()
	for _, t := range b.tenants.load() {
		for _, e := range t.allSessions() {
			e.mu.Lock()
			if e.owner.get() == user && !e.gone && !e.fresh {
				if e.orphan = true; e.holder == nil {
					e.discard(ctx)
				}
			}
			e.mu.Unlock()
		}
	}
}

// allSessions returns the sessions of the tenant, none locked.
func (t *tenant) allSessions() []*sessionEntry {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*sessionEntry, 0, len(t.sessions))
	for _, e := range t.sessions {
		list = append(list, e)
	}
	return list
}
