package broker

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestAlternate: who declares an exchange with an alternate could do himself what
// that does.
func TestAlternate(t *testing.T) {
	b := open(t, t.TempDir())
	x := func(name, alternate string) kernel.Exchange {
		return kernel.Exchange{Name: name, Type: kernel.Direct, Durable: true, Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: alternate}}}
	}
	c := userOf(t, b, "u", "^(a|b)$", "^to$", "^a$")
	for _, tc := range []struct {
		name, alternate string
		refused         bool
	}{{"a", "to", false}, {"b", "to", true}, {"a", "to", false}} {
		if err := c.DeclareExchange(soon(t), x(tc.name, tc.alternate)); (kernel.CodeOf(err) == kernel.CodeAccessRefused && err != nil) != tc.refused {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	wantCode(t, c.DeclareExchange(soon(t), x("b", "elsewhere")), kernel.CodeAccessRefused)
}

// TestBindToExchange: an exchange as destination takes write on it.
func TestBindToExchange(t *testing.T) {
	b := open(t, t.TempDir())
	admin := connect(t, b)
	for _, name := range []string{"from", "to"} {
		if err := admin.DeclareExchange(soon(t), kernel.Exchange{Name: name, Type: kernel.Topics}); err != nil {
			t.Fatal(err)
		}
	}
	bd := kernel.Binding{Exchange: "from", Queue: "to", Key: "k.a", ToExchange: true}
	for _, tc := range []struct {
		user, write, read, keys string
		refused                 bool
	}{{"all", "^to$", "^from$", "", false}, {"noread", "^to$", "", "", true}, {"nowrite", "^from$", "^from$", "", true},
		{"nokey", ".*", ".*", "^z", true}, {"key", ".*", ".*", "^k", false}} {
		c := userOf(t, b, tc.user, "", tc.write, tc.read)
		if tc.keys != "" {
			p := kernel.TopicPermission{Tenant: "/", User: tc.user, Exchange: "from", Read: tc.keys}
			if err := b.PutTopicPermission(soon(t), p); err != nil {
				t.Fatal(err)
			}
		}
		for _, act := range []func() error{func() error { return c.Bind(soon(t), bd) }, func() error { return c.Unbind(soon(t), bd) }} {
			if err := act(); (err != nil) != tc.refused || err != nil && kernel.CodeOf(err) != kernel.CodeAccessRefused {
				t.Errorf("%s: %v", tc.user, err)
			}
		}
	}
}
