package policy

import (
	"reflect"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

func define(args ...any) []kernel.Argument {
	var list []kernel.Argument
	for i := 0; i < len(args); i += 2 {
		value := args[i+1]
		if n, ok := value.(int); ok {
			value = int64(n)
		}
		list = append(list, kernel.Argument{Name: args[i].(string), Value: value})
	}
	Sort(list)
	return list
}

func TestCheck(t *testing.T) {
	good := kernel.Policy{Name: "p", Pattern: "^a", ApplyTo: kernel.PolicyQueues}
	for _, tc := range []struct {
		name string
		edit func(*kernel.Policy)
		ok   bool
	}{
		{"a limit", func(p *kernel.Policy) { p.Definition = define(MaxLength, 5) }, true},
		{"no setting", func(p *kernel.Policy) {}, false},
		{"unknown setting", func(p *kernel.Policy) { p.Definition = define("max-lenght", 5) }, false},
		{"negative", func(p *kernel.Policy) { p.Definition = define(MaxLength, -5) }, false},
		{"expires 0", func(p *kernel.Policy) { p.Definition = define(Expires, 0) }, false},
		{"ttl 0", func(p *kernel.Policy) { p.Definition = define(MessageTTL, 0) }, true},
		{"no delivery limit", func(p *kernel.Policy) { p.Definition = define(DeliveryLimit, -1) }, true},
		{"text for number", func(p *kernel.Policy) { p.Definition = define(MaxLength, "5") }, false},
		{"bad overflow", func(p *kernel.Policy) { p.Definition = define(Overflow, "drop") }, false},
		{"mirrors are no matter here", func(p *kernel.Policy) { p.Definition = define("ha-mode", "all") }, true},
		{"operator mirrors", func(p *kernel.Policy) {
			p.Operator, p.Definition = true, define("ha-mode", "all", "max-in-memory-length", 5)
		}, true},
		{"operator locator", func(p *kernel.Policy) { p.Operator, p.Definition = true, define("queue-leader-locator", "balanced") }, false},
		{"operator limit", func(p *kernel.Policy) { p.Operator, p.Definition = true, define(MaxLength, 5) }, true},
		{"operator dead letters", func(p *kernel.Policy) { p.Operator, p.Definition = true, define(DeadLetterExchange, "x") }, false},
		{"operator exchanges", func(p *kernel.Policy) {
			p.Operator, p.ApplyTo, p.Definition = true, kernel.PolicyExchanges, define(MaxLength, 5)
		}, false},
		{"bad pattern", func(p *kernel.Policy) { p.Pattern, p.Definition = "(", define(MaxLength, 5) }, false},
		{"bad target", func(p *kernel.Policy) { p.ApplyTo, p.Definition = "queue", define(MaxLength, 5) }, false},
	} {
		p := good
		tc.edit(&p)
		err := Check(&p)
		if tc.ok != (err == nil) || err != nil && kernel.CodeOf(err) != kernel.CodeInvalid {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if err := Check(&kernel.Policy{Pattern: "a", ApplyTo: kernel.PolicyAll}); kernel.CodeOf(err) != kernel.CodeInvalidName {
		t.Errorf("no name: %v", err)
	}
}

func TestHighestPriorityApplies(t *testing.T) {
	set := New([]*kernel.Policy{
		{Name: "all", Pattern: "", ApplyTo: kernel.PolicyAll, Priority: 0, Definition: define(MaxLength, 1)},
		{Name: "b", Pattern: "^orders", ApplyTo: kernel.PolicyQueues, Priority: 5, Definition: define(MaxLength, 2)},
		{Name: "a", Pattern: "rders$", ApplyTo: kernel.PolicyQuorumQueues, Priority: 5, Definition: define(MaxLength, 3)},
		{Name: "x", Pattern: ".*", ApplyTo: kernel.PolicyExchanges, Priority: 9, Definition: define(AlternateExchange, "ae")},
		{Name: "op", Operator: true, Pattern: "orders", ApplyTo: kernel.PolicyClassicQueues, Definition: define(MaxLength, 4)},
	})
	for _, tc := range []struct {
		queue          string
		typ            kernel.QueueType
		policy, opName string
	}{
		{"other", kernel.Classic, "all", ""},
		{"orders", kernel.Classic, "b", "op"},
		{"orders", kernel.Quorum, "a", ""},
		{"orders.eu", kernel.Quorum, "b", ""},
	} {
		e := set.Queue(tc.queue, tc.typ)
		op := ""
		if e.Operator != nil {
			op = e.Operator.Name
		}
		if e.Policy.Name != tc.policy || op != tc.opName {
			t.Errorf("%s: %s and %q, want %s and %q", tc.queue, e.Policy.Name, op, tc.policy, tc.opName)
		}
	}
	if p := set.Exchange("orders"); p == nil || p.Name != "x" {
		t.Errorf("exchange: %v", p)
	}
	var none *Set
	if none.Exchange("x") != nil || none.Queue("q", kernel.Classic) != (Effective{}) {
		t.Error("an absent set has policies")
	}
}

func TestLimitsOfDeclarationAndPolicies(t *testing.T) {
	key, dlx := "k", "dlx"
	policy := func(args ...any) *kernel.Policy { return &kernel.Policy{Definition: define(args...)} }
	for _, tc := range []struct {
		name string
		own  func(*kernel.Limits)
		args []kernel.Argument
		typ  kernel.QueueType
		e    Effective
		want func(*kernel.Limits)
	}{
		{name: "policy alone", e: Effective{Policy: policy(MaxLength, 5, MessageTTL, 100, Expires, 2000)},
			want: func(l *kernel.Limits) {
				l.MaxLength, l.MessageTTL, l.Expires = 5, 100*time.Millisecond, 2*time.Second
			}},
		{name: "the smaller", own: func(l *kernel.Limits) { l.MaxLength, l.MessageTTL = 3, time.Second },
			args: define("x-max-length", 3, "x-message-ttl", 1000), e: Effective{Policy: policy(MaxLength, 5, MessageTTL, 100)},
			want: func(l *kernel.Limits) { l.MaxLength, l.MessageTTL = 3, 100*time.Millisecond }},
		{name: "operator is smaller", e: Effective{policy(MaxLength, 5), policy(MaxLength, 4, MaxLengthBytes, 7)},
			want: func(l *kernel.Limits) { l.MaxLength, l.MaxBytes = 4, 7 }},
		{name: "operator is larger", e: Effective{policy(MaxLength, 5), policy(MaxLength, 6)},
			want: func(l *kernel.Limits) { l.MaxLength = 5 }},
		{name: "declared dead letters", own: func(l *kernel.Limits) { l.DeadLetter, l.DeadLetterExchange = true, "mine" },
			args: define("x-dead-letter-exchange", "mine"), e: Effective{Policy: policy(DeadLetterExchange, dlx, DeadLetterKey, key)},
			want: func(l *kernel.Limits) { l.DeadLetter, l.DeadLetterExchange, l.DeadLetterKey = true, "mine", &key }},
		{name: "dead letters by policy", e: Effective{Policy: policy(DeadLetterExchange, dlx, Overflow, "reject-publish")},
			want: func(l *kernel.Limits) {
				l.DeadLetter, l.DeadLetterExchange, l.Overflow = true, dlx, kernel.RejectPublish
			}},
		{name: "above the type's default", typ: kernel.Quorum, own: func(l *kernel.Limits) { l.DeliveryLimit = 20 }, e: Effective{Policy: policy(DeliveryLimit, 50)},
			want: func(l *kernel.Limits) { l.DeliveryLimit = 50 }},
		{name: "below the declared", typ: kernel.Quorum, own: func(l *kernel.Limits) { l.DeliveryLimit = 10 }, args: define("x-delivery-limit", 10),
			e: Effective{policy(DeliveryLimit, 50), policy(DeliveryLimit, 3)}, want: func(l *kernel.Limits) { l.DeliveryLimit = 3 }},
		{name: "a classic queue counts no deliveries", e: Effective{Policy: policy(DeliveryLimit, 5, DeadLetterStrategy, "at-least-once")},
			want: func(l *kernel.Limits) {}},
		{name: "at least once", typ: kernel.Quorum, e: Effective{Policy: policy(DeadLetterStrategy, "at-least-once", Overflow, "reject-publish-dlx")},
			want: func(l *kernel.Limits) { l.AtLeastOnce = true }},
		{name: "a stream has none", typ: kernel.Stream, e: Effective{Policy: policy(MaxLength, 5, Expires, 5)},
			want: func(l *kernel.Limits) {}},
		{name: "the operator's overflow", e: Effective{policy(Overflow, "drop-head"), policy(Overflow, "reject-publish")},
			want: func(l *kernel.Limits) { l.Overflow = kernel.RejectPublish }},
		{name: "overlong", e: Effective{Policy: policy(MessageTTL, int64(1)<<62)},
			want: func(l *kernel.Limits) { l.MessageTTL = (1<<63 - 1) / time.Millisecond * time.Millisecond }},
	} {
		own, want := kernel.NoLimits(), kernel.NoLimits()
		if tc.own != nil {
			tc.own(&own)
		}
		tc.want(&want)
		if got := tc.e.Limits(own, &kernel.Queue{Type: tc.typ, Arguments: tc.args}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, want)
		}
	}
}

func TestRetention(t *testing.T) {
	hour, day := time.Hour, 24*time.Hour
	for _, tc := range []struct {
		name     string
		own      kernel.Retention
		declared bool
		def      []kernel.Argument
		want     kernel.Retention
	}{
		{"none", kernel.RetainDay, false, define(MaxLength, 5), kernel.RetainDay},
		{"the default is replaced", kernel.Retention{Age: hour}, false, define(RetentionAge, 86400000), kernel.Retention{Age: day}},
		{"delete", kernel.RetainDay, true, define(RetentionAge, 0, RetentionBytes, 7), kernel.Retention{Delete: true}},
		{"the declared is shorter", kernel.Retention{Age: hour}, true, define(RetentionAge, 86400000), kernel.Retention{Age: hour}},
		{"the policy is shorter", kernel.Retention{Age: day}, true, define(RetentionAge, 3600000), kernel.Retention{Age: hour}},
		{"declared to be deleted", kernel.Retention{Delete: true}, true, define(RetentionAge, 3600000, RetentionBytes, 7), kernel.Retention{Delete: true}},
		{"a volatile queue", kernel.RetainUsed, false, define(RetentionAge, 3600000), kernel.Retention{Age: hour}},
		{"bytes", kernel.RetainDay, false, define(RetentionBytes, 7), kernel.Retention{Age: day, Bytes: 7}},
		{"ids", kernel.Retention{Age: day}, true, define(DedupWindow, 5, RetentionAge, 0), kernel.Retention{Delete: true, Dedup: 5e6}},
		{"ids, off", kernel.Retention{Dedup: hour}, true, define(DedupWindow, 0), kernel.Retention{Dedup: -1}},
		{"ids, declared off", kernel.Retention{Dedup: -1}, true, define(DedupWindow, 5), kernel.Retention{Dedup: -1}},
		{"ids, declared shorter", kernel.Retention{Dedup: hour}, true, define(DedupWindow, 86400000), kernel.Retention{Dedup: hour}},
	} {
		if got := (Effective{Policy: &kernel.Policy{Definition: tc.def}}).Retention(tc.own, tc.declared, false); got != tc.want {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
