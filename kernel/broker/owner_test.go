package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/placement"
	"github.com/trivium-mq/trivium/kernel/session"
)

// TestSessionHasAnOwner: nobody takes or empties the session of another user by
// its client id, attached or away, also after a restart; an administrator may.
func TestSessionHasAnOwner(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	alice, mallory := userOf(t, b, "alice", ".*", ".*", ".*"), userOf(t, b, "mallory", ".*", ".*", ".*")
	refused := func(clean bool) {
		t.Helper()
		_, _, err := mallory.AttachSession(soon(t), Attaching{ClientID: "dev", Clean: clean, Expiry: time.Hour}, nil)
		wantCode(t, err, kernel.CodeLocked)
	}
	s, _ := attach(t, alice, "dev", false, time.Hour)
	subscribe(t, s, "a/#", 1)
	refused(false)
	s.Detach(time.Hour)
	refused(false)
	refused(true)
	shut(t, b)
	b = open(t, dir)
	reconnect := func(user string) *Conn {
		c, err := b.Connect(kernel.Identity{User: user, Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	mallory = reconnect("mallory")
	refused(true)
	s, present := attach(t, reconnect("alice"), "dev", false, time.Hour)
	if !present || len(s.State().Subscriptions) != 1 {
		t.Errorf("alice's session: %v, %v", present, s.State())
	}
	s.Detach(time.Hour)
	if s, present = attach(t, connect(t, b), "dev", false, time.Hour); !present {
		t.Error("an administrator did not get it")
	}
	s.Detach(time.Hour)
	_, _, err := reconnect("alice").AttachSession(soon(t), Attaching{ClientID: "dev", Expiry: time.Hour}, nil)
	wantCode(t, err, kernel.CodeLocked)
}

// TestSessionWithoutOwner: a record of version 1 belongs to who comes first.
func TestSessionWithoutOwner(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	key := session.SessionKey("/", "old")
	if err := b.durable.Put(soon(t), []placement.KV{{Key: key, Value: session.Record{Expiry: time.Hour}.Append(nil)}}); err != nil {
		t.Fatal(err)
	}
	shut(t, b)
	b = open(t, dir)
	s, present := attach(t, userOf(t, b, "alice", ".*", ".*", ".*"), "old", false, time.Hour)
	if !present {
		t.Error("the session is not there")
	}
	s.Detach(time.Hour)
	_, _, err := userOf(t, b, "mallory", ".*", ".*", ".*").AttachSession(soon(t), Attaching{ClientID: "old", Expiry: time.Hour}, nil)
	wantCode(t, err, kernel.CodeLocked)
}

// TestSessionsGoWithTheirUser: one who is made with the name of a deleted user
// does not inherit what was kept for him.
func TestSessionsGoWithTheirUser(t *testing.T) {
	b := open(t, t.TempDir())
	alice := userOf(t, b, "alice", ".*", ".*", ".*")
	s, _ := attach(t, alice, "away", false, time.Hour)
	s.Detach(time.Hour)
	there, _ := attach(t, alice, "there", false, time.Hour)
	if err := b.DropUser(soon(t), "alice"); err != nil {
		t.Fatal(err)
	}
	there.Detach(time.Hour) // as its connection does when it is told to end
	again := userOf(t, b, "alice", ".*", ".*", ".*")
	for _, id := range []string{"away", "there"} {
		if s, present := attach(t, again, id, false, time.Hour); present {
			t.Errorf("%s is there: %v", id, s.State())
		}
	}
}

// TestWithheldBacklog: what a topic got while a reader had no right to it does
// not reach him when the queue that made it a right of its own is deleted.
func TestWithheldBacklog(t *testing.T) {
	b := open(t, t.TempDir())
	admin := connect(t, b)
	low, high := userOf(t, b, "low", "^$", "^$", `^amq\.topic$`), userOf(t, b, "high", ".*", ".*", ".*")
	shared := userOf(t, b, "shared", "^$", "^$", `^(amq\.topic|\$share/g/q)$`)
	for _, c := range []*Conn{low, high, shared} {
		s, _ := attach(t, c, c.identity.User, false, time.Hour)
		filter := "q"
		if c == shared {
			filter = "$share/g/q"
		}
		subscribe(t, s, filter, 1)
		s.Detach(time.Hour)
	}
	declare(t, admin, QueueSpec{Name: "q", Durable: true})
	p := publisher(t, admin)
	for i := range 3 {
		p.exchange("", "q", fmt.Sprint("secret", i))
	}
	if _, err := admin.DeleteQueue(soon(t), "q", false, false); err != nil {
		t.Fatal(err)
	}
	p.topic("q", "open")
	for _, tc := range []struct {
		conn *Conn
		want []string
	}{
		{low, []string{"open"}},
		{high, []string{"secret0", "secret1", "secret2", "open"}},
		{shared, []string{"open"}},
	} {
		s, present := attach(t, tc.conn, tc.conn.identity.User, false, time.Hour)
		subs := s.State().Subscriptions
		if !present || len(subs) != 1 {
			t.Fatalf("%s: %v, %v", tc.conn.identity.User, present, subs)
		}
		in := newInbox()
		a, err := s.Attach(soon(t), subs[0], 1, in, in)
		if err != nil {
			t.Fatal(err)
		}
		a.Member.Credit(10)
		if got := in.wait(t, len(tc.want)); fmt.Sprint(got) != fmt.Sprint(tc.want) {
			t.Errorf("%s: %v, want %v", tc.conn.identity.User, got, tc.want)
		}
		s.Detach(time.Hour)
	}
}
