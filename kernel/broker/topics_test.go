package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/record"
)

// TestDeleteTopicHeldBack: a topic that a durable subscription, a share group or
// a queue's consumer reads is not deleted under them.
func TestDeleteTopicHeldBack(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	if _, err := c.CreateTopic(soon(t), TopicSpec{Name: "news", Partitions: 1, Retention: kernel.RetainWeek}); err != nil {
		t.Fatal(err)
	}
	refused := func(why string) {
		t.Helper()
		err := c.DeleteTopic(soon(t), "news")
		wantCode(t, err, kernel.CodePrecondition)
		if err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("refused for %q, want %q", err, why)
		}
	}
	gone := func(filter string, s *Session) {
		t.Helper()
		if _, err := s.Unsubscribe(soon(t), filter); err != nil {
			t.Fatal(err)
		}
	}
	s, _ := attach(t, connect(t, b), "reader", false, time.Hour)
	subscribe(t, s, "news", 1)
	refused("a durable subscription reads it")
	s.Detach(time.Hour) // nothing is there to settle, and nobody is there to read
	refused("a durable subscription reads it")
	s, _ = attach(t, connect(t, b), "reader", false, time.Hour)
	gone("news", s)
	for filter, why := range map[string]string{"$share/g/news": "group $share/g/news reads it", "$share/news/news": "a queue that has consumers"} {
		subscribe(t, s, filter, 1)
		refused(why)
		s.Detach(time.Hour)
		refused(why)
		s, _ = attach(t, connect(t, b), "reader", false, time.Hour)
		gone(filter, s)
	}
	declare(t, c, QueueSpec{Name: "news", Durable: true})
	m, in := consume(t, c, "news", kernel.MemberOptions{}, 10)
	refused("a queue that has consumers")
	publisher(t, c).topic("news", "x")
	in.wait(t, 1)
	m.Leave()
	refused("not settled")
	if _, err := c.PurgeQueue(soon(t), "news"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(soon(t), "news"); err != nil {
		t.Error(err)
	}
}

func batchOf(values ...string) []byte {
	var b record.Builder
	b.Reset()
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1_700_000_000_000})
	}
	return b.Finish(nil)
}

func TestLogTopic(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	kt, err := c.AutoCreateTopic(soon(t), "events")
	if err != nil || kt.Partitions != 1 || kt.Retention != kernel.RetainWeek {
		t.Fatalf("%+v, %v", kt, err)
	}
	if same, err := c.AutoCreateTopic(soon(t), "events"); err != nil || same != kt {
		t.Errorf("%+v, %v", same, err)
	}
	_, err = c.CreateTopic(soon(t), TopicSpec{Name: "events", Partitions: 1})
	wantCode(t, err, kernel.CodeExists)
	_, err = c.CreateTopic(soon(t), TopicSpec{Name: "many", Partitions: 1 << 20})
	wantCode(t, err, kernel.CodeInvalid)
	s, _ := attach(t, c, "live", true, 0)
	_, in := subscribe(t, s, "events", 0)
	_, wild := subscribe(t, s, "#", 0)
	p := publisher(t, c)
	if err := p.p.ToPartition(kt, 0, batchOf("a", "b"), 1); err != nil {
		t.Fatal(err)
	}
	if res := p.done.wait(t, 1); res.Err != nil || res.Offset != 0 {
		t.Errorf("%+v", res)
	}
	if got := in.wait(t, 2); !slices.Equal(got, []string{"events=a", "events=b"}) {
		t.Errorf("got %q", got)
	}
	wild.wait(t, 0) // a wildcard does not see log producers
	part, err := c.Partition(kt, 0)
	if err != nil {
		t.Fatal(err)
	}
	if start, end := part.Bounds(); start != 0 || end != 2 {
		t.Errorf("bounds %d..%d", start, end)
	}
	data, err := part.Read(0, 1<<20, nil)
	if err != nil || record.Validate(data) != nil || record.Count(data) != 2 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	for _, index := range []int32{-1, 1} {
		wantCode(t, p.p.ToPartition(kt, index, batchOf("x"), 2), kernel.CodeNotFound)
		_, err = c.Partition(kt, index)
		wantCode(t, err, kernel.CodeNotFound)
	}
	if err := c.CommitOffsets(soon(t), "g", []OffsetCommit{{Topic: kt.ID, Offset: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTopic(soon(t), "events"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Offsets("g"); len(got) != 0 || err != nil {
		t.Errorf("offsets of a deleted topic: %+v, %v", got, err)
	}
	wantCode(t, p.p.ToPartition(kt, 0, batchOf("x"), 3), kernel.CodeNotFound)
	if n := c.Counters().In.Load(); n != 2 {
		t.Errorf("counted %d", n)
	}
}

func TestOffsets(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	id := newTopicID()
	for _, g := range []string{"a", "ab", "b"} {
		if err := c.CommitOffsets(soon(t), g, []OffsetCommit{{Topic: id, Offset: 1}, {Topic: id, Partition: 300, Offset: 2}}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.OffsetGroups(); !slices.Equal(got, []string{"a", "ab", "b"}) {
		t.Errorf("groups %q", got)
	}
	if err := c.DeleteOffsets(soon(t), "a"); err != nil {
		t.Fatal(err)
	}
	if got := c.OffsetGroups(); !slices.Equal(got, []string{"ab", "b"}) {
		t.Errorf("groups %q", got)
	}
	if got, err := c.Offsets("ab"); err != nil || len(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	wantCode(t, c.CommitOffsets(soon(t), "a\x00", []OffsetCommit{{}}), kernel.CodeInvalidName)
	wantCode(t, c.CommitOffsets(soon(t), "a", []OffsetCommit{{Metadata: strings.Repeat("x", 5000)}}), kernel.CodeTooLarge)
}

func TestProducerIDs(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	seen := make(map[int64]bool)
	for range 2*producerBlock + 1 {
		id, err := c.NewProducerID(soon(t))
		if err != nil || seen[id] {
			t.Fatalf("id %d given twice, or %v", id, err)
		}
		seen[id] = true
	}
}

// TestPartitioner compares with values of Kafka's own Utils.murmur2 tests.
func TestPartitioner(t *testing.T) {
	for key, want := range map[string]int32{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536,
		"a-little-bit-longer-string": -1486304829, "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
	} {
		if got := int32(murmur2([]byte(key))); got != want {
			t.Errorf("murmur2(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestStatus(t *testing.T) {
	reg := prometheus.NewRegistry()
	b := open(t, t.TempDir(), func(c *Config) { c.Registerer = reg; c.Version = "v" })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	declare(t, c, QueueSpec{Name: "m"})
	declare(t, c, QueueSpec{Name: "$share/g/q", Durable: true})
	p := publisher(t, c)
	p.exchange("", "q", "1")
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 1)
	in.wait(t, 1)
	o := b.Overview()
	if o.Queues != 3 || o.Connections != 1 || o.Members != 1 || o.Held != 1 || o.Ready != 1 || o.Exchanges != 6 || o.Syncs == 0 {
		t.Errorf("%+v", o)
	}
	names := []string{}
	for _, s := range b.QueueStatuses() {
		names = append(names, s.Info.Name)
	}
	if !slices.Equal(names, []string{"$share/g/q", "m", "q"}) {
		t.Errorf("%q", names)
	}
	m.Settle(kernel.Accept, 0, 0, 0)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			values[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, want := range map[string]float64{
		"trivium_messages_received_total": 1, "trivium_messages_delivered_total": 1, "trivium_messages_settled_total": 1, "trivium_queues": 3,
	} {
		if values[name] != want {
			t.Errorf("%s = %v, want %v", name, values[name], want)
		}
	}
	for _, name := range []string{"trivium_wal_syncs_total", "trivium_commit_seconds"} {
		if values[name] == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if err := b.Ready(); err != nil {
		t.Error(err)
	}
}

func TestAuthentication(t *testing.T) {
	b := open(t, t.TempDir(), func(c *Config) {
		c.Settings = DefaultSettings()
		c.Settings.Anonymous = false
	})
	id, err := b.Authenticate(t.Context(), "", "/:guest", "guest", loopback)
	if err != nil || id != (kernel.Identity{User: "guest", Tenant: "/"}) {
		t.Errorf("%+v, %v", id, err)
	}
	_, err = b.Authenticate(t.Context(), "", "guest", "wrong", loopback)
	wantCode(t, err, kernel.CodeAccessRefused)
	_, err = b.Anonymous("", loopback)
	wantCode(t, err, kernel.CodeAccessRefused)
	if !b.HasTenant("/") || b.HasTenant("other") {
		t.Error("tenants")
	}
	_, err = b.Connect(kernel.Identity{Tenant: "other"}, kernel.ConnectionInfo{}, nil)
	wantCode(t, err, kernel.CodeNotFound)
}

// TestDrain closes a broker under connections: the one that ends when asked,
// and the one that does not.
func TestDrain(t *testing.T) {
	b := open(t, t.TempDir())
	id, _ := b.Anonymous("", loopback)
	var polite *Conn
	asked := make(chan struct{})
	polite, err := b.Connect(id, kernel.ConnectionInfo{}, func(error) { close(asked) })
	if err != nil {
		t.Fatal(err)
	}
	stubborn, err := b.Connect(id, kernel.ConnectionInfo{}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	declare(t, stubborn, QueueSpec{Name: "q", Durable: true})
	_, in := consume(t, stubborn, "q", kernel.MemberOptions{}, 1)
	go func() {
		<-asked
		polite.Close()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
	wantCode(t, b.Ready(), kernel.CodeUnavailable)
	_, err = b.Connect(id, kernel.ConnectionInfo{}, nil)
	wantCode(t, err, kernel.CodeUnavailable)
	_, err = stubborn.DeclareQueue(context.Background(), QueueSpec{Name: "r"})
	wantCode(t, err, kernel.CodeUnavailable)
	_, err = stubborn.Publisher(nil).ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{}, 1)
	wantCode(t, err, kernel.CodeUnavailable)
	if in.ended != nil {
		t.Errorf("Ended after the member had left: %v", in.ended)
	}
}

// TestRaces declares, binds, publishes, consumes and deletes the same few names
// from many connections at once, then checks that memory and catalog agree.
func TestRaces(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	const workers, rounds = 8, 15
	var wg sync.WaitGroup
	for w := range workers {
		c := connect(t, b)
		p := c.Publisher(newOutcomes())
		wg.Go(func() {
			for i := range rounds {
				churn(t, c, p, w, i)
			}
			p.Close()
		})
	}
	wg.Wait()
	before := summary(t, b)
	shut(t, b)
	b = open(t, dir)
	if after := summary(t, b); after != before {
		t.Errorf("after the restart:\n%s\nbefore:\n%s", after, before)
	}
}

func churn(t *testing.T, c *Conn, p *Publisher, w, i int) {
	ctx := context.Background()
	q := fmt.Sprintf("q%d", (w+i)%3)
	x := kernel.Exchange{Name: fmt.Sprintf("x%d", i%2), Type: kernel.Topics, Durable: true, AutoDelete: i%2 == 0}
	_, err := c.DeclareQueue(ctx, QueueSpec{Name: q, Durable: true})
	check := func(err error) {
		switch {
		case err == nil, kernel.CodeOf(err) == kernel.CodeNotFound, kernel.CodeOf(err) == kernel.CodeDropped:
		default:
			t.Errorf("worker %d, round %d: %v", w, i, err)
		}
	}
	check(err)
	check(c.DeclareExchange(ctx, x))
	check(c.Bind(ctx, kernel.Binding{Exchange: x.Name, Queue: q, Key: "a.#"}))
	for n := range 5 {
		_, err = p.ToExchange(x.Name, "a.b", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, uint64(i*10+n))
		check(err)
	}
	m, err := c.Join(ctx, kernel.QueueAddress("/", q), kernel.MemberOptions{AutoSettle: true}, newInbox())
	check(err)
	if err == nil {
		m.Credit(3)
		defer m.Leave()
	}
	switch (w + i) % 4 {
	case 0:
		_, err = c.DeleteQueue(ctx, q, false, false)
		check(err)
	case 1:
		check(c.Unbind(ctx, kernel.Binding{Exchange: x.Name, Queue: q, Key: "a.#"}))
	case 2:
		check(c.DeleteExchange(ctx, x.Name, false))
	}
}

// summary lists what is durable of a tenant.
func summary(t *testing.T, b *Broker) string {
	var s strings.Builder
	table := b.tenants.load()["/"].table.Load()
	for _, q := range b.QueueStatuses() {
		fmt.Fprintf(&s, "%s %+v\n", q.Info.Name, table.BindingsOf(q.Info.Name))
	}
	table.Exchanges(func(x kernel.Exchange) { fmt.Fprintf(&s, "%+v\n", x) })
	return s.String()
}
