package broker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/trivium-mq/trivium/kernel"
)

// TestPublisherSettle: after it, what comes later sees all that was published
// before, whether or not somebody hears of the outcomes.
func TestPublisherSettle(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	for name, done := range map[string]kernel.Completion{"unheard": nil, "heard": newOutcomes()} {
		declare(t, c, QueueSpec{Name: name, Durable: true})
		declare(t, c, QueueSpec{Name: name + " volatile"})
		for _, q := range []string{name, name + " volatile"} {
			bind(t, c, "amq.direct", q, name)
		}
		p := c.Publisher(done)
		defer p.Close()
		for i := range int64(50) {
			r := &kernel.Record{Key: []byte(name), Value: []byte("v")}
			if _, err := p.ToExchange("amq.direct", name, r, kernel.PublishOptions{}, uint64(i)); err != nil {
				t.Fatal(err)
			}
			if err := p.Settle(soon(t)); err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{name, name + " volatile"} {
				if info, err := c.Queue(q); err != nil || info.Ready != i+1 {
					t.Fatalf("%s: %+v, %v after %d", q, info, err, i+1)
				}
			}
		}
		if n, err := c.PurgeQueue(soon(t), name); err != nil || n != 50 {
			t.Errorf("purged %d, %v", n, err)
		}
		// Without a target there is nothing to wait for.
		if _, err := p.ToExchange("amq.direct", "none", &kernel.Record{}, kernel.PublishOptions{}, 50); err != nil {
			t.Error(err)
		}
		if err := p.Settle(soon(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestSettleEnds: it does not wait for ever for outcomes that do not come.
func TestSettleEnds(t *testing.T) {
	s := newSink(nil)
	s.Completed(1, kernel.Result{})
	if err := s.await(context.Background(), 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.await(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	synctest.Test(t, func(t *testing.T) {
		wantCode(t, newSink(nil).await(context.Background(), 1), kernel.CodeUnavailable)
	})
}

// TestQueueType: a queue's state and its members know what it was declared as.
func TestQueueType(t *testing.T) {
	b := open(t, t.TempDir())
	c := connect(t, b)
	for _, tc := range []struct {
		name string
		kind kernel.QueueType
	}{{"c", kernel.Classic}, {"q", kernel.Quorum}, {"s", kernel.Stream}, {"$share/g/c", kernel.Quorum}} {
		if info := declare(t, c, QueueSpec{Name: tc.name, Durable: true, Type: tc.kind}); info.Type != tc.kind {
			t.Errorf("%s is declared as %d, want %d", tc.name, info.Type, tc.kind)
		}
		addr, err := c.Address(tc.name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Join(soon(t), addr, kernel.MemberOptions{Pull: true}, nil)
		if err != nil || m.Type() != tc.kind {
			t.Errorf("a member of %s: %v, type %d", tc.name, err, m.Type())
		}
	}
}
