package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestSessionBacklog: what waits for a session is bounded by bytes and by age, also
// over a restart; the oldest goes, and other sessions on the same copy keep what
// they have read.
func TestSessionBacklog(t *testing.T) {
	clock, dir := &clockAt{}, t.TempDir()
	limit := func(c *Config) {
		c.Now, c.Limits.BacklogBytes, c.Limits.BacklogAge = clock.now, 5000, 64*time.Hour
	}
	b := open(t, dir, limit)
	for _, id := range []string{"away", "reads"} {
		s, _ := attach(t, connect(t, b), id, true, kernel.SessionForever)
		subscribe(t, s, "x/#", 1)
		s.Detach(kernel.SessionForever)
	}
	p := publisher(t, connect(t, b))
	for i := range 100 {
		p.topic("x/1", fmt.Sprintf("%03d", i)+strings.Repeat("-", 100))
	}
	b.backlogs.sweep()
	left := func(b *Broker, id string) []string {
		t.Helper()
		s, present := attach(t, connect(t, b), id, false, kernel.SessionForever)
		if !present {
			t.Fatal("the session has gone")
		}
		in := newInbox()
		a, err := s.Attach(soon(t), kernel.Subscription{Filter: "x/#", QoS: 1}, 0, in, in)
		if err != nil {
			t.Fatal(err)
		}
		ready, held, _ := b.durable.Count(mustFind(t, b, id).id)
		a.Member.Credit(1000)
		got := slices.Clone(in.wait(t, int(ready+held)))
		s.Detach(kernel.SessionForever)
		return got
	}
	got := left(b, "away")
	if n := len(got); n < 20 || n > 45 || !strings.HasPrefix(got[n-1], "099") {
		t.Errorf("%d are left", n)
	}
	if n := b.backlogs.dropped.Load(); n != uint64(2*(100-len(got))) {
		t.Errorf("%d dropped", n)
	}
	before := len(got)
	clock.add(40 * time.Hour)
	p.topic("x/1", "young")
	b.backlogs.sweep()
	shut(t, b)
	b = open(t, dir, limit)
	clock.add(25 * time.Hour) // what was there at the first sweep is 65 hours old
	b.backlogs.sweep()
	if got := left(b, "away"); len(got) != 1 || got[0] != "young" {
		t.Errorf("%d of %d are left", len(got), before+1)
	}
}

func mustFind(t *testing.T, b *Broker, id string) *group {
	t.Helper()
	tn, _ := b.tenant("/")
	g, ok := tn.find(kernel.SessionAddress("/", id, kernel.Filter, "x/#"))
	if !ok {
		t.Fatal("no group")
	}
	return g
}
