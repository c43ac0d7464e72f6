package admin

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// userInfo is one user, as listed and as exported.
type userInfo struct {
	Name      string         `json:"name"`
	Hash      string         `json:"password_hash"`
	Algorithm string         `json:"hashing_algorithm,omitempty"`
	Tags      []string       `json:"tags"`
	Limits    map[string]any `json:"limits"`
}

func describeUser(u *kernel.User) userInfo {
	info := userInfo{
		Name: u.Name, Hash: broker.PasswordHash(u), Algorithm: string(u.Password.Algorithm), Tags: listed(u.Tags), Limits: map[string]any{},
	}
	return info
}

// listUsers is GET /api/users; usersWithout is GET /api/users/without-permissions.
func listUsers(c *call) error { return usersOf(c, c.s.node.Users()) }

func usersWithout(c *call) error {
	has := map[string]bool{}
	for _, p := range c.s.node.Permissions() {
		has[p.User] = true
	}
	var rows []kernel.User
	for _, u := range c.s.node.Users() {
		if !has[u.Name] {
			rows = append(rows, u)
		}
	}
	return usersOf(c, rows)
}

func usersOf(c *call, rows []kernel.User) error {
	return list(c, rows, func(u *kernel.User) string { return u.Name }, func(u *kernel.User) any { return describeUser(u) })
}

// getUser is GET /api/users/{name}.
func getUser(c *call) error {
	u, err := c.s.node.User(c.args[0])
	if err != nil {
		return errNotFound
	}
	return one(c, describeUser(&u))
}

// userBody is what a client may say of a user.
type userBody struct {
	Name      string         `json:"name"` // in definitions
	Password  *string        `json:"password"`
	Hash      *string        `json:"password_hash"`
	Algorithm string         `json:"hashing_algorithm"`
	Tags      *words         `json:"tags"`
	Limits    map[string]any `json:"limits"`
	// Keep, which RabbitMQ does not have, changes the tags alone.
	Keep flag `json:"keep_password"`
}

func (b *userBody) spec(name string) (broker.UserSpec, error) {
	if b.Tags == nil {
		return broker.UserSpec{}, badRequest("tags_not_present")
	}
	if len(b.Limits) > 0 {
		return broker.UserSpec{}, badRequest("limits of users are not supported")
	}
	spec := broker.UserSpec{Name: name, Tags: *b.Tags, HashAlgorithm: kernel.HashAlgorithm(b.Algorithm)}
	switch {
	case b.Hash != nil && *b.Hash == "":
		spec.NoPassword = true
	case b.Hash != nil:
		spec.PasswordHash = b.Hash
	default:
		spec.Password = b.Password
	}
	return spec, nil
}

// putUser is PUT /api/users/{name}. Without password and password_hash an
// existing user's password is removed, as RabbitMQ does.
func putUser(c *call) error {
	var body userBody
	if err := c.read(&body); err != nil {
		return err
	}
	spec, err := body.spec(c.args[0])
	if err != nil {
		return err
	}
	if spec.Password == nil && spec.PasswordHash == nil {
		spec.NoPassword = !bool(body.Keep)
	}
	_, missing := c.s.node.User(spec.Name)
	if err := c.s.node.PutUser(c.r.Context(), spec); err != nil {
		return err
	}
	return c.put(missing != nil)
}

// deleteUser is DELETE /api/users/{name}.
func deleteUser(c *call) error {
	if _, err := c.s.node.User(c.args[0]); err != nil {
		return errNotFound
	}
	if err := c.s.node.DropUser(c.r.Context(), c.args[0]); err != nil {
		return err
	}
	return c.gone()
}

// deleteUsers is POST /api/users/bulk-delete.
func deleteUsers(c *call) error {
	var body struct {
		Users []string `json:"users"`
	}
	if err := c.read(&body); err != nil {
		return err
	}
	for _, name := range body.Users {
		if err := c.s.node.DropUser(c.r.Context(), name); err != nil && kernel.CodeOf(err) != kernel.CodeNotFound {
			return err
		}
	}
	return c.gone()
}
