package catalog

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
)

// TestAccess checks that what belongs to a tenant or a user goes with it.
func TestAccess(t *testing.T) {
	s := &State{}
	if !s.Unclaimed() {
		t.Error("a new catalog is claimed")
	}
	s = apply(t, s, PutTenant{kernel.Tenant{Name: "/"}}, PutTenant{kernel.Tenant{Name: "/b"}}, PutUser{kernel.User{Name: "u"}}, PutUser{kernel.User{Name: "v"}})
	_, _, err := s.Apply([]Op{PutPermission{kernel.Permission{Tenant: "none", User: "u"}}})
	wantCode(t, err, kernel.CodeNotFound)
	_, _, err = s.Apply([]Op{PutTopicPermission{kernel.TopicPermission{Tenant: "/", User: "none"}}})
	wantCode(t, err, kernel.CodeNotFound)
	for _, tenant := range []string{"/", "/b"} {
		for _, user := range []string{"u", "v"} {
			s = apply(t, s, PutPermission{kernel.Permission{Tenant: tenant, User: user, Read: ".*"}},
				PutTopicPermission{kernel.TopicPermission{Tenant: tenant, User: user, Exchange: "amq.topic"}})
		}
	}
	s = apply(t, s, PutExchange{kernel.Exchange{Tenant: "/", Name: "x", Type: kernel.Direct, Durable: true}}, queueTopic(1, "q"),
		PutBinding{binding("x", "q", "k")}, PutBinding{binding(kernel.ExchangeTopic, "q", "k")})
	counts := func(s *State) (p, tp, rest int) {
		s.Permissions(func(*kernel.Permission) { p++ })
		s.TopicPermissions(func(*kernel.TopicPermission) { tp++ })
		s.Topics(func(*kernel.Topic) { rest++ })
		s.Exchanges(func(*kernel.Exchange) { rest++ })
		s.Bindings(func(*Binding) { rest++ })
		return p, tp, rest
	}
	if p, tp, rest := counts(apply(t, s, DropUser{"u"})); p != 2 || tp != 2 || rest != 4 {
		t.Errorf("after the user: %d, %d, %d", p, tp, rest)
	}
	// "/" is a prefix of "/b", which stays.
	after := apply(t, s, DropTenant{"/"}, DropTenant{"/"})
	if p, tp, rest := counts(after); p != 2 || tp != 2 || rest != 0 {
		t.Errorf("after the tenant: %d, %d, %d", p, tp, rest)
	}
	if _, ok := after.Permission("/b", "v"); !ok {
		t.Error("the other tenant's permissions have gone")
	}
	if after.sources.Len() != 0 || after.names.Len() != 0 {
		t.Error("leftovers in the other direction")
	}
}

// accessOps draws ops of access.go.
func accessOps(t *rapid.T) []Op {
	name := rapid.SampledFrom([]string{"a", "b", "é/"})
	text := rapid.SampledFrom([]string{"", ".*", "^a$"})
	tags := rapid.SampledFrom([][]string{nil, {"administrator"}, {"x", "y"}})
	one := func() Op {
		n, u := name.Draw(t, "tenant"), name.Draw(t, "user")
		switch rapid.IntRange(0, 8).Draw(t, "op") {
		case 0, 1:
			return PutTenant{kernel.Tenant{Name: n, Description: text.Draw(t, "d"), Tags: tags.Draw(t, "tags")}}
		case 2:
			return DropTenant{n}
		case 3, 4:
			user := kernel.User{Name: u, Tags: tags.Draw(t, "tags")}
			if rapid.Bool().Draw(t, "password") {
				user.Password = kernel.PasswordHash{Algorithm: kernel.HashSHA256, Hash: "\x00\xff"}
				user.Scram = []kernel.ScramKey{{Mechanism: "SCRAM-SHA-256", Iterations: 4096, Salt: []byte{1}, StoredKey: []byte{0, 2}, ServerKey: []byte{3}}}
			}
			return PutUser{user}
		case 5:
			return DropUser{u}
		case 6:
			return PutPermission{kernel.Permission{Tenant: n, User: u, Configure: text.Draw(t, "c"), Write: text.Draw(t, "w"), Read: text.Draw(t, "r")}}
		case 7:
			return PutTopicPermission{kernel.TopicPermission{Tenant: n, User: u, Exchange: "amq.topic", Write: text.Draw(t, "w"), Read: text.Draw(t, "r")}}
		default:
			if rapid.Bool().Draw(t, "topic") {
				return DropTopicPermission{n, u, "amq.topic"}
			}
			return DropPermission{n, u}
		}
	}
	list := make([]Op, rapid.IntRange(1, 4).Draw(t, "ops"))
	for i := range list {
		list[i] = one()
	}
	return list
}

// TestAccessReplay is TestReplay for the ops of access.go.
func TestAccessReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		for i := range rapid.IntRange(1, 20).Draw(t, "commands") {
			cmd := Command{ID: CommandID{Boot: 1, Seq: uint64(i)}, Ops: accessOps(t)}
			got, err := DecodeCommand(cmd.Append(nil))
			if err != nil || !reflect.DeepEqual(got, cmd) {
				t.Fatalf("got %+v, %v, want %+v", got, err, cmd)
			}
			s, _, _ = s.Apply(got.Ops)
		}
		var a, b bytes.Buffer
		if err := s.Write(&a); err != nil {
			t.Fatal(err)
		}
		restored, err := Read(bytes.NewReader(a.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := restored.Write(&b); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("a snapshot changed on its way: %v", err)
		}
	})
}
