package group

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shelf is a Store in memory.
type shelf struct {
	mu     sync.Mutex
	values map[Key][]byte
	tenure uint64        // the present one
	fails  Error         // of all
	slow   time.Duration // that all takes
	calls  int
	lost   []Key
}

func newShelf() *shelf { return &shelf{values: map[Key][]byte{}} }

func (s *shelf) Load(ctx context.Context, tenure uint64, key Key) ([]byte, Error) {
	err := s.call(ctx, tenure)
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.values[key]), err
}

func (s *shelf) call(ctx context.Context, tenure uint64) Error {
	s.mu.Lock()
	s.calls++
	slow := s.slow
	s.mu.Unlock()
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return NotAvailable
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails != OK {
		return s.fails
	}
	if tenure != s.tenure {
		return NotCoordinator
	}
	return OK
}

func (s *shelf) Keep(ctx context.Context, tenure uint64, key Key, value []byte) Error {
	err := s.call(ctx, tenure)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != OK:
	case value == nil:
		delete(s.values, key)
	default:
		s.values[key] = value
	}
	return err
}

// set changes something.
func (s *shelf) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

func (s *shelf) Unreadable(key Key, _ error) { s.lost = append(s.lost, key) }

var groupG = Key{"/", "g"}

// oneMember makes a stable group of one.
func oneMember(t *testing.T, c *Coordinator, session time.Duration) Joined {
	t.Helper()
	if err := c.Load(t.Context(), groupG); err != OK {
		t.Fatal(err)
	}
	j := <-joinOne(c, "", session)
	if j.Err != OK {
		t.Fatalf("%+v", j)
	}
	if s := <-syncOne(c, j); s.Err != OK || string(s.Assignment) != "work" {
		t.Fatalf("%+v", s)
	}
	return j
}

func syncOne(c *Coordinator, j Joined) <-chan Synced {
	got := make(chan Synced, 1)
	c.Sync("/", Sync{Group: "g", Member: j.Member, Generation: j.Generation, Assignments: map[string][]byte{j.Member: []byte("work")}},
		func(s Synced) { got <- s })
	return got
}

// TestGroupsOutliveTheirCoordinator: the next one loads a group once it is asked, which all
// wait for; before, it knows nothing of it; and a group whose last member leaves is
// not there for the one after it.
func TestGroupsOutliveTheirCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first := NewCoordinator(Limits{}, s)
		j := oneMember(t, first, 10*time.Second)
		first.Close()
		next := NewCoordinator(Limits{}, s)
		defer next.Close()
		s.set(func() { s.tenure = 2 })
		next.Begin(2)
		if err := next.Heartbeat(groupG, j.Member, "", j.Generation); err != NotAvailable {
			t.Errorf("heartbeat before the group is loaded: %d", err)
		}
		if err := next.Commit(groupG, "", "", -1); err != NotAvailable {
			t.Errorf("commit before the group is loaded: %d", err)
		}
		if j := <-joinOne(next, "", 10*time.Second); j.Err != NotAvailable {
			t.Errorf("join before the group is loaded: %+v", j)
		}
		s.set(func() { s.slow, s.calls = time.Second, 0 })
		done := make(chan Error, 10)
		for range cap(done) {
			go func() { done <- next.Load(t.Context(), groupG) }()
		}
		for range cap(done) {
			if err := <-done; err != OK {
				t.Errorf("load: %d", err)
			}
		}
		if s.calls != 1 {
			t.Errorf("loaded %d times", s.calls)
		}
		if err := next.Heartbeat(groupG, j.Member, "", j.Generation); err != OK {
			t.Errorf("heartbeat: %d", err)
		}
		if err := next.Commit(groupG, "", "", -1); err != UnknownMember {
			t.Errorf("commit of who is no member: %d", err)
		}
		if d, ok := next.Describe(groupG); !ok || d.State != Stable || d.Protocol != "range" || len(d.Members) != 1 || string(d.Members[0].Assignment) != "work" {
			t.Errorf("%+v", d)
		}
		if err := next.Leave(groupG, j.Member, ""); err != OK {
			t.Errorf("leave: %d", err)
		}
		if _, ok := next.Describe(groupG); ok || len(next.List("/")) != 0 {
			t.Error("a group without members is listed")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(s.values) != 0 || len(next.groups) != 0 || next.bytes != 0 || len(next.timers) != 0 {
			t.Errorf("%d memberships are kept, %d groups", len(s.values), len(next.groups))
		}
		s.set(func() { s.calls = 0 })
		if err := next.Load(t.Context(), groupG); err != OK || s.calls != 0 {
			t.Errorf("a group that is known to be empty: %d, asked %d times", err, s.calls)
		}
	})
}

// TestMemberThatDiedWithTheCoordinator is removed when its session is over, counted from when
// the group was loaded.
func TestMemberThatDiedWithTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first := NewCoordinator(Limits{}, s)
		oneMember(t, first, 10*time.Second)
		first.Close()
		time.Sleep(time.Hour)
		synctest.Wait()
		next := NewCoordinator(Limits{}, s)
		defer next.Close()
		if err := next.Load(t.Context(), groupG); err != OK {
			t.Fatal(err)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if _, ok := next.Describe(groupG); !ok {
			t.Error("it is removed too early")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, ok := next.Describe(groupG); ok || len(s.values) != 0 {
			t.Error("it is still there")
		}
	})
}

// TestNobodyIsToldWhatIsNotKept: when it is not known whether a generation is kept, its
// members are sent away and the group is loaded as it is.
func TestNobodyIsToldWhatIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		c := NewCoordinator(Limits{}, s)
		defer c.Close()
		j := oneMember(t, c, 10*time.Second)
		kept := bytes.Clone(s.values[groupG])
		again := <-joinOne(c, j.Member, 10*time.Second) // the leader
		if again.Err != OK || again.Generation != 2 {
			t.Fatalf("%+v", again)
		}
		synctest.Wait()
		s.set(func() { s.fails = NotAvailable })
		if got := <-syncOne(c, again); got.Err != NotAvailable {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if !bytes.Equal(s.values[groupG], kept) || len(c.groups) != 0 || c.bytes != 0 {
			t.Errorf("%d groups, %d bytes", len(c.groups), c.bytes)
		}
		if err := c.Load(t.Context(), groupG); err != NotAvailable {
			t.Errorf("load: %d", err)
		}
		synctest.Wait()
		s.set(func() { s.fails = OK })
		if err := c.Load(t.Context(), groupG); err != OK {
			t.Errorf("load: %d", err)
		}
		if err := c.Heartbeat(groupG, j.Member, "", 2); err != IllegalGeneration {
			t.Errorf("heartbeat: %d", err)
		}
		if again = <-joinOne(c, j.Member, 10*time.Second); again.Generation != 2+leap {
			t.Errorf("%+v", again)
		}
		s.set(func() { s.tenure = 7 }) // another node has it meanwhile
		if got := <-syncOne(c, again); got.Err != NotCoordinator {
			t.Errorf("%+v", got)
		}
	})
}

// TestANewTenureLoads: who waits is sent away, what was on its way is nobody's, and
// the groups are loaded anew.
func TestANewTenureLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		c := NewCoordinator(Limits{}, s)
		defer c.Close()
		j := oneMember(t, c, 10*time.Second)
		again := <-joinOne(c, j.Member, 10*time.Second)
		s.set(func() { s.slow = time.Second })
		waits := syncOne(c, again)
		loading := make(chan Error, 1)
		other := Key{"/", "other"}
		go func() { loading <- c.Load(t.Context(), other) }()
		synctest.Wait()
		c.Begin(1)
		synctest.Wait()
		if got := <-waits; got.Err != NotCoordinator {
			t.Errorf("%+v", got)
		}
		if err := <-loading; err != NotCoordinator {
			t.Errorf("load: %d", err)
		}
		s.set(func() { s.tenure = 1 })
		if err := c.Load(t.Context(), groupG); err != OK {
			t.Errorf("load: %d", err)
		}
		synctest.Wait()
		if !c.Empty() {
			c.Keep(func(Key) bool { return false })
		}
		if !c.Empty() || c.bytes != 0 {
			t.Error("groups of another node are there")
		}
	})
}

// TestRemovedAgain: a membership that could not be removed is removed later; a member that
// comes meanwhile finds the group.
func TestRemovedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		c := NewCoordinator(Limits{}, s)
		defer c.Close()
		j := oneMember(t, c, 10*time.Second)
		synctest.Wait()
		s.set(func() { s.fails = NotAvailable })
		if err := c.Leave(groupG, j.Member, ""); err != OK {
			t.Fatal(err)
		}
		time.Sleep(5500 * time.Millisecond)
		synctest.Wait()
		if len(s.values) != 1 || len(c.groups) != 1 || s.calls > 10 {
			t.Errorf("%d memberships, %d groups, tried %d times", len(s.values), len(c.groups), s.calls)
		}
		if err := c.Commit(groupG, "", "", -1); err != OK {
			t.Errorf("commit to a group without members: %d", err)
		}
		s.set(func() { s.fails = OK })
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if len(s.values) != 0 || len(c.groups) != 0 {
			t.Errorf("%d memberships, %d groups", len(s.values), len(c.groups))
		}
		j = oneMember(t, c, 10*time.Second)
		s.set(func() { s.slow = 10 * time.Millisecond })
		if err := c.Leave(groupG, j.Member, ""); err != OK {
			t.Fatal(err)
		}
		joined := joinOne(c, "", 10*time.Second) // while that is removed
		time.Sleep(time.Second)
		synctest.Wait()
		if got := <-syncOne(c, <-joined); got.Err != OK || len(s.values) != 1 {
			t.Errorf("%+v, %d memberships", got, len(s.values))
		}
	})
}

// TestUnreadableMembership: what nobody can read is nobody's, and goes.
func TestUnreadableMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		s.values[groupG] = []byte{99}
		c := NewCoordinator(Limits{}, s)
		defer c.Close()
		if err := c.Load(t.Context(), groupG); err != OK {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(s.values) != 0 || !slices.Equal(s.lost, []Key{groupG}) {
			t.Errorf("%v, %v", s.values, s.lost)
		}
		oneMember(t, c, 10*time.Second)
	})
}

// TestLoadsAreBounded: groups beyond what a node may hold are not loaded; who cannot wait
// does not.
func TestLoadsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf()
		first := NewCoordinator(Limits{}, s)
		oneMember(t, first, 10*time.Second)
		first.Close()
		for _, limits := range []Limits{{Groups: 1}, {TotalBytes: 100}} {
			c := NewCoordinator(limits, s)
			other := Key{"/", "other"}
			if err := c.Load(t.Context(), other); err != OK {
				t.Error(err)
			}
			if limits.Groups == 1 {
				c.mu.Lock()
				c.add(other)
				c.mu.Unlock()
			}
			if err := c.Load(t.Context(), groupG); err != NotAvailable || c.bytes != 0 {
				t.Errorf("%+v: %d, %d bytes", limits, err, c.bytes)
			}
			for i := range 10 * limits.Groups {
				if err := c.Load(t.Context(), Key{"/", string(rune('A' + i))}); err != OK {
					t.Error(err)
				}
			}
			if limits.Groups > 0 && len(c.absent) > 2 { // nobody else is there now
				t.Errorf("%d groups are known not to be there", len(c.absent))
			}
			c.Close()
		}
		c := NewCoordinator(Limits{}, s)
		s.set(func() { s.slow = time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Load(ctx, groupG); err != NotAvailable {
			t.Error(err)
		}
		c.Close()
		if err := c.Load(t.Context(), groupG); err != OK {
			t.Error(err)
		}
	})
}
