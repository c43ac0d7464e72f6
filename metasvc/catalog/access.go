package catalog

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// Who may do what: tenants, users and permissions.

// PutTenant makes a tenant or replaces its properties.
type PutTenant struct{ Tenant kernel.Tenant }

// DropTenant removes a tenant with everything in it; a missing one is no error.
type DropTenant struct{ Name string }

// PutUser makes a user or replaces all of him.
type PutUser struct{ User kernel.User }

// DropUser removes a user with his permissions; a missing one is no error.
type DropUser struct{ Name string }

// PutPermission sets a user's permissions in a tenant. CodeNotFound if one of
// the two is missing.
type PutPermission struct{ Permission kernel.Permission }

// DropPermission removes a user's permissions in a tenant, and with them his
// access to it; absent ones are no error.
type DropPermission struct{ Tenant, User string }

// PutTopicPermission sets a user's topic permissions at an exchange.
// CodeNotFound if user or tenant are missing.
type PutTopicPermission struct{ Permission kernel.TopicPermission }

// DropTopicPermission removes a user's topic permissions at an exchange; absent
// ones are no error.
type DropTopicPermission struct{ Tenant, User, Exchange string }

func (PutTenant) kind() opKind           { return opPutTenant }
func (DropTenant) kind() opKind          { return opDropTenant }
func (PutUser) kind() opKind             { return opPutUser }
func (DropUser) kind() opKind            { return opDropUser }
func (PutPermission) kind() opKind       { return opPutPermission }
func (DropPermission) kind() opKind      { return opDropPermission }
func (PutTopicPermission) kind() opKind  { return opPutTopicPermission }
func (DropTopicPermission) kind() opKind { return opDropTopicPermission }

func (op PutTenant) apply(s *State, _ *Result) error {
	t := op.Tenant
	s.tenants = s.tenants.Put(t.Name, &t)
	return nil
}

func (op DropTenant) apply(s *State, res *Result) error {
	s.tenants = s.tenants.Delete(op.Name)
	prefix := join(op.Name, "")
	var err error
	s.names.Walk(prefix, func(_ string, t *kernel.Topic) bool {
		err = DropTopic{t.ID}.apply(s, res)
		return err == nil
	})
	if err != nil {
		return err
	}
	s.exchanges.Walk(prefix, func(_ string, x *kernel.Exchange) bool {
		err = DropExchange{x.Tenant, x.Name}.apply(s, res)
		return err == nil
	})
	// Bindings between exchanges that are always there belong to neither.
	s.bindings, s.sources = s.bindings.DeletePrefix(prefix), s.sources.DeletePrefix(prefix)
	s.permissions = s.permissions.DeletePrefix(prefix)
	s.topicPermissions = s.topicPermissions.DeletePrefix(prefix)
	s.policies = s.policies.DeletePrefix(prefix)
	return err
}

func (op PutUser) apply(s *State, _ *Result) error {
	u := op.User
	s.users = s.users.Put(u.Name, &u)
	return nil
}

func (op DropUser) apply(s *State, _ *Result) error {
	s.users = s.users.Delete(op.Name)
	s.permissions.Each(func(p *kernel.Permission) {
		if p.User == op.Name {
			s.permissions = s.permissions.Delete(join(p.Tenant, p.User))
		}
	})
	s.topicPermissions.Each(func(p *kernel.TopicPermission) {
		if p.User == op.Name {
			s.topicPermissions = s.topicPermissions.Delete(join(p.Tenant, p.User, p.Exchange))
		}
	})
	return nil
}

// ends checks that a permission's user and tenant exist.
func (s *State) ends(tenant, user string) error {
	if !s.tenants.Has(tenant) {
		return kernel.Errorf(kernel.CodeNotFound, "tenant", tenant, "it does not exist")
	}
	if !s.users.Has(user) {
		return kernel.Errorf(kernel.CodeNotFound, "user", user, "it does not exist")
	}
	return nil
}

func (op PutPermission) apply(s *State, _ *Result) error {
	p := op.Permission
	if err := s.ends(p.Tenant, p.User); err != nil {
		return err
	}
	s.permissions = s.permissions.Put(join(p.Tenant, p.User), &p)
	return nil
}

func (op DropPermission) apply(s *State, _ *Result) error {
	s.permissions = s.permissions.Delete(join(op.Tenant, op.User))
	return nil
}

func (op PutTopicPermission) apply(s *State, _ *Result) error {
	p := op.Permission
	if err := s.ends(p.Tenant, p.User); err != nil {
		return err
	}
	s.topicPermissions = s.topicPermissions.Put(join(p.Tenant, p.User, p.Exchange), &p)
	return nil
}

func (op DropTopicPermission) apply(s *State, _ *Result) error {
	s.topicPermissions = s.topicPermissions.Delete(join(op.Tenant, op.User, op.Exchange))
	return nil
}

// Tenant returns a tenant by name.
func (s *State) Tenant(name string) (*kernel.Tenant, bool) { return s.tenants.Get(name) }

// User returns a user by name.
func (s *State) User(name string) (*kernel.User, bool) { return s.users.Get(name) }

// Permission returns what a user may do in a tenant.
func (s *State) Permission(tenant, user string) (*kernel.Permission, bool) {
	return s.permissions.Get(join(tenant, user))
}

// TopicPermission returns a user's topic permissions at an exchange.
func (s *State) TopicPermission(tenant, user, exchange string) (*kernel.TopicPermission, bool) {
	return s.topicPermissions.Get(join(tenant, user, exchange))
}

// Tenants calls fn for every tenant, by name.
func (s *State) Tenants(fn func(*kernel.Tenant)) { s.tenants.Each(fn) }

// Users calls fn for every user, by name.
func (s *State) Users(fn func(*kernel.User)) { s.users.Each(fn) }

// Permissions calls fn for all permissions, by tenant and user.
func (s *State) Permissions(fn func(*kernel.Permission)) { s.permissions.Each(fn) }

// TopicPermissions calls fn for all topic permissions, by tenant, user and
// exchange.
func (s *State) TopicPermissions(fn func(*kernel.TopicPermission)) { s.topicPermissions.Each(fn) }

// Unclaimed reports whether there has never been a user or tenant: a new
// catalog, or one from before there were any.
func (s *State) Unclaimed() bool { return s.tenants.Len() == 0 && s.users.Len() == 0 }

// accessLen is how many ops writeAccess makes.
func (s *State) accessLen() int {
	return s.tenants.Len() + s.users.Len() + s.permissions.Len() + s.topicPermissions.Len()
}

// putAccess makes the ops of a snapshot; permissions need their ends first.
func (s *State) putAccess(put func(Op)) {
	s.Tenants(func(t *kernel.Tenant) { put(PutTenant{*t}) })
	s.Users(func(u *kernel.User) { put(PutUser{*u}) })
	s.Permissions(func(p *kernel.Permission) { put(PutPermission{*p}) })
	s.TopicPermissions(func(p *kernel.TopicPermission) { put(PutTopicPermission{*p}) })
}

func (op PutTenant) append(b []byte) []byte {
	b = appendStrings(b, op.Tenant.Name, op.Tenant.Description)
	return appendList(b, op.Tenant.Tags)
}

func (op DropTenant) append(b []byte) []byte { return codec.AppendString(b, op.Name) }

func (op PutUser) append(b []byte) []byte {
	u := &op.User
	b = appendList(codec.AppendString(b, u.Name), u.Tags)
	b = appendStrings(b, string(u.Password.Algorithm), u.Password.Hash)
	b = codec.AppendUint(b, uint64(len(u.Scram)))
	for _, k := range u.Scram {
		b = codec.AppendUint(codec.AppendString(b, k.Mechanism), uint64(k.Iterations))
		b = appendStrings(b, string(k.Salt), string(k.StoredKey), string(k.ServerKey))
	}
	return b
}

func (op DropUser) append(b []byte) []byte { return codec.AppendString(b, op.Name) }

func (op PutPermission) append(b []byte) []byte {
	p := &op.Permission
	return appendStrings(b, p.Tenant, p.User, p.Configure, p.Write, p.Read)
}

func (op DropPermission) append(b []byte) []byte { return appendStrings(b, op.Tenant, op.User) }

func (op PutTopicPermission) append(b []byte) []byte {
	p := &op.Permission
	return appendStrings(b, p.Tenant, p.User, p.Exchange, p.Write, p.Read)
}

func (op DropTopicPermission) append(b []byte) []byte {
	return appendStrings(b, op.Tenant, op.User, op.Exchange)
}

// readAccess reads an op of this file.
func readAccess(kind opKind, r *codec.Reader) Op {
	switch kind {
	case opPutTenant:
		return PutTenant{kernel.Tenant{Name: r.String(), Description: r.String(), Tags: readList(r)}}
	case opDropTenant:
		return DropTenant{r.String()}
	case opPutUser:
		return PutUser{readUser(r)}
	case opDropUser:
		return DropUser{r.String()}
	case opPutPermission:
		return PutPermission{kernel.Permission{Tenant: r.String(), User: r.String(), Configure: r.String(), Write: r.String(), Read: r.String()}}
	case opDropPermission:
		return DropPermission{Tenant: r.String(), User: r.String()}
	case opPutTopicPermission:
		return PutTopicPermission{kernel.TopicPermission{Tenant: r.String(), User: r.String(), Exchange: r.String(), Write: r.String(), Read: r.String()}}
	case opDropTopicPermission:
		return DropTopicPermission{Tenant: r.String(), User: r.String(), Exchange: r.String()}
	}
	return nil
}

func readUser(r *codec.Reader) kernel.User {
	u := kernel.User{Name: r.String(), Tags: readList(r)}
	u.Password = kernel.PasswordHash{Algorithm: kernel.HashAlgorithm(r.String()), Hash: r.String()}
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		u.Scram = append(u.Scram, kernel.ScramKey{
			Mechanism: r.String(), Iterations: int(r.Uint()),
			Salt: []byte(r.String()), StoredKey: []byte(r.String()), ServerKey: []byte(r.String()),
		})
	}
	return u
}

func appendStrings(b []byte, list ...string) []byte {
	for _, s := range list {
		b = codec.AppendString(b, s)
	}
	return b
}

// appendList appends a number of strings and the strings.
func appendList(b []byte, list []string) []byte {
	return appendStrings(codec.AppendUint(b, uint64(len(list))), list...)
}

// readList reads what appendList wrote; none is nil.
func readList(r *codec.Reader) (list []string) {
	for range r.Count() {
		list = append(list, r.String())
	}
	return list
}
