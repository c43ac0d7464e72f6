package broker

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// userOf makes a user with rights in "/" and connects him.
func userOf(t testing.TB, b *Broker, name, configure, write, read string) *Conn {
	t.Helper()
	if err := b.PutUser(soon(t), UserSpec{Name: name, NoPassword: true}); err != nil {
		t.Fatal(err)
	}
	grant(t, b, name, configure, write, read)
	c, err := b.Connect(kernel.Identity{User: name, Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func grant(t testing.TB, b *Broker, user, configure, write, read string) {
	t.Helper()
	p := kernel.Permission{Tenant: "/", User: user, Configure: configure, Write: write, Read: read}
	if err := b.PutPermission(soon(t), p); err != nil {
		t.Fatal(err)
	}
}

// TestPublishAfterChange: what a publisher remembers of a route is forgotten with
// the rights it was allowed by.
func TestPublishAfterChange(t *testing.T) {
	b := open(t, t.TempDir())
	declare(t, connect(t, b), QueueSpec{Name: "q", Durable: true})
	c := userOf(t, b, "u", "", ".*", "")
	p := c.Publisher(nil)
	defer p.Close()
	send := func() error {
		_, err := p.ToExchange("", "q", &kernel.Record{Value: []byte("m")}, kernel.PublishOptions{}, 0)
		return err
	}
	for range 3 {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		grant(t, b, "u", "", "", "")
		wantCode(t, send(), kernel.CodeAccessRefused)
		wantCode(t, send(), kernel.CodeAccessRefused) // from the plan
		grant(t, b, "u", "", ".*", "")
	}
	if err := b.DropUser(soon(t), "u"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, send(), kernel.CodeAccessRefused)
}

// TestPublishRemembersRights: a publish along a route that was asked for before
// asks for no right again, which would allocate.
func TestPublishRemembersRights(t *testing.T) {
	b := open(t, t.TempDir())
	c := userOf(t, b, "u", "", "^amq\\.(direct|default)$", "")
	p := c.Publisher(nil)
	defer p.Close()
	table := c.tenant.table.Load()
	first := p.byKey(table, "amq.direct", "k")
	if n := testing.AllocsPerRun(100, func() {
		if p.byKey(table, "amq.direct", "k") != first {
			t.Error("another plan")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestDeadLetterRight: who declares a queue with a dead letter exchange could do
// himself what that does.
func TestDeadLetterRight(t *testing.T) {
	b := open(t, t.TempDir())
	args := []kernel.Argument{{Name: argDeadLetter, Value: "dlx"}}
	for _, tc := range []struct {
		user, write, read string
		refused           bool
	}{{"all", "^dlx$", "^q$", false}, {"noread", "^dlx$", "", true}, {"nowrite", "", "^q$", true}} {
		c := userOf(t, b, tc.user, ".*", tc.write, tc.read)
		err := c.allowDeadLetters(&QueueSpec{Name: "q", Arguments: args})
		if (err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.user, err)
		}
	}
}

// TestSameQueue: faults of a declaration that come before those of its arguments,
// in RabbitMQ's words.
func TestSameQueue(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Type: kernel.Quorum, Durable: true, Arguments: []kernel.Argument{{Name: "x-max-length", Value: int64(5)}}})
	u := userOf(t, b, "u", "mine", "", "")
	for _, tc := range []struct {
		c    *Conn
		q    QueueSpec
		want string
	}{
		{c, QueueSpec{Name: "new"}, ""},
		{c, QueueSpec{}, ""},
		{c, QueueSpec{Name: "q", Type: kernel.Quorum}, "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"},
		{c, QueueSpec{Name: "q", Type: kernel.Quorum, Durable: true, Arguments: []kernel.Argument{{Name: "x-max-length"}}},
			"inequivalent arg 'x-max-length' for queue 'q' in vhost '/': received none but current is the value '5' of type 'signedint'"},
		{u, QueueSpec{Name: "new"}, "access to queue 'new' in vhost '/' refused for user 'u'"},
		{u, QueueSpec{Name: "q"}, "access to queue 'q' in vhost '/' refused for user 'u'"},
	} {
		got := ""
		if err, ok := tc.c.SameQueue(tc.q).(*kernel.Error); ok && err != nil {
			got = err.Detail
		}
		if got != tc.want {
			t.Errorf("%+v: %q, want %q", tc.q, got, tc.want)
		}
	}
	err := u.allow(kernel.Write, KindExchange, kernel.ExchangeDefault)
	if e, ok := err.(*kernel.Error); !ok || e.Detail != "access to exchange 'amq.default' in vhost '/' refused for user 'u'" {
		t.Error(err)
	}
}
