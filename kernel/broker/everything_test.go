package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// snapshot writes down all that a node keeps, by its own listings.
func snapshot(t *testing.T, b *Broker) string {
	t.Helper()
	var lines []string
	add := func(kind string, v any) { lines = append(lines, fmt.Sprintf("%s %+v", kind, v)) }
	for _, x := range b.Tenants() {
		add("tenant", x)
	}
	for _, u := range b.Users() {
		add("user", u)
	}
	for _, p := range b.Permissions() {
		add("permission", p)
	}
	for _, p := range b.TopicPermissions() {
		add("topic permission", p)
	}
	for _, p := range b.Policies() {
		add("policy", p)
	}
	for _, x := range b.Tenants() {
		tn, _ := b.tenant(x.Name)
		table := tn.table.Load()
		table.Exchanges(func(x kernel.Exchange) { add("exchange", x) })
		table.AllBindings(func(bd kernel.Binding) { add("binding", bd) })
		tn.mu.Lock()
		for _, g := range tn.groups {
			limits, _ := g.place.Limits(g.id)
			ready, held, _ := g.place.Count(g.id)
			add("group", fmt.Sprintf("%v %v %+v ready %d", g.spec.Address, g.spec.Owner, limits, ready+held))
		}
		for id, e := range tn.sessions {
			for filter, sub := range e.subs {
				add("subscription", fmt.Sprintf("%s %s %s %+v", tn.name, id, filter, sub.Subscription))
			}
			used, high, err := b.durable.Used(soon(t), kernel.SessionName(tn.name, id))
			add("numbers", fmt.Sprint(tn.name, id, len(used), high, err, b.durable.Pins(kernel.SessionName(tn.name, id))))
		}
		tn.mu.Unlock()
	}
	must(t, b.durable.Iterate(nil, func(key, value []byte) error {
		if string(key) != "start" {
			add("keyed", fmt.Sprintf("%q %q", key, value))
		}
		return nil
	}))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// fillAll makes one of every noun that outlives the process.
func fillAll(t *testing.T, b *Broker) {
	t.Helper()
	password := "pw"
	must(t, b.PutTenant(soon(t), kernel.Tenant{Name: "two", Description: "the second"}))
	must(t, b.PutUser(soon(t), UserSpec{Name: "u", Password: &password, Tags: []string{"management"}}))
	must(t, b.PutPermission(soon(t), kernel.Permission{Tenant: "two", User: "u", Configure: ".*", Write: "w.*", Read: ""}))
	must(t, b.PutTopicPermission(soon(t), kernel.TopicPermission{Tenant: "two", User: "u", Exchange: "amq.topic", Write: "a", Read: "b"}))
	must(t, b.PutPermission(soon(t), kernel.Permission{Tenant: "two", User: "guest", Configure: ".*", Write: ".*", Read: ".*"}))
	other, err := b.Connect(kernel.Identity{User: "guest", Tenant: "two"}, kernel.ConnectionInfo{Protocol: "test"}, nil)
	must(t, err)
	for _, c := range []*Conn{connect(t, b), other} {
		fillTenant(t, c)
		c.Close() // from here on its will waits
	}
}

func fillTenant(t *testing.T, c *Conn) {
	t.Helper()
	must(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "h", Type: kernel.Headers, Durable: true,
		Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: "amq.fanout"}}}))
	must(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "hash", Type: kernel.ConsistentHash, Durable: true}))
	declare(t, c, QueueSpec{Name: "q", Durable: true, Arguments: []kernel.Argument{
		{Name: "x-dead-letter-exchange", Value: "h"}, {Name: "x-max-length", Value: int64(100)}, {Name: "x-message-ttl", Value: int64(1e9)}}})
	must(t, c.Bind(soon(t), kernel.Binding{Exchange: "h", Queue: "q", Arguments: []kernel.Argument{{Name: "n", Value: int64(1)}}}))
	must(t, c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: "hash", Key: "k", ToExchange: true}))
	bind(t, c, "hash", "q", "1")
	s, _, err := c.AttachSession(soon(t), Attaching{ClientID: "client", Clean: true, Expiry: 1000 * time.Hour}, nil)
	must(t, err)
	subscribe(t, s, "s/#", 2)
	p := publisher(t, c)
	p.exchange("amq.direct", "k", "by two exchanges")
	p.once(s, 7, "s/1", "once")
	p.once(s, 8, "s/2", "once")
	p.release(s, 8)
	must(t, p.retains("r/1", "retained"))
	must(t, s.SetWill(soon(t), &kernel.Will{Topic: "w", Delay: 1000 * time.Hour, Record: kernel.Record{Key: []byte("w"), Value: []byte("will")}}))
	must(t, c.CommitOffsets(soon(t), "g", nil))
}

// TestEverythingIsThere: a node that is stopped, or loses power, comes back with
// all that it had, again and again.
func TestEverythingIsThere(t *testing.T) {
	fs := vfs.NewMem()
	at := func(fs vfs.FS) func(*Config) { return func(c *Config) { c.FS = fs } }
	b := open(t, "/node", at(fs))
	fillAll(t, b)
	want := snapshot(t, b)
	for _, part := range []string{"user {Name:u", "numbers", "exchange {", "retained", "will", "ToExchange:true"} {
		if !strings.Contains(want, part) {
			t.Errorf("nothing of %q in\n%s", part, want)
		}
	}
	killed := fs.CrashClone(nil)
	shut(t, b)
	for name, fs := range map[string]*vfs.MemFS{"stopped": fs, "killed": killed} {
		for round := range 3 {
			b := open(t, "/node", at(fs))
			if got := snapshot(t, b); got != want {
				t.Errorf("%s, start %d:%s", name, round, difference(want, got))
			}
			shut(t, b)
		}
	}
}

// difference lists the lines that only one of two has.
func difference(want, got string) string {
	var d strings.Builder
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, l := range w {
		if !slices.Contains(g, l) {
			d.WriteString("\n- " + l)
		}
	}
	for _, l := range g {
		if !slices.Contains(w, l) {
			d.WriteString("\n+ " + l)
		}
	}
	return d.String()
}

// TestTenantDropCutShort: after a crash at any file system operation of a tenant's
// drop the tenant is there or gone, with what was in it, and may be dropped again.
func TestTenantDropCutShort(t *testing.T) {
	disk := vfs.NewMem()
	b := open(t, "/node", func(c *Config) { c.FS = disk })
	fillAll(t, b)
	shut(t, b)
	there := 0
	for after, crashed := 0, true; crashed; after++ {
		var left atomic.Pointer[vfs.MemFS]
		var ops atomic.Int64
		var armed atomic.Bool
		work := disk.CrashClone(nil)
		fault := vfs.NewFault(work, vfs.Rule{Before: func(vfs.Op, string) {
			if armed.Load() && ops.Add(1) == int64(after)+1 {
				left.Store(work.CrashClone(nil))
			}
		}})
		b := open(t, "/node", func(c *Config) { c.FS = fault })
		armed.Store(true)
		must(t, b.DropTenant(soon(t), "two"))
		armed.Store(false)
		shut(t, b)
		if crashed = left.Load() != nil; !crashed {
			break
		}
		b = open(t, "/node", func(c *Config) { c.FS = left.Load() })
		if b.HasTenant("two") {
			there++
			must(t, b.DropTenant(soon(t), "two"))
		}
		if got := snapshot(t, b); strings.Contains(got, "two") {
			t.Fatalf("after %d operations: %s", after, got)
		}
		shut(t, b)
	}
	if there == 0 {
		t.Error("the drop was never cut short before it happened")
	}
}
