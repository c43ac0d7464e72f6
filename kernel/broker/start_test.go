package broker

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/session"
)

// TestExpiredAtStart restarts a node after queues that nobody declared, and
// sessions, have run out: they go, and what is loaded at the same time stays
// whole.
func TestExpiredAtStart(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	p := publisher(t, c)
	const n = 50
	for i := range n {
		p.exchange("", fmt.Sprintf("provisional-%d", i), "x")
		declare(t, c, QueueSpec{Name: fmt.Sprintf("kept-%d", i), Durable: true})
		bind(t, c, "amq.direct", fmt.Sprintf("kept-%d", i), "k")
	}
	for i := range n {
		s, _ := attach(t, connect(t, b), fmt.Sprintf("client-%d", i), true, time.Hour)
		subscribe(t, s, fmt.Sprintf("s/%d/+", i), 1)
		s.Detach(time.Hour)
		e := b.tenants.load()["/"].sessions[s.s.id]
		e.mu.Lock()
		if err := e.record(soon(t), session.Record{Expiry: time.Duration(1+i%9) * 500 * time.Microsecond}); err != nil {
			t.Error(err)
		}
		e.mu.Unlock()
	}
	shut(t, b)

	later := func() time.Time { return time.Now().Add(provisionalLife + time.Minute) }
	b = open(t, dir, func(cfg *Config) { cfg.Now = later })
	c = connect(t, b)
	table := c.tenant.table.Load()
	if got := len(table.BindingsFrom(kernel.ExchangeDirect)); got != n {
		t.Errorf("%d bindings, want %d", got, n)
	}
	left := func() int {
		c.tenant.mu.Lock()
		defer c.tenant.mu.Unlock()
		return len(c.tenant.topics) - n + len(c.tenant.sessions) + c.tenant.waiting
	}
	for limit := time.Now().Add(patience); left() != 0; runtime.Gosched() {
		if time.Now().After(limit) {
			t.Fatalf("%d objects have not gone", left())
		}
	}
	if got := c.tenant.table.Load().Len(); got != n {
		t.Errorf("%d topics in the table, want %d", got, n)
	}
}

// TestOffsetsOfGoneTopics: positions in topics that are there no more do not
// pile up for ever.
func TestOffsetsOfGoneTopics(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	kept, err := c.AutoCreateTopic(soon(t), "kept")
	if err != nil {
		t.Fatal(err)
	}
	declare(t, c, QueueSpec{Name: "gone", Durable: true})
	gone, _ := c.Topic("gone")
	for _, commit := range []OffsetCommit{{Topic: kept.ID, Offset: 1}, {Topic: gone.ID, Offset: 2}, {Topic: newTopicID(), Offset: 3}} {
		if err := c.CommitOffsets(soon(t), "g", []OffsetCommit{commit}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.DeleteQueue(soon(t), "gone", false, false); err != nil {
		t.Fatal(err)
	}
	shut(t, b)
	got, err := connect(t, open(t, dir)).Offsets("g")
	if err != nil || len(got) != 1 || got[0].Topic != kept.ID || got[0].Offset != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestExchangeLimit(t *testing.T) {
	b := open(t, t.TempDir(), func(cfg *Config) { cfg.Limits.Exchanges = 6 })
	c := connect(t, b)
	x := kernel.Exchange{Name: "x", Type: kernel.Direct}
	if err := c.DeclareExchange(soon(t), x); err != nil {
		t.Fatal(err)
	}
	if err := c.DeclareExchange(soon(t), x); err != nil {
		t.Error(err)
	}
	x.Name = "y"
	wantCode(t, c.DeclareExchange(soon(t), x), kernel.CodeLimit)
}
