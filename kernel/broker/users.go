package broker

import (
	"context"
	"slices"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

// UserSpec says what a user is to be. Of Password, PasswordHash and NoPassword
// one at most is given; without any an existing user keeps his, and a new one
// has none: he can be authenticated from outside only, by a certificate.
type UserSpec struct {
	Name     string
	Tags     []string
	Password *string // in clear; keys for SCRAM are derived from it
	// PasswordHash is a hash as auth.ParseHash reads it: RabbitMQ's base64, or
	// bcrypt. HashAlgorithm "" tells the algorithm by its form. Keys for SCRAM
	// cannot be derived from one.
	PasswordHash  *string
	HashAlgorithm kernel.HashAlgorithm
	NoPassword    bool
}

// Users lists the users by name.
func (b *Broker) Users() []kernel.User {
	var list []kernel.User
	b.catalog.State().Users(func(u *kernel.User) { list = append(list, *u) })
	return list
}

// User returns a user: CodeNotFound.
func (b *Broker) User(name string) (kernel.User, error) {
	if u, ok := b.catalog.State().User(name); ok {
		return *u, nil
	}
	return kernel.User{}, noUser(name)
}

func noUser(name string) error {
	return kernel.Errorf(kernel.CodeNotFound, "user", name, "no user '%s'", name)
}

// PasswordHash writes a user's password hash as UserSpec.PasswordHash reads it.
func PasswordHash(u *kernel.User) string { return auth.FormatHash(u.Password) }

// PutUser makes a user or replaces tags and password of the one of that name.
// Open connections stay. It is durable when it returns. CodeInvalidName,
// CodeInvalid.
func (b *Broker) PutUser(ctx context.Context, spec UserSpec) error {
	if err := kernel.CheckName("user", spec.Name); err != nil {
		return err
	}
	for _, tag := range spec.Tags {
		if err := kernel.CheckName("tag", tag); err != nil {
			return err
		}
	}
	u := kernel.User{Name: spec.Name, Tags: slices.Clone(spec.Tags)}
	keep, err := spec.secret(&u) // slow, so without the lock
	if err != nil {
		return err
	}
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	if old, ok := b.catalog.State().User(u.Name); ok && keep {
		u.Password, u.Scram = old.Password, old.Scram
	}
	return b.changeAccess(ctx, catalog.PutUser{User: u})
}

// secret sets the password of u. keep says that none is given.
func (spec *UserSpec) secret(u *kernel.User) (keep bool, err error) {
	given := 0
	for _, is := range []bool{spec.Password != nil, spec.PasswordHash != nil, spec.NoPassword} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return false, kernel.Errorf(kernel.CodeInvalid, "user", spec.Name, "password, password hash and no password exclude each other")
	case spec.Password != nil:
		if u.Password, err = auth.HashPassword(*spec.Password); err != nil {
			return false, err
		}
		u.Scram, err = auth.ScramKeys(*spec.Password)
		return false, err
	case spec.PasswordHash != nil:
		u.Password, err = auth.ParseHash(*spec.PasswordHash, spec.HashAlgorithm)
		return false, err
	}
	return !spec.NoPassword, nil
}

// DropUser removes a user with his permissions and sessions; his connections are closed. The
// last administrator may go too. CodeNotFound.
func (b *Broker) DropUser(ctx context.Context, name string) error {
	b.access.mu.Lock()
	defer b.access.mu.Unlock()
	if _, ok := b.catalog.State().User(name); !ok {
		return noUser(name)
	}
	if err := b.changeAccess(ctx, catalog.DropUser{Name: name}); err != nil {
		return err
	}
	b.orphan(name)
	return nil
}
