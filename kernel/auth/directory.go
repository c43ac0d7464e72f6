package auth

import (
	"github.com/trivium-mq/trivium/kernel"
)

// Source is where users and permissions come from (catalog.State): an immutable
// snapshot.
type Source interface {
	Tenant(name string) (*kernel.Tenant, bool)
	User(name string) (*kernel.User, bool)
	Permission(tenant, user string) (*kernel.Permission, bool)
	TopicPermission(tenant, user, exchange string) (*kernel.TopicPermission, bool)
}

// Directory is who there is and what he may do, as of one moment. Immutable, so
// that whoever has asked it may keep the answer for as long as it is the present
// one. Safe for concurrent use.
type Directory struct {
	src      Source
	compiled *patterns
}

// NewDirectory returns the directory of a source.
func NewDirectory(src Source) *Directory { return &Directory{src: src, compiled: &patterns{}} }

// Next returns the directory of a later source, which shares what d has
// compiled.
func (d *Directory) Next(src Source) *Directory { return &Directory{src: src, compiled: d.compiled} }

// User returns a user, who may not be changed.
func (d *Directory) User(name string) (*kernel.User, bool) { return d.src.User(name) }

// Rights returns what a user may do in a tenant; nil, which may nothing, if he
// has no access to it, or one of the two does not exist. clientID is what
// {client_id} stands for in topic permissions, "" is none.
func (d *Directory) Rights(user, tenant, clientID string) *Rights {
	if _, ok := d.src.User(user); !ok {
		return nil
	}
	if _, ok := d.src.Tenant(tenant); !ok {
		return nil
	}
	p, ok := d.src.Permission(tenant, user)
	if !ok {
		return nil
	}
	return &Rights{
		dir: d, user: user, tenant: tenant, client: clientID,
		acts: [...]pattern{d.compiled.get(p.Configure), d.compiled.get(p.Write), d.compiled.get(p.Read)},
	}
}

// AllRights returns those of somebody who may do everything.
func (d *Directory) AllRights() *Rights { return &Rights{dir: d, all: true} }

// May reports whether a user may do something to the resource of that name. The
// default exchange's is kernel.DefaultExchangeResource.
func (d *Directory) May(user, tenant string, act kernel.Act, name string) bool {
	return d.Rights(user, tenant, "").May(act, name)
}

// Rights are what one user may do in one tenant, as of one Directory. Immutable;
// nil may nothing.
type Rights struct {
	dir                  *Directory
	user, tenant, client string
	acts                 [3]pattern // by kernel.Act
	all                  bool       // whatever they say
}

// May reports whether he may do something to the resource of that name.
func (r *Rights) May(act kernel.Act, name string) bool {
	return r != nil && int(act) < len(r.acts) && (r.all || r.acts[act].match(name))
}

// MayKey reports whether he may publish with a routing key to a topic exchange
// (kernel.Write), or bind or subscribe with it (kernel.Read). May comes first.
func (r *Rights) MayKey(act kernel.Act, exchange, key string) bool {
	if r == nil {
		return false
	}
	if r.all {
		return true
	}
	p, ok := r.dir.src.TopicPermission(r.tenant, r.user, exchange)
	if !ok {
		return true
	}
	text := p.Read
	if act == kernel.Write {
		text = p.Write
	}
	if expanded := expand(text, r.user, r.tenant, r.client); expanded != text {
		// One per connection, so not kept with those of everybody.
		own, err := compile(expanded)
		return err == nil && own.match(key)
	}
	return r.dir.compiled.get(text).match(key)
}
