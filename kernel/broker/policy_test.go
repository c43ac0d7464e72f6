package broker

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
)

func policyOf(name, pattern string, to kernel.PolicyTarget, args ...any) kernel.Policy {
	p := kernel.Policy{Tenant: kernel.DefaultTenant, Name: name, Pattern: pattern, ApplyTo: to}
	for i := 0; i < len(args); i += 2 {
		value := args[i+1]
		if n, ok := value.(int); ok {
			value = int64(n)
		}
		p.Definition = append(p.Definition, kernel.Argument{Name: args[i].(string), Value: value})
	}
	return p
}

func putPolicy(t testing.TB, b *Broker, p kernel.Policy) {
	t.Helper()
	if err := b.PutPolicy(soon(t), p); err != nil {
		t.Fatal(err)
	}
}

func dropPolicy(t testing.TB, b *Broker, name string) {
	t.Helper()
	if err := b.DropPolicy(soon(t), kernel.DefaultTenant, false, name); err != nil {
		t.Fatal(err)
	}
}

// placed returns the limits that the placement group goes by.
func placed(t testing.TB, b *Broker, queue string) kernel.Limits {
	t.Helper()
	tn, _ := b.tenant(kernel.DefaultTenant)
	addr := kernel.QueueAddress(kernel.DefaultTenant, queue)
	if kernel.IsShare(queue) {
		addr, _, _ = kernel.ParseShare(kernel.DefaultTenant, queue)
	}
	g, ok := tn.find(addr)
	if !ok {
		t.Fatalf("no queue %s", queue)
	}
	l, _ := g.place.Limits(g.id)
	return l
}

func ready(b *Broker, queue string) int64 {
	q, _ := b.QueueStatus(kernel.DefaultTenant, queue)
	return q.Info.Ready
}

// TestPolicyTrimsWhatIsThere: a policy holds for queues and records that are
// there, and what it did not delete is as before when it goes.
func TestPolicyTrimsWhatIsThere(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "orders", Durable: true})
	declare(t, c, QueueSpec{Name: "volatile"})
	declare(t, c, QueueSpec{Name: "dead", Durable: true})
	p := publisher(t, c)
	for i := range 10 {
		p.exchange("", "orders", fmt.Sprint(i))
		p.exchange("", "volatile", fmt.Sprint(i))
	}
	pol := policyOf("trim", "^(orders|volatile)$", kernel.PolicyQueues,
		"max-length", 3, "dead-letter-exchange", "", "dead-letter-routing-key", "dead")
	putPolicy(t, b, pol)
	until(t, "both are trimmed", func() bool { return ready(b, "orders") == 3 && ready(b, "volatile") == 3 && ready(b, "dead") == 14 })
	p.exchange("", "orders", "10")
	until(t, "the next one drops the first", func() bool { return ready(b, "orders") == 3 && ready(b, "dead") == 15 })
	dropPolicy(t, b, "trim")
	p.exchange("", "orders", "11")
	until(t, "nothing limits it", func() bool { return ready(b, "orders") == 4 })
	_, in := consume(t, c, "orders", kernel.MemberOptions{}, 4)
	if got := fmt.Sprint(in.wait(t, 4)); got != "[8 9 10 11]" {
		t.Errorf("kept %s", got)
	}
	if placed(t, b, "orders") != kernel.NoLimits() {
		t.Error("limits are left")
	}
}

// TestPolicyReachesWhatComesLater: declared, made by a publish, adopted.
func TestPolicyReachesWhatComesLater(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	putPolicy(t, b, policyOf("all", "", kernel.PolicyQueues, "max-length", 7))
	operator := policyOf("bound", "^b", kernel.PolicyQueues, "max-length", 5)
	operator.Operator = true
	putPolicy(t, b, operator)
	quorum := policyOf("quorum", "late", kernel.PolicyQuorumQueues, "delivery-limit", 3)
	quorum.Priority = 1
	putPolicy(t, b, quorum)

	declare(t, c, QueueSpec{Name: "a", Durable: true})
	declare(t, c, QueueSpec{Name: "b", Exclusive: true, Arguments: []kernel.Argument{{Name: "x-max-length", Value: int64(6)}}})
	declare(t, c, QueueSpec{Name: "small", Arguments: []kernel.Argument{{Name: "x-max-length", Value: int64(2)}}})
	publisher(t, c).exchange("", "late", "1")
	declare(t, c, QueueSpec{Name: "$share/s/a", Durable: true})
	for queue, want := range map[string]int64{"a": 7, "b": 5, "small": 2, "late": 7, "$share/s/a": 7} {
		if got := placed(t, b, queue).MaxLength; got != want {
			t.Errorf("%s: %d, want %d", queue, got, want)
		}
	}
	if q, _ := b.QueueStatus(kernel.DefaultTenant, "late"); b.QueuePolicies(&q).Policy.Name != "all" {
		t.Error("a queue that a publish made is listed without its policy")
	}
	declare(t, c, QueueSpec{Name: "late", Durable: true, Type: kernel.Quorum})
	if l := placed(t, b, "late"); l.MaxLength != kernel.Unlimited || l.DeliveryLimit != 3 {
		t.Errorf("declared at last: %+v", l)
	}
	q, _ := b.QueueStatus(kernel.DefaultTenant, "b")
	if e := b.QueuePolicies(&q); e.Policy.Name != "all" || e.Operator.Name != "bound" || len(e.Definition()) != 1 || e.Definition()[0].Value != int64(5) {
		t.Errorf("listed: %+v", e)
	}
	// What no queue is has no policy.
	if _, err := c.CreateTopic(soon(t), TopicSpec{Name: "log", Partitions: 1, Retention: kernel.RetainWeek}); err != nil {
		t.Fatal(err)
	}
	consume(t, c, "$share/g/log", kernel.MemberOptions{Create: true}, 0)
	if l := placed(t, b, "$share/g/log"); l != kernel.NoLimits() {
		t.Errorf("a group of a topic: %+v", l)
	}
	if q, _ := b.QueueStatus(kernel.DefaultTenant, "$share/g/log"); b.QueuePolicies(&q).Policy != nil {
		t.Error("a group of a topic is listed with a policy")
	}
}

func TestAlternateExchangeByPolicy(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	for _, x := range []kernel.Exchange{
		{Name: "x", Type: kernel.Direct, Durable: true}, {Name: "rest", Type: kernel.Fanout, Durable: true},
		{Name: "own", Type: kernel.Direct, Durable: true, Arguments: []kernel.Argument{{Name: kernel.ArgAlternate, Value: "nowhere"}}},
	} {
		if err := c.DeclareExchange(soon(t), x); err != nil {
			t.Fatal(err)
		}
	}
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	bind(t, c, "rest", "q", "")
	p := publisher(t, c)
	check := func(p *pub, want ...int) {
		t.Helper()
		for i, x := range []string{"x", "own", "amq.direct", "later"} {
			if got := p.exchange(x, "k", x); got != want[i] {
				t.Errorf("%s: %d, want %d", x, got, want[i])
			}
		}
	}
	later := kernel.Exchange{Name: "later", Type: kernel.Direct, Durable: true}
	putPolicy(t, b, policyOf("ae", "^(x|own|later|amq.direct)$", kernel.PolicyExchanges, "alternate-exchange", "rest"))
	if err := c.DeclareExchange(soon(t), later); err != nil {
		t.Fatal(err)
	}
	check(p, 1, 0, 1, 1)
	if b.ExchangePolicy("/", "x").Name != "ae" || b.ExchangePolicy("/", "rest") != nil {
		t.Error("listed otherwise")
	}
	c.Close()
	shut(t, b)
	b = open(t, dir)
	p = publisher(t, connect(t, b))
	check(p, 1, 0, 1, 1)
	dropPolicy(t, b, "ae")
	check(p, 0, 0, 0, 0)
}

// TestStartFinishesPolicies: a crash may come between the catalog, which has a
// change of a policy, and the queues, which do not know of it yet.
func TestStartFinishesPolicies(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "q", Durable: true})
	declare(t, c, QueueSpec{Name: "was", Durable: true})
	putPolicy(t, b, policyOf("old", "^was$", kernel.PolicyQueues, "max-length", 1, "retention-age", 5000))
	tn, _ := b.tenant(kernel.DefaultTenant)
	was, _ := tn.table.Load().Topic(kernel.Plain, "was")
	retention := func() kernel.Retention {
		for _, info := range b.durable.Topics() {
			if info.ID == was.ID {
				return info.Partitions[0].Retention
			}
		}
		return kernel.Retention{}
	}
	if got := retention(); got.Age != 5*time.Second {
		t.Errorf("retention %+v", got)
	}
	p := publisher(t, c)
	for i := range 5 {
		p.exchange("", "q", fmt.Sprint(i))
	}
	err := b.commit(soon(t), catalog.PutPolicy{Policy: policyOf("p", "^q$", kernel.PolicyQueues, "max-length", 2)},
		catalog.DropPolicy{Tenant: "/", Name: "old"})
	if err != nil {
		t.Fatal(err)
	}
	shut(t, b)
	b = open(t, dir)
	if l := placed(t, b, "q"); l.MaxLength != 2 {
		t.Errorf("limits %+v", l)
	}
	if l := placed(t, b, "was"); l != kernel.NoLimits() {
		t.Errorf("limits of a dropped policy %+v", l)
	}
	if got := retention(); got != kernel.RetainDay {
		t.Errorf("retention of a dropped policy %+v", got)
	}
	until(t, "it is trimmed", func() bool { return ready(b, "q") == 2 })
	if list := b.Policies(); len(list) != 1 || list[0].Name != "p" {
		t.Errorf("%+v", list)
	}
}

func TestExpiryByPolicy(t *testing.T) {
	var now clock
	b := open(t, t.TempDir(), func(c *Config) { c.Now = now.now })
	c := connect(t, b)
	declare(t, c, QueueSpec{Name: "a", Durable: true})
	declare(t, c, expiring("b", 3*hour))
	now.pass(b, 2*time.Hour)
	putPolicy(t, b, policyOf("p", "", kernel.PolicyQueues, "expires", int(2*hour)))
	now.pass(b, 90*time.Minute)
	if !hasQueue(b, "a") || !hasQueue(b, "b") {
		t.Error("the time before the policy counted")
	}
	dropPolicy(t, b, "p")
	now.pass(b, time.Hour)
	if !hasQueue(b, "a") || !hasQueue(b, "b") {
		t.Error("the policy that is gone counted")
	}
	now.pass(b, 3*time.Hour)
	if !hasQueue(b, "a") || hasQueue(b, "b") {
		t.Error("the declaration does not count")
	}
}

// TestDeclareWhilePoliciesChange: whoever comes first, all queues have in the end
// what the policies say.
func TestDeclareWhilePoliciesChange(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	p := publisher(t, c)
	var wg sync.WaitGroup
	const rounds = 30
	wg.Go(func() {
		for i := range rounds {
			if err := b.PutPolicy(soon(t), policyOf("p", "^q", kernel.PolicyQueues, "max-length", i+1)); err != nil {
				t.Error(err)
			}
		}
	})
	for w := range 3 {
		wg.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("q%d.%d", w, i)
				q := QueueSpec{Name: name, Durable: w > 0}
				if _, err := c.DeclareQueue(soon(t), q); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range rounds { // provisional, then declared
		name := fmt.Sprintf("q3.%d", i)
		p.exchange("", name, "1")
		declare(t, c, QueueSpec{Name: name, Durable: true})
	}
	wg.Wait()
	for _, q := range b.QueueStatuses() {
		if got := placed(t, b, q.Info.Name).MaxLength; got != rounds {
			t.Errorf("%s: %d", q.Info.Name, got)
		}
	}
}

func TestPoliciesRefused(t *testing.T) {
	b := open(t, t.TempDir())
	wantCode(t, b.PutPolicy(soon(t), policyOf("p", "(", kernel.PolicyAll, "max-length", 1)), kernel.CodeInvalid)
	wantCode(t, b.PutPolicy(soon(t), policyOf("p", strings.Repeat("a", 5000), kernel.PolicyAll, "max-length", 1)), kernel.CodeInvalid)
	p := policyOf("p", "", kernel.PolicyAll, "max-length", 1)
	p.Tenant = "none"
	wantCode(t, b.PutPolicy(soon(t), p), kernel.CodeNotFound)
	wantCode(t, b.DropPolicy(soon(t), "/", false, "none"), kernel.CodeNotFound)
	_, err := b.Policy("/", true, "none")
	wantCode(t, err, kernel.CodeNotFound)
}

// BenchmarkPolicyOfManyQueues puts a policy that changes 10,000 queues.
func BenchmarkPolicyOfManyQueues(b *testing.B) {
	br := open(b, b.TempDir())
	c := connect(b, br)
	const n = 10_000
	var wg sync.WaitGroup
	for w := range 100 {
		wg.Go(func() {
			for i := range n / 100 {
				if _, err := c.DeclareQueue(br.ctx, QueueSpec{Name: fmt.Sprintf("q%d.%d", w, i), Durable: true}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	round := 0
	for b.Loop() {
		round++
		if err := br.PutPolicy(br.ctx, policyOf("p", "^q", kernel.PolicyQueues, "max-length", round)); err != nil {
			b.Fatal(err)
		}
	}
}

// until waits for what goroutines of the broker bring about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	limit := time.After(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not so: %s", what)
		}
	}
}
