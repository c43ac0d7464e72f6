package broker

import (
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func TestTenants(t *testing.T) {
	b := open(t, t.TempDir())
	wantCode(t, b.PutTenant(soon(t), kernel.Tenant{}), kernel.CodeInvalidName)
	wantCode(t, b.PutTenant(soon(t), kernel.Tenant{Name: strings.Repeat("n", 256)}), kernel.CodeInvalidName)
	wantCode(t, b.DropTenant(soon(t), "none"), kernel.CodeNotFound)
	for _, name := range []string{"a", "a", "b"} {
		if err := b.PutTenant(soon(t), kernel.Tenant{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if list := b.Tenants(); len(list) != 3 || list[0].Name != "/" || list[2].Name != "b" {
		t.Errorf("%+v", list)
	}
	if err := b.PutPermission(soon(t), kernel.Permission{Tenant: "a", User: "guest", Configure: ".*", Write: ".*", Read: ".*"}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	c, err := b.Connect(kernel.Identity{User: "guest", Tenant: "a"}, kernel.ConnectionInfo{Protocol: "test"}, func(err error) { ended <- err })
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		err := <-ended
		c.Close()
		ended <- err
	}()
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	declare(t, c, QueueSpec{Name: "v"})
	publisher(t, c).exchange("", "q", "m")
	if err := c.CommitOffsets(soon(t), "g", nil); err != nil {
		t.Fatal(err)
	}
	old := c.tenant
	if err := b.DropTenant(soon(t), "a"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-ended, kernel.CodeDropped)
	if len(old.groups) != 0 || len(old.topics) != 0 || old.table.Load().Len() != 0 {
		t.Error("something is left")
	}
	if n := len(b.durable.Topics()) + len(b.volatile.Topics()); n != 0 {
		t.Errorf("%d topics are left", n)
	}
	_, err = b.Connect(kernel.Identity{User: "guest", Tenant: "a"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	wantCode(t, err, kernel.CodeNotFound)
	// A publisher that has not noticed makes nothing in it.
	_, err = c.Publisher(nil).ToExchange("", "new", &kernel.Record{}, kernel.PublishOptions{}, 0)
	if err == nil || old.table.Load().Len() != 0 {
		t.Errorf("a queue in a tenant that is gone: %v", err)
	}
}

func TestUsers(t *testing.T) {
	b := open(t, t.TempDir())
	password, hash, bad := "pw", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "?"
	for _, spec := range []UserSpec{
		{}, {Name: "u", Password: &password, NoPassword: true}, {Name: "u", PasswordHash: &bad}, {Name: "u", Tags: []string{""}},
	} {
		if err := b.PutUser(soon(t), spec); err == nil {
			t.Errorf("%+v was taken", spec)
		}
	}
	put := func(spec UserSpec) *kernel.User {
		t.Helper()
		if err := b.PutUser(soon(t), spec); err != nil {
			t.Fatal(err)
		}
		u, err := b.User(spec.Name)
		if err != nil {
			t.Fatal(err)
		}
		return &u
	}
	may := func(password string) bool {
		_, err := b.Login(t.Context(), "u", password, loopback)
		return err == nil
	}
	if u := put(UserSpec{Name: "u", Password: &password, Tags: []string{"management"}}); len(u.Scram) != 2 || !may("pw") || may("PW") {
		t.Error("a password")
	}
	if u := put(UserSpec{Name: "u"}); len(u.Scram) != 2 || len(u.Tags) != 0 || !may("pw") {
		t.Error("a password that is kept")
	}
	if u := put(UserSpec{Name: "u", PasswordHash: &hash}); len(u.Scram) != 0 || may("pw") || !may("test12") || PasswordHash(u) != hash {
		t.Error("a hash")
	}
	if u := put(UserSpec{Name: "u", NoPassword: true}); u.Password != (kernel.PasswordHash{}) || may("") || may("test12") {
		t.Error("no password")
	}
	if _, err := b.Admit("", "/:u", loopback); err != nil {
		t.Error(err)
	}
	_, err := b.Admit("", "nobody", loopback)
	wantCode(t, err, kernel.CodeAccessRefused)
	wantCode(t, b.PutPermission(soon(t), kernel.Permission{Tenant: "/", User: "u", Read: "("}), kernel.CodeInvalid)
	wantCode(t, b.PutPermission(soon(t), kernel.Permission{Tenant: "/", User: "nobody"}), kernel.CodeNotFound)
	wantCode(t, b.DropPermission(soon(t), "/", "u"), kernel.CodeNotFound)
	wantCode(t, b.DropTopicPermission(soon(t), "/", "u", ""), kernel.CodeNotFound)
	if err := b.DropUser(soon(t), "u"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.DropUser(soon(t), "u"), kernel.CodeNotFound)
}
