package broker

import (
	"context"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func TestListings(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum})
	bind(t, c, "amq.topic", "q", "a.*")
	p := publisher(t, c)
	for range 3 {
		p.exchange("", "q", "x")
	}
	m, in := consume(t, c, "q", kernel.MemberOptions{Tag: "tag", Channel: 4, Prefetch: 2}, 2)
	in.wait(t, 2)

	if x, ok := b.Exchange("/", "amq.topic"); !ok || x.Type != kernel.Topics {
		t.Errorf("amq.topic: %+v %v", x, ok)
	}
	if x, ok := b.Exchange("/", ""); !ok || !x.Durable || b.Exchanges("/")[0].Name != "" {
		t.Errorf("the default exchange: %+v %v", x, ok)
	}
	if _, ok := b.Exchange("none", "amq.topic"); ok || len(b.Exchanges("none")) != 0 {
		t.Error("exchanges in no tenant")
	}
	from, to := b.BindingsFrom("/", "amq.topic"), b.BindingsOf("/", "q")
	if len(from) != 1 || len(to) != 1 || from[0].Key != "a.*" || to[0].Exchange != "amq.topic" {
		t.Errorf("bindings: %v %v", from, to)
	}
	if q, ok := b.QueueStatus("/", "q"); !ok || q.Queue.Type != kernel.Quorum || q.Info.Members != 1 || q.Info.Name != "q" {
		t.Errorf("queue: %+v %v", q, ok)
	}
	for _, missing := range []string{"none", "$share/", "$share/a/b"} {
		if _, ok := b.QueueStatus("/", missing); ok {
			t.Errorf("there is a queue %q", missing)
		}
	}
	members := b.Members()
	if len(members) != 1 || members[0].Tag != "tag" || members[0].Connection != c.ID() || !members[0].Settles ||
		members[0].Channel != 4 || members[0].Prefetch != 2 || !members[0].Address.IsOwn() {
		t.Errorf("consumers: %+v", members)
	}
	m.Settle(kernel.Accept, 0, 0, 0)
	addr := kernel.QueueAddress("/", "q")
	soon := soon(t)
	for {
		g, progress, err := b.Group(addr)
		if err != nil || len(progress) != 1 || !g.Declared || !g.Owner {
			t.Fatalf("group: %+v %+v %v", g, progress, err)
		}
		if p := progress[0]; p.Floor == 1 && p.End == 3 && p.Unsettled == 2 {
			break
		}
		if soon.Err() != nil {
			t.Fatalf("progress stays at %+v", progress)
		}
	}
	if groups := b.Groups("/"); len(groups) != 1 || groups[0].Address != addr || groups[0].Members != 1 {
		t.Errorf("groups: %+v", groups)
	}
	_, _, err := b.Group(kernel.QueueAddress("/", "none"))
	wantCode(t, err, kernel.CodeNotFound)
	if _, err := c.CreateTopic(soon, TopicSpec{Name: "log", Partitions: 3}); err != nil {
		t.Fatal(err)
	}
	topic, bounds, err := b.TopicStatus("/", "log", kernel.Plain)
	if err != nil || topic.Partitions != 3 || len(bounds) != 3 || bounds[0] != (PartitionBounds{}) {
		t.Errorf("topic: %+v %v %v", topic, bounds, err)
	}
	topic, bounds, err = b.TopicStatus("/", "q", kernel.Plain)
	if err != nil || topic.Groups != 1 || topic.Published != 3 || bounds[0].End != 3 {
		t.Errorf("the queue's topic: %+v %v %v", topic, bounds, err)
	}
	if list := b.TopicStatuses("/"); len(list) != 2 || list[0].Name != "log" || list[1].Name != "q" {
		t.Errorf("topics: %+v", list)
	}
}

// channels stand for those of an adapter.
type channels []kernel.ChannelStatus

func (c channels) Channels() []kernel.ChannelStatus { return c }

func TestOperatorClosesConnection(t *testing.T) {
	b := open(t, t.TempDir())
	told := make(chan error, 1)
	info := kernel.ConnectionInfo{Protocol: "test", Name: "x", Channels: channels{{Number: 1}}}
	c, err := b.Connect(kernel.Identity{User: "guest", Tenant: "/"}, info, func(reason error) { told <- reason })
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := b.Connections()
	if len(list) != 1 || list[0].ID != c.ID() || list[0].Info.Name != "x" || len(list[0].Channels) != 1 || list[0].Connected.IsZero() {
		t.Fatalf("connections: %+v", list)
	}
	if err := b.CloseConnection(c.ID(), "maintenance"); err != nil {
		t.Fatal(err)
	}
	reason := <-told
	if reason.Error() != "maintenance" || kernel.CodeOf(reason) != kernel.CodeNotAllowed {
		t.Errorf("told %v", reason)
	}
	c.Close()
	_, err = b.Connection(c.ID())
	wantCode(t, err, kernel.CodeNotFound)
	wantCode(t, b.CloseConnection(c.ID(), ""), kernel.CodeNotFound)
}

// TestOperate: an operator works in a tenant where the user has no permissions.
func TestOperate(t *testing.T) {
	b := open(t, t.TempDir())
	ctx := context.Background()
	if err := b.PutTenant(ctx, kernel.Tenant{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	id := kernel.Identity{User: "guest", Tenant: "other"}
	_, err := b.Connect(id, kernel.ConnectionInfo{Protocol: "test"}, nil)
	wantCode(t, err, kernel.CodeAccessRefused)
	c, err := b.Operate(id, kernel.ConnectionInfo{Protocol: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	bind(t, c, "amq.topic", "q", "a.*")
	if _, ok := b.QueueStatus("other", "q"); !ok {
		t.Error("the queue is not there")
	}
	_, err = b.Operate(kernel.Identity{User: "guest", Tenant: "none"}, kernel.ConnectionInfo{Protocol: "test"})
	wantCode(t, err, kernel.CodeNotFound)
}
