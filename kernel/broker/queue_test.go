package broker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

func TestDefaultExchange(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%v", durable), func(t *testing.T) {
			b := open(t, t.TempDir())
			c := connect(t, b)
			declare(t, c, QueueSpec{Name: "q", Durable: durable})
			p := publisher(t, c)
			if n := p.exchange("", "q", "one"); n != 1 {
				t.Errorf("matched %d", n)
			}
			p.exchange("", "q", "two")
			if info, err := c.Queue("q"); err != nil || info.Ready != 2 {
				t.Errorf("%+v, %v", info, err)
			}
			m, in := consume(t, c, "q", kernel.MemberOptions{}, 10)
			if got := in.wait(t, 2); !slices.Equal(got, []string{"one", "two"}) {
				t.Errorf("got %q", got)
			}
			m.Settle(kernel.Accept, 0, 0, 1)
			m.Leave()
			if n, err := c.DeleteQueue(soon(t), "q", false, false); err != nil || n != 0 {
				t.Errorf("delete: %d, %v", n, err)
			}
			_, err := c.Queue("q")
			wantCode(t, err, kernel.CodeNotFound)
			if err.(*kernel.Error).Detail != "no queue 'q' in vhost '/'" {
				t.Error(err)
			}
		})
	}
}

func TestEquivalence(t *testing.T) {
	b := open(t, t.TempDir())
	c, other := connect(t, b), connect(t, b)
	arg := func(v any) []kernel.Argument { return []kernel.Argument{{Name: "x-retention", Value: v}} }
	base := QueueSpec{Name: "q", Durable: true, Arguments: arg(int64(10))}
	declare(t, c, base)
	same := base
	same.Arguments = arg(float64(10))
	declare(t, other, same)
	for _, tc := range []struct {
		change func(*QueueSpec)
		code   kernel.Code
		detail string
	}{
		{func(q *QueueSpec) { q.Durable = false }, kernel.CodePrecondition, "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"},
		{func(q *QueueSpec) { q.AutoDelete = true }, kernel.CodePrecondition, "inequivalent arg 'auto_delete' for queue 'q' in vhost '/': received 'true' but current is 'false'"},
		{func(q *QueueSpec) { q.Type = kernel.Quorum }, kernel.CodePrecondition, "inequivalent arg 'x-queue-type' for queue 'q' in vhost '/': received 'quorum' but current is 'classic'"},
		{func(q *QueueSpec) { q.Arguments = nil }, kernel.CodePrecondition, "inequivalent arg 'x-retention' for queue 'q' in vhost '/': received none but current is the value '10' of type 'signedint'"},
		{func(q *QueueSpec) { q.Exclusive = true }, kernel.CodeLocked, ""},
	} {
		q := base
		tc.change(&q)
		_, err := c.DeclareQueue(soon(t), q)
		wantCode(t, err, tc.code)
		var e *kernel.Error
		if tc.detail != "" && (!errors.As(err, &e) || e.Detail != tc.detail) {
			t.Errorf("got  %v\nwant %s", err, tc.detail)
		}
	}
	x := kernel.Exchange{Name: "x", Type: kernel.Direct, Durable: true}
	if err := c.DeclareExchange(soon(t), x); err != nil {
		t.Fatal(err)
	}
	x.Type = kernel.Fanout
	err := c.DeclareExchange(soon(t), x)
	wantCode(t, err, kernel.CodePrecondition)
	if e := err.(*kernel.Error); e.Detail != "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'fanout' but current is 'direct'" {
		t.Error(e.Detail)
	}
	if err := c.DeclareExchange(soon(t), kernel.Exchange{Name: "amq.topic", Type: kernel.Topics, Durable: true}); err != nil {
		t.Error(err)
	}
}

// TestDeclareWhileDeleted: a declaration makes the queue that is being deleted
// at the same time anew; it does not say that there is none.
func TestDeclareWhileDeleted(t *testing.T) {
	b := open(t, t.TempDir())
	c, other := connect(t, b), connect(t, b)
	ctx := soon(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := other.DeleteQueue(ctx, "q", false, false); err != nil {
				t.Error(err)
			}
		}
	})
	for range 5000 {
		if _, err := c.DeclareQueue(ctx, QueueSpec{Name: "q"}); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	wg.Wait()
}

func TestNames(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	info := declare(t, c, QueueSpec{Exclusive: true})
	if !strings.HasPrefix(info.Name, "amq.gen-") || len(info.Name) != len("amq.gen-")+22 {
		t.Errorf("server-made name %q", info.Name)
	}
	declare(t, c, QueueSpec{Name: info.Name, Exclusive: true}) // exists: reserved or not
	for _, tc := range []struct {
		name string
		code kernel.Code
	}{
		{"amq.mine", kernel.CodeAccessRefused},
		{strings.Repeat("n", 256), kernel.CodeInvalidName},
		{"a\x00b", kernel.CodeInvalidName},
		{"\xff", kernel.CodeInvalidName},
		{"$share/x", kernel.CodeInvalidName},
		{"$queue/none", kernel.CodeNotFound},
		{"$session/x", kernel.CodeInvalidName},
	} {
		_, err := c.DeclareQueue(soon(t), QueueSpec{Name: tc.name, Durable: true})
		wantCode(t, err, tc.code)
	}
	wantCode(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "amq.x", Type: kernel.Direct}), kernel.CodeAccessRefused)
	wantCode(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "", Type: kernel.Direct}), kernel.CodeAccessRefused)
	wantCode(t, c.DeclareExchange(soon(t), kernel.Exchange{Name: "h", Type: "odd"}), kernel.CodeInvalid)
	wantCode(t, c.DeleteExchange(soon(t), "amq.direct", false), kernel.CodeAccessRefused)
	declare(t, c, QueueSpec{Name: strings.Repeat("ä", 127), Durable: true})
}

func TestExclusive(t *testing.T) {
	b := open(t, t.TempDir())
	c, other := connect(t, b), connect(t, b)
	declare(t, c, QueueSpec{Name: "mine", Exclusive: true})
	bind(t, c, "amq.fanout", "mine", "")
	for name, call := range map[string]func() error{
		"declare": func() error {
			_, err := other.DeclareQueue(soon(t), QueueSpec{Name: "mine", Exclusive: true})
			return err
		},
		"passive": func() error { _, err := other.Queue("mine"); return err },
		"delete":  func() error { _, err := other.DeleteQueue(soon(t), "mine", false, false); return err },
		"purge":   func() error { _, err := other.PurgeQueue(soon(t), "mine"); return err },
		"bind": func() error {
			return other.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: "mine"})
		},
		"join": func() error {
			_, err := other.Join(soon(t), kernel.QueueAddress("/", "mine"), kernel.MemberOptions{}, newInbox())
			return err
		},
	} {
		if err := call(); kernel.CodeOf(err) != kernel.CodeLocked {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := other.Topic("mine"); ok {
		t.Error("an exclusive queue is listed as a topic")
	}
	p := publisher(t, other)
	if n := p.exchange("", "mine", "for you"); n != 1 {
		t.Errorf("matched %d", n)
	}
	c.Close()
	if n := p.exchange("amq.fanout", "", "late"); n != 0 {
		t.Errorf("matched %d after the owner has gone", n)
	}
	// Its name is not made anew by a late publish, but by a declaration.
	if n := p.exchange("", "mine", "late"); n != 0 {
		t.Errorf("a late reply made the queue anew")
	}
	declare(t, other, QueueSpec{Name: "mine", Durable: true})
}

// TestExclusiveChurn: a connection remembers the queues that it has, not all that
// it ever had.
func TestExclusiveChurn(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "first", Exclusive: true})
	for i := range 1000 {
		name := fmt.Sprint("q", i)
		declare(t, c, QueueSpec{Name: name, Exclusive: true})
		if _, err := c.DeleteQueue(soon(t), name, false, false); err != nil {
			t.Fatal(err)
		}
	}
	if got := len(c.owned); got > minSweep {
		t.Errorf("it remembers %d queues", got)
	}
	c.Close()
	if _, ok := c.tenant.table.Load().Topic(kernel.Plain, "first"); ok {
		t.Error("a queue has outlived its connection")
	}
}

func TestAutoDelete(t *testing.T) {
	for _, durable := range []bool{false, true} {
		b := open(t, t.TempDir())
		c := connect(t, b)
		declare(t, c, QueueSpec{Name: "q", AutoDelete: true, Durable: durable})
		if err := c.DeclareExchange(soon(t), kernel.Exchange{Name: "x", Type: kernel.Direct, AutoDelete: true, Durable: durable}); err != nil {
			t.Fatal(err)
		}
		bind(t, c, "x", "q", "k")
		m1, _ := consume(t, c, "q", kernel.MemberOptions{}, 0)
		m2, _ := consume(t, c, "q", kernel.MemberOptions{}, 0)
		m1.Leave()
		if _, err := c.Queue("q"); err != nil {
			t.Error(err)
		}
		m2.Leave()
		_, err := c.Queue("q")
		wantCode(t, err, kernel.CodeNotFound)
		_, err = c.Exchange("x")
		wantCode(t, err, kernel.CodeNotFound)
	}
}

// TestAutoDeleteAtCancel: a cancelled consumer that still holds a record is no
// consumer any more; the queue goes with the last one and does not wait for it.
func TestAutoDeleteAtCancel(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", AutoDelete: true, Durable: true})
	publisher(t, c).exchange("", "q", "held")
	m1, in := consume(t, c, "q", kernel.MemberOptions{}, 1)
	in.wait(t, 1)
	m2, _ := consume(t, c, "q", kernel.MemberOptions{}, 0)
	m1.Stop()
	if q, err := c.Queue("q"); err != nil || q.Members != 1 {
		t.Errorf("%+v, %v", q, err)
	}
	m2.Stop()
	_, err := c.Queue("q")
	wantCode(t, err, kernel.CodeNotFound)
	m1.Settle(kernel.Accept, 0, 0, 0)
	m1.Leave()
	m2.Leave()
}

func TestDeleteConditions(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	bind(t, c, "amq.direct", "q", "k")
	p := publisher(t, c)
	p.exchange("amq.direct", "k", "one")
	_, err := c.DeleteQueue(soon(t), "q", false, true)
	wantCode(t, err, kernel.CodePrecondition)
	if n, err := c.PurgeQueue(soon(t), "q"); n != 1 || err != nil {
		t.Errorf("purge: %d, %v", n, err)
	}
	m, _ := consume(t, c, "q", kernel.MemberOptions{}, 0)
	_, err = c.DeleteQueue(soon(t), "q", true, true)
	wantCode(t, err, kernel.CodePrecondition)
	m.Leave()
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 0)
	if _, err = c.DeleteQueue(soon(t), "q", false, false); err != nil {
		t.Error(err)
	}
	in.wait(t, 1)
	wantCode(t, in.ended, kernel.CodeDropped)
	m.Leave()
	if n := p.exchange("amq.direct", "k", "two"); n != 0 {
		t.Errorf("the binding survived its queue: %d", n)
	}
	if n, err := c.DeleteQueue(soon(t), "q", true, true); n != 0 || err != nil {
		t.Errorf("delete of a missing queue: %d, %v", n, err)
	}
	x := kernel.Exchange{Name: "x", Type: kernel.Topics, Durable: true}
	if err := c.DeclareExchange(soon(t), x); err != nil {
		t.Fatal(err)
	}
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	bind(t, c, "x", "q", "a.#")
	wantCode(t, c.DeleteExchange(soon(t), "x", true), kernel.CodePrecondition)
	if n := p.exchange("x", "a.b", "one"); n != 1 {
		t.Errorf("matched %d", n)
	}
	if err := c.Unbind(soon(t), kernel.Binding{Exchange: "x", Queue: "q", Key: "a.#"}); err != nil {
		t.Error(err)
	}
	if err := c.DeleteExchange(soon(t), "x", true); err != nil {
		t.Error(err)
	}
	_, err = p.p.ToExchange("x", "a.b", &kernel.Record{}, kernel.PublishOptions{}, 99)
	wantCode(t, err, kernel.CodeNotFound)
}

func TestProvisional(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	p := publisher(t, c)
	n, err := p.p.ToExchange("", "jobs", &kernel.Record{Value: []byte("no")}, kernel.PublishOptions{Mandatory: true}, 77)
	if n != 0 || err != nil {
		t.Errorf("mandatory: %d, %v", n, err)
	}
	for i := range 3 {
		if n := p.exchange("", "jobs", fmt.Sprint(i)); n != 1 {
			t.Errorf("matched %d", n)
		}
	}
	if n := p.exchange("", "amq.gen-x", "no"); n != 0 {
		t.Errorf("a reserved name was made: %d", n)
	}
	kt, _ := c.Topic("jobs")
	if kt.ExpiresAt.IsZero() {
		t.Error("it does not expire")
	}
	info := declare(t, c, QueueSpec{Name: "jobs", Type: kernel.Quorum, Durable: true})
	if info.Ready != 3 {
		t.Errorf("the declaration lost messages: %+v", info)
	}
	kt, _ = c.Topic("jobs")
	if !kt.ExpiresAt.IsZero() || kt.Queue.Type != kernel.Quorum {
		t.Errorf("%+v", kt)
	}
	p.exchange("", "taken", "1")
	_, in := consume(t, c, "taken", kernel.MemberOptions{AutoSettle: true}, 5)
	in.wait(t, 1)
	if kt, _ = c.Topic("taken"); !kt.ExpiresAt.IsZero() {
		t.Error("it still expires although it is consumed")
	}
}

// TestProvisionalFails: a publish whose queue cannot be made is refused, not
// confirmed as one that has no target.
func TestProvisionalFails(t *testing.T) {
	b := open(t, t.TempDir())
	p := publisher(t, connect(t, b))
	b.cancel() // every change of metadata fails
	_, err := p.p.ToExchange("", "jobs", &kernel.Record{}, kernel.PublishOptions{}, 1)
	wantCode(t, err, kernel.CodeUnknown)
	if got := len(p.done.got); got != 0 {
		t.Errorf("%d outcomes", got)
	}
}

func TestProvisionalOff(t *testing.T) {
	b := open(t, t.TempDir(), func(c *Config) {
		c.Settings = DefaultSettings()
		c.Settings.AutoCreateQueues = false
	})
	p := publisher(t, connect(t, b))
	if n := p.exchange("", "jobs", "1"); n != 0 {
		t.Errorf("matched %d", n)
	}
}

func TestUnion(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "a/b", Durable: true})
	declare(t, c, QueueSpec{Name: "bound", Durable: true})
	declare(t, c, QueueSpec{Name: "memory"})
	bind(t, c, "amq.topic", "bound", "a.*")
	bind(t, c, "amq.topic", "bound", "#")
	bind(t, c, "amq.topic", "memory", "a.b")
	declare(t, c, QueueSpec{Name: "$share/w/a/+", Durable: true})
	p := publisher(t, c)
	if n := p.topic("a/b", "1"); n != 4 {
		t.Errorf("by name: matched %d, want 4", n)
	}
	if n := p.exchange("amq.topic", "a.b", "2"); n != 3 {
		t.Errorf("by key: matched %d, want 3: nobody subscribes to a/b", n)
	}
	for name, want := range map[string]int64{"a/b": 1, "bound": 2, "memory": 2, "$share/w/a/+": 2} {
		if info, err := c.Queue(name); err != nil || info.Ready != want {
			t.Errorf("%s: %+v, %v, want %d ready", name, info, err, want)
		}
	}
}

func TestShareGroups(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	p := publisher(t, c)
	declare(t, c, QueueSpec{Name: "orders", Durable: true})
	p.exchange("", "orders", "1")
	declare(t, c, QueueSpec{Name: "$share/audit/orders", Durable: true})
	p.exchange("", "orders", "2")
	_, own := consume(t, c, "$queue/orders", kernel.MemberOptions{}, 10)
	_, audit := consume(t, c, "$share/audit/orders", kernel.MemberOptions{}, 10)
	if got := own.wait(t, 2); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("own group: %q", got)
	}
	if got := audit.wait(t, 1); !slices.Equal(got, []string{"2"}) {
		t.Errorf("further group: %q", got)
	}
	wantCode(t, c.Bind(soon(t), kernel.Binding{Exchange: "amq.direct", Queue: "$share/audit/orders"}), kernel.CodeNotAllowed)
	// The queue goes, its topic stays for the other group.
	if _, err := c.DeleteQueue(soon(t), "orders", false, false); err != nil {
		t.Fatal(err)
	}
	own.wait(t, 3)
	if _, ok := c.Topic("orders"); !ok {
		t.Error("the topic went although another group reads it")
	}
	if _, err := c.DeleteQueue(soon(t), "$share/audit/orders", false, false); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Topic("orders"); ok {
		t.Error("the topic stayed without a reader")
	}
}

func TestExclusiveConsumer(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	m, _ := consume(t, c, "q", kernel.MemberOptions{Exclusive: true}, 1)
	addr, _ := c.Address("q")
	_, err := c.Join(soon(t), addr, kernel.MemberOptions{}, newInbox())
	wantCode(t, err, kernel.CodeAccessRefused)
	if err.(*kernel.Error).Detail != "queue 'q' in vhost '/' in exclusive use" {
		t.Error(err)
	}
	m.Leave()
	consume(t, c, "q", kernel.MemberOptions{}, 1)
}

func TestJoinCreates(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	addr, _ := c.Address("$share/w/in/+")
	_, err := c.Join(soon(t), addr, kernel.MemberOptions{}, newInbox())
	wantCode(t, err, kernel.CodeNotFound)
	m, in := consume(t, c, "$share/w/in/+", kernel.MemberOptions{Create: true, AutoSettle: true}, 10)
	p := publisher(t, c)
	p.topic("in/1", "1")
	in.wait(t, 1)
	m.Leave()
	_, err = c.Queue("$share/w/in/+")
	wantCode(t, err, kernel.CodeNotFound)
	if n := p.topic("in/1", "2"); n != 0 {
		t.Errorf("the filter topic outlived its last subscription: %d", n)
	}
}

func TestAdoptTopic(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	if _, err := c.CreateTopic(soon(t), TopicSpec{Name: "log", Partitions: 3, Retention: kernel.RetainWeek}); err != nil {
		t.Fatal(err)
	}
	p := publisher(t, c)
	for i := range 10 {
		p.topic("log", fmt.Sprint(i))
	}
	_, err := c.DeclareQueue(soon(t), QueueSpec{Name: "log"})
	wantCode(t, err, kernel.CodePrecondition)
	_, err = c.DeclareQueue(soon(t), QueueSpec{Name: "log", Exclusive: true})
	wantCode(t, err, kernel.CodeLocked)
	if info := declare(t, c, QueueSpec{Name: "log", Durable: true}); info.Ready != 10 {
		t.Errorf("%+v", info)
	}
	if kt, _ := c.Topic("log"); kt.Partitions != 3 || kt.Retention != kernel.RetainWeek {
		t.Errorf("%+v", kt)
	}
	wantCode(t, c.DeleteTopic(soon(t), "log"), kernel.CodePrecondition)
	if _, err := c.PurgeQueue(soon(t), "log"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(soon(t), "log"); err != nil {
		t.Error(err)
	}
	wantCode(t, c.DeleteTopic(soon(t), "log"), kernel.CodeNotFound)
}
