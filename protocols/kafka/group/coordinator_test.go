package group

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func joinOne(c *Coordinator, id string, session time.Duration) <-chan Joined {
	got := make(chan Joined, 1)
	c.Join("/", Join{
		Group: "g", Member: id, ProtocolType: "consumer", Protocols: []Protocol{{Name: "range"}},
		Session: session, Rebalance: session, NewID: "new",
	}, func(j Joined) { got <- j })
	return got
}

func TestCoordinatorTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCoordinator(Limits{}, nil)
		defer c.Close()
		started := time.Now()
		j := <-joinOne(c, "", 10*time.Second)
		if j.Err != OK || time.Since(started) != 500*time.Millisecond {
			t.Fatalf("joined %+v after %v", j, time.Since(started))
		}
		key := Key{"/", "g"}
		if d, ok := c.Describe(key); !ok || d.State != Completing || len(d.Members) != 1 {
			t.Errorf("described %+v", d)
		}
		if err := c.Heartbeat(key, j.Member, "", 1); err != OK {
			t.Errorf("heartbeat: %d", err)
		}
		time.Sleep(11 * time.Second) // no sign of life
		synctest.Wait()
		if _, ok := c.Describe(key); ok {
			t.Error("a dead member's group is still there")
		}
		if err := c.Commit(key, j.Member, "", 1); err != IllegalGeneration {
			t.Errorf("commit to a forgotten group: %d", err)
		}
		if err := c.Commit(key, "", "", -1); err != OK {
			t.Errorf("commit outside of a group: %d", err)
		}
		if c.bytes != 0 || len(c.timers) != 0 {
			t.Errorf("%d bytes and %d timers left", c.bytes, len(c.timers))
		}
	})
}

func TestCoordinatorClose(t *testing.T) {
	c := NewCoordinator(Limits{InitialDelay: time.Hour}, nil)
	waiting := joinOne(c, "", 10*time.Second)
	c.Close()
	c.Close()
	if j := <-waiting; j.Err != NotAvailable {
		t.Errorf("a waiting member was told %+v", j)
	}
	if j := <-joinOne(c, "", 10*time.Second); j.Err != NotAvailable {
		t.Errorf("join after Close: %+v", j)
	}
}

func TestCoordinatorRefusals(t *testing.T) {
	c := NewCoordinator(Limits{Groups: 1}, nil)
	defer c.Close()
	if j := <-joinOne(c, "", time.Second); j.Err != InvalidSession {
		t.Errorf("session of 1 s: %+v", j)
	}
	if j := <-joinOne(c, "stranger", 10*time.Second); j.Err != UnknownMember {
		t.Errorf("unknown member: %+v", j)
	}
	if len(c.groups) != 0 {
		t.Error("a refused join left a group behind")
	}
	if err := c.Heartbeat(Key{"/", ""}, "m", "", 1); err != InvalidGroupID {
		t.Errorf("empty group id: %d", err)
	}
	if err := c.Heartbeat(Key{"/", "none"}, "m", "", 1); err != UnknownMember {
		t.Errorf("heartbeat to no group: %d", err)
	}
	<-joinOne(c, "", 10*time.Second)
	c.Join("other tenant", Join{
		Group: "g", ProtocolType: "c", Protocols: []Protocol{{Name: "p"}}, Session: 10 * time.Second, NewID: "x",
	}, func(j Joined) {
		if j.Err != NotAvailable {
			t.Errorf("one group too many: %+v", j)
		}
	})
}

// Whatever clients do, every request is answered exactly once or still waits
// for a timer, the books balance, and a generation has one leader among its
// members.
func TestGroupInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Members: 5}
		limits.defaults()
		g, now := newGroup(&limits), t0
		ids, made := []string{""}, 0
		asked, answered := 0, 0
		var held []kept // what is on its way to be kept
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			id := rapid.SampledFrom(ids).Draw(t, "member")
			instance := rapid.SampledFrom([]string{"", "", "i1", "i2"}).Draw(t, "instance")
			generation := g.generation - int32(rapid.IntRange(0, 1).Draw(t, "old"))
			switch rapid.SampledFrom([]string{"join", "join", "sync", "beat", "leave", "commit", "time"}).Draw(t, "op") {
			case "join":
				made++
				asked++
				q := &Join{
					Member: id, Instance: instance, ProtocolType: "c", NewID: fmt.Sprint("m", made), Session: 10 * time.Second,
					Rebalance: time.Duration(rapid.IntRange(0, 30).Draw(t, "rebalance")) * time.Second,
					Protocols: []Protocol{{Name: "p", Metadata: rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "metadata")}},
					MustKnow:  rapid.Bool().Draw(t, "v4"), CanSkip: rapid.Bool().Draw(t, "v9"),
				}
				done := false
				g.join(q, now, func(j Joined) {
					if done {
						t.Fatal("join answered twice")
					}
					done = true
					answered++
					if j.Member != "" {
						ids = append(ids, j.Member)
					}
				})
			case "sync":
				asked++
				done := false
				assignments := map[string][]byte{}
				for _, m := range ids {
					assignments[m] = []byte(m)
				}
				g.sync(&Sync{Member: id, Instance: instance, Generation: generation, Assignments: assignments}, now, func(Synced) {
					if done {
						t.Fatal("sync answered twice")
					}
					done = true
					answered++
				})
			case "beat":
				g.heartbeat(id, instance, generation, now)
			case "leave":
				g.leave(id, instance, now)
			case "commit":
				g.commit(id, instance, generation, now)
			case "time":
				now = now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "seconds")) * time.Second)
			}
			for ticks := 0; !g.next().After(now); ticks++ {
				if ticks > 100 {
					t.Fatalf("timers do not come to rest in state %v", g.state)
				}
				g.tick(now)
			}
			held, g.keep = append(held, g.keep...), nil
			for len(held) > 0 && rapid.Bool().Draw(t, "kept") {
				held[0](OK, now)
				held = held[1:]
			}
			forgotten := rapid.IntRange(0, 30).Draw(t, "forgotten") == 0
			if forgotten {
				g.close(NotAvailable)
				for _, k := range held {
					k(NotAvailable, now)
				}
				held = nil
			}
			out := g.out
			g.out = nil
			for _, reply := range out {
				reply()
			}
			if forgotten {
				g = newGroup(&limits)
			}
			checkGroup(t, g, asked-answered, len(held))
			checkMembership(t, g)
		}
		for _, k := range held {
			k(OK, now)
		}
		now = now.Add(24 * time.Hour)
		for range 100 {
			g.tick(now)
			now = now.Add(time.Hour)
		}
		for _, reply := range g.out {
			reply()
		}
		if asked != answered || !g.idle() || g.size != 0 {
			t.Fatalf("%d of %d answered, %d members, %d bytes", answered, asked, len(g.members), g.size)
		}
	})
}

func checkGroup(t *rapid.T, g *group, unanswered, held int) {
	size, waiting, leads := 0, 0, false
	for _, m := range g.members {
		size += m.size()
		if m.joining != nil {
			waiting++
		}
		if m.syncing != nil {
			waiting++
		}
		leads = leads || m.id == g.leader
	}
	switch {
	case size != g.size:
		t.Fatalf("%d bytes, the books say %d", size, g.size)
	case waiting > unanswered || waiting+held < unanswered:
		t.Fatalf("%d members wait, %d requests are unanswered", waiting, unanswered)
	case len(g.members) > 0 && !leads:
		t.Fatalf("the leader %q is no member", g.leader)
	case (len(g.members) == 0) != (g.state == Empty) && g.state != Preparing:
		t.Fatalf("%d members in state %v", len(g.members), g.state)
	case len(g.members) > g.limits.Members:
		t.Fatalf("%d members", len(g.members))
	}
}
