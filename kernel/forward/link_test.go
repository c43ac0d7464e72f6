package forward

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestCalls: what returns something returns what the broker does, errors to the letter.
func TestCalls(t *testing.T) {
	b := open(t)
	c, d := serve(t, b).connect(t), direct(t, b)
	ctx := soon(t)
	same := func(what string, got, want error) {
		t.Helper()
		var g, w *kernel.Error
		if errors.As(got, &g) != errors.As(want, &w) || g != nil && *g != *w {
			t.Errorf("%s: %#v, want %#v", what, got, want)
		}
	}
	x := kernel.Exchange{Tenant: "/", Name: "x", Type: kernel.Topics, Durable: true, Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: "amq.fanout"}}}
	if err := c.DeclareExchange(ctx, x); err != nil {
		t.Fatal(err)
	}
	got, err := c.Exchange("x")
	want, wrong := d.Exchange("x")
	if err != nil || wrong != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v %v", got, err, want, wrong)
	}
	_, err = c.Exchange("none")
	_, wrong = d.Exchange("none")
	same("exchange", err, wrong)
	x.Type = kernel.Fanout
	same("declare exchange", c.DeclareExchange(ctx, x), d.DeclareExchange(ctx, x))

	spec := broker.QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum, Retention: &kernel.Retention{Age: 5, Bytes: 6, Dedup: -1},
		Arguments: []kernel.Argument{{Name: "x-max-length", Value: int64(7)}, {Name: "x-queue-type", Value: "quorum"}}}
	if info, err := c.DeclareQueue(ctx, spec); err != nil || info.Name != "q" || info.Type != kernel.Quorum {
		t.Fatalf("%+v %v", info, err)
	}
	if err := c.SameQueue(spec); err != nil {
		t.Error(err)
	}
	spec.Durable = false
	same("same queue", c.SameQueue(spec), d.SameQueue(spec))
	_, err = c.DeclareQueue(ctx, spec)
	_, wrong = d.DeclareQueue(ctx, spec)
	same("declare queue", err, wrong)
	bind := kernel.Binding{Exchange: "x", Queue: "q", Key: "a.*", Arguments: []kernel.Argument{{Name: "n", Value: 1.5}}}
	if err := c.Bind(ctx, bind); err != nil {
		t.Error(err)
	}
	if err := c.Unbind(ctx, bind); err != nil {
		t.Error(err)
	}
	bind.Queue = "none"
	same("bind", c.Bind(ctx, bind), d.Bind(ctx, bind))
	p := publishing(t, c)
	for i := range 3 {
		p.to("", "q", fmt.Sprint(i))
	}
	p.settle()
	if info, err := c.Queue("q"); err != nil || info.Ready != 3 || info.Members != 0 {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := c.DeleteQueue(ctx, "q", false, true); kernel.CodeOf(err) != kernel.CodePrecondition {
		t.Error(err)
	}
	if n, err := c.PurgeQueue(ctx, "q"); n != 3 || err != nil {
		t.Error(n, err)
	}
	if n, err := c.DeleteQueue(ctx, "q", true, true); n != 0 || err != nil {
		t.Error(n, err)
	}
	_, err = c.Queue("q")
	_, wrong = d.Queue("q")
	same("queue", err, wrong)
	if addr, err := c.Address("$share/g%2Fh/t"); err != nil || addr != (kernel.GroupAddress{Tenant: "/", Group: "g/h", Topic: "t"}) {
		t.Errorf("%+v %v", addr, err)
	}
	_, err = c.Address("$share/")
	_, wrong = d.Address("$share/")
	same("address", err, wrong)
	_, err = c.Join(ctx, kernel.QueueAddress("/", "none"), kernel.MemberOptions{}, nil, newInbox())
	_, wrong = d.Join(ctx, kernel.QueueAddress("/", "none"), kernel.MemberOptions{}, newInbox())
	same("join", err, wrong)
	if !c.HasTag(kernel.TagAdministrator) || c.HasTag("none") {
		t.Error("tags")
	}
	if err := c.DeleteExchange(ctx, "x", true); err != nil {
		t.Error(err)
	}
}

// TestLogins: so do logins.
func TestLogins(t *testing.T) {
	n := serve(t, open(t))
	h := NewHost(n, "1")
	if _, err := h.Authenticate(soon(t), "", "guest", "wrong", loopback); kernel.CodeOf(err) != kernel.CodeAccessRefused {
		t.Error(err)
	}
	if id, err := h.Admit("/", "guest", loopback); err != nil || id != (kernel.Identity{User: "guest", Tenant: "/"}) {
		t.Error(id, err)
	}
	if _, err := h.Admit("/", "guest", nil); kernel.CodeOf(err) != kernel.CodeAccessRefused {
		t.Error(err)
	}
	if id, err := h.Anonymous("", loopback); err != nil || id != (kernel.Identity{User: "guest", Tenant: "/", Anonymous: true}) {
		t.Error(id, err)
	}
	for tenant, want := range map[string]bool{"/": true, "none": false} {
		if has, err := h.HasTenant(tenant); has != want || err != nil {
			t.Error(tenant, has, err)
		}
	}
	_, err := h.Connect(kernel.Identity{User: "guest", Tenant: "none"}, kernel.ConnectionInfo{}, nil)
	wantCode(t, err, kernel.CodeNotFound)

	n.server.serving = func() *broker.Broker { return nil }
	_, err = h.HasTenant("/")
	wantCode(t, err, kernel.CodeUnavailable)
	_, err = h.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{}, nil)
	wantCode(t, err, kernel.CodeUnavailable)
}

// channels lists channels.
type channels []kernel.ChannelStatus

func (c channels) Channels() []kernel.ChannelStatus { return c }

// TestListing: a listing shows the client as it is where its socket is.
func TestListing(t *testing.T) {
	b := open(t)
	info := kernel.ConnectionInfo{Protocol: "p", Name: "n", ClientID: "c", Remote: loopback, Local: address{"unix", "/x"}, Version: "v", Mechanism: "m",
		Secure: true, Properties: []kernel.Argument{{Name: "a", Value: "b"}}, Heartbeat: 5,
		Channels: channels{{Number: 1, Consumers: 2, Unsettled: 3, Prefetch: 4, Confirms: true}, {Number: 2}}}
	serve(t, b).connect(t, func(i *kernel.ConnectionInfo) { *i = info })
	list := b.Connections()
	if len(list) != 1 || !reflect.DeepEqual(list[0].Channels, []kernel.ChannelStatus(info.Channels.(channels))) {
		t.Fatalf("%+v", list)
	}
	got := list[0].Info
	got.Channels, info.Channels = nil, nil
	if got.Remote.String() != info.Remote.String() || got.Local.Network() != "unix" || got.Local.String() != "/x" {
		t.Errorf("%v %v", got.Remote, got.Local)
	}
	got.Remote, got.Local, info.Remote, info.Local = nil, nil, nil, nil
	info.Node = "2" // which the server knows of the stream
	if !reflect.DeepEqual(got, info) {
		t.Errorf("%+v, want %+v", got, info)
	}
}
