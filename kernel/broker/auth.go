package broker

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// access is who may do what on a node.
type access struct {
	mu       sync.Mutex // one change at a time, from its commit to the directory
	dir      atomic.Pointer[auth.Directory]
	verifier *auth.Verifier
	throttle *auth.Throttle
	secret   []byte // of made up SCRAM keys
	log      zerolog.Logger
	refusals zerolog.Logger // not more than refusalLines
	changed  chan struct{}  // cap 1: open connections are to be looked at
}

// refusalLines is how many refused logins are logged in a minute.
const refusalLines = 60

func newAccess(l auth.ThrottleLimits, log zerolog.Logger) *access {
	return &access{
		verifier: auth.NewVerifier(), throttle: auth.NewThrottle(l), changed: make(chan struct{}, 1), log: log,
		refusals: log.Sample(&zerolog.BurstSampler{Burst: refusalLines, Period: time.Minute}),
	}
}

// Admin is an administrator whom the configuration names.
type Admin struct {
	User string // "" = none: the first start makes the default user
	// Password, or PasswordHash as UserSpec has it; not both.
	Password, PasswordHash string
}

// directory returns who there is now and what he may do.
func (b *Broker) directory() *auth.Directory { return b.access.dir.Load() }

// Directory returns who there is now and what he may do: an immutable snapshot.
func (b *Broker) Directory() *auth.Directory { return b.directory() }

// commitAccess commits a change that is finished even when ctx ends. access.mu
// is held.
func (b *Broker) commitAccess(ctx context.Context, ops ...catalog.Op) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cctx, cancel := b.changeContext()
	defer cancel()
	return b.commit(cctx, ops...)
}

// publishAccess makes the catalog's state the present directory and has open
// connections looked at. access.mu is held.
func (b *Broker) publishAccess() {
	b.access.dir.Store(b.directory().Next(b.catalog.State()))
	b.recheck()
}

// changeAccess commits and publishes. access.mu is held.
func (b *Broker) changeAccess(ctx context.Context, ops ...catalog.Op) error {
	if err := b.commitAccess(ctx, ops...); err != nil {
		return err
	}
	b.publishAccess()
	return nil
}

// loadAccess makes the first tenant and user where there are none, and the
// administrator of the configuration; then the tenants and the directory.
func (b *Broker) loadAccess(ctx context.Context, admin Admin) error {
	state := b.catalog.State()
	var ops []catalog.Op
	first := state.Unclaimed()
	if first {
		ops = append(ops, catalog.PutTenant{Tenant: kernel.Tenant{Name: kernel.DefaultTenant, Description: "Default virtual host"}})
	}
	u, err := b.firstUser(state, admin, first)
	if err != nil {
		return err
	}
	if u != nil {
		ops = append(ops, catalog.PutUser{User: *u})
		if _, known := state.User(u.Name); !known && (first || hasTenant(state, kernel.DefaultTenant)) {
			ops = append(ops, catalog.PutPermission{Permission: kernel.Permission{
				Tenant: kernel.DefaultTenant, User: u.Name, Configure: ".*", Write: ".*", Read: ".*",
			}})
		}
	}
	if err := b.commit(ctx, ops...); err != nil {
		return err
	}
	state = b.catalog.State()
	state.Tenants(func(t *kernel.Tenant) { b.tenants.put(newTenant(b, t.Name)) })
	b.access.dir.Store(auth.NewDirectory(state))
	return nil
}

func hasTenant(state *catalog.State, name string) bool {
	_, ok := state.Tenant(name)
	return ok
}

// firstUser returns the user that the start has to put, nil if none.
func (b *Broker) firstUser(state *catalog.State, admin Admin, first bool) (*kernel.User, error) {
	switch {
	case admin.User != "":
		return configured(state, admin)
	case admin.Password != "" || admin.PasswordHash != "":
		return nil, kernel.Errorf(kernel.CodeInvalid, "user", "", "the administrator of the configuration has a password, but no name")
	case first:
		keys, err := auth.ScramKeys(auth.DefaultPassword)
		return &kernel.User{
			Name: auth.DefaultUser, Tags: []string{kernel.TagAdministrator}, Password: auth.SaltedHash(auth.DefaultPassword), Scram: keys,
		}, err
	}
	return nil, nil
}

// configured returns the administrator of the configuration if he is not yet
// there as it says.
func configured(state *catalog.State, admin Admin) (*kernel.User, error) {
	spec := UserSpec{Name: admin.User}
	if err := kernel.CheckName("user", admin.User); err != nil {
		return nil, err
	}
	if admin.Password != "" {
		spec.Password = &admin.Password
	}
	if admin.PasswordHash != "" {
		spec.PasswordHash = &admin.PasswordHash
	}
	old, known := state.User(admin.User)
	if !known && spec.Password == nil && spec.PasswordHash == nil {
		return nil, kernel.Errorf(kernel.CodeInvalid, "user", admin.User, "the administrator of the configuration has no password")
	}
	if known && old.HasTag(kernel.TagAdministrator) && spec.PasswordHash == nil &&
		(spec.Password == nil || len(old.Scram) > 0 && auth.CheckPassword(old.Password, admin.Password)) {
		return nil, nil
	}
	u := kernel.User{Name: admin.User, Tags: []string{kernel.TagAdministrator}}
	keep, err := spec.secret(&u)
	if err != nil {
		return nil, err
	}
	if known {
		u.Tags = old.Tags
		if !old.HasTag(kernel.TagAdministrator) {
			u.Tags = append(slices.Clone(old.Tags), kernel.TagAdministrator)
		}
		if keep || u.Password == old.Password {
			u.Password, u.Scram = old.Password, old.Scram
			if old.HasTag(kernel.TagAdministrator) {
				return nil, nil
			}
		}
	}
	return &u, nil
}

// MayEnter returns CodeAccessRefused unless the identity has access to its
// tenant, CodeNotFound if there is no such tenant.
func (b *Broker) MayEnter(id kernel.Identity) error {
	if !b.HasTenant(id.Tenant) {
		return noTenant(id.Tenant)
	}
	if b.directory().Rights(id.User, id.Tenant, "") == nil {
		return kernel.Errorf(kernel.CodeAccessRefused, "tenant", id.Tenant, "access to vhost '%s' refused for user '%s'", id.Tenant, id.User)
	}
	return nil
}
