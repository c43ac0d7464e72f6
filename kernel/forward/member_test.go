package forward

import (
	"fmt"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// filled returns a client with a queue q of n messages of a size.
func filled(t *testing.T, b *broker.Broker, n, size int) *client {
	t.Helper()
	c := serve(t, b).connect(t)
	c.declare("q")
	p := publishing(t, c)
	for i := range n {
		p.to("", "q", fmt.Sprintf("%-*d", size, i))
	}
	p.settle()
	return c
}

// TestPrefetchIsExact: nothing is handed out without credit, and what comes is settled by
// ranges.
func TestPrefetchIsExact(t *testing.T) {
	c := filled(t, open(t), 100, 1)
	in := newInbox()
	m := c.join("q", kernel.MemberOptions{Tag: "tag"}, nil, in)
	if m.Type() != kernel.Classic {
		t.Error(m.Type())
	}
	m.Credit(10)
	in.wait(t, 10)
	if info, _ := c.Queue("q"); info.Held != 10 || info.Ready != 90 || info.Members != 1 {
		t.Errorf("%+v", info)
	}
	m.Settle(kernel.Accept, 0, 0, 4)
	m.Settle(kernel.Release, 0, 5, 6)
	m.Settle(kernel.Refuse, 0, 7, 7)
	m.Credit(3)
	got := in.wait(t, 13)
	if got[10].Offset != 5 || !got[10].Redelivered || got[10].Acquired != 2 || got[12].Offset != 10 {
		t.Errorf("%+v", got[10:])
	}
	m.Credit(5)
	m.Credit(-5) // some of them may have been used
	m.Stop()
	in.mu.Lock()
	n := len(in.got)
	in.mu.Unlock()
	m.Leave()
	m.Leave()
	if info, _ := c.Queue("q"); info.Held != 0 || info.Ready != 94 || info.Members != 0 {
		t.Errorf("%+v", info)
	}
	if got := in.wait(t, n); len(got) != n {
		t.Error("something came after Stop")
	}
}

// moody takes back all its credit whenever it gets something.
type moody struct {
	*inbox
	t    *testing.T
	m    interface{ Credit(int) }
	have int
}

func (k *moody) Deliver(batch []kernel.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.take(batch)
	if k.have -= len(batch); k.have < 0 {
		k.t.Errorf("%d more than there was credit for", -k.have)
	}
	k.m.Credit(-k.have)
	k.have = 0
}

// TestTakenBackCredit: a consumer that takes back credit as it is called gets nothing
// beyond what it has left, whatever was under way.
func TestTakenBackCredit(t *testing.T) {
	c := filled(t, open(t), 200, 100)
	k := &moody{inbox: newInbox(), t: t}
	m := c.join("q", kernel.MemberOptions{}, nil, k)
	k.m = m
	for n := 0; n < 200; {
		k.mu.Lock()
		k.have += 20
		m.Credit(20)
		k.mu.Unlock()
		k.until(t, func() bool { return len(k.got) > n })
		k.mu.Lock()
		n = len(k.got)
		k.mu.Unlock()
	}
	for i, d := range k.wait(t, 200) {
		if d.Offset != int64(i) {
			t.Fatalf("%d: offset %d", i, d.Offset)
		}
	}
	m.Leave()
}

// picky admits nothing large until it is told to.
type picky struct {
	*inbox
	m      interface{ Credit(int) }
	room   bool
	credit int
	asked  int
}

func (k *picky) Admit(records, _ int) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.note()
	k.asked++
	if k.room {
		return true
	}
	k.m.Credit(-k.credit)
	k.credit = 0
	return false
}

func (k *picky) Deliver(batch []kernel.Delivery) {
	k.mu.Lock()
	k.credit -= len(batch)
	k.mu.Unlock()
	k.inbox.Deliver(batch)
}

// TestAdmit: what a consumer does not admit comes when it has room, in order, and one by
// one if it gives credit so; others are served meanwhile.
func TestAdmit(t *testing.T) {
	c := filled(t, open(t), 30, 100<<10)
	k := &picky{inbox: newInbox(), credit: 30}
	m := c.join("q", kernel.MemberOptions{}, nil, k)
	k.m = m
	m.Credit(30)
	k.until(t, func() bool { return k.asked > 0 })
	c.declare("other")
	p := publishing(t, c)
	p.to("", "other", "v")
	in := newInbox()
	c.join("other", kernel.MemberOptions{}, nil, in).Credit(1)
	in.wait(t, 1)
	k.mu.Lock()
	if len(k.got) > 0 {
		t.Errorf("%d came", len(k.got))
	}
	k.room = true
	k.mu.Unlock()
	for i := range 30 {
		k.mu.Lock()
		k.credit++
		k.mu.Unlock()
		m.Credit(1)
		d := k.wait(t, i+1)[i]
		if d.Offset != int64(i) || d.Failed > 0 {
			t.Errorf("%d: %+v", i, d)
		}
		m.Settle(kernel.Accept, 0, d.Offset, d.Offset)
	}
	m.Leave()
}

// TestUnwanted: what waits for a consumer that stops goes back.
func TestUnwanted(t *testing.T) {
	c := filled(t, open(t), 5, 100<<10)
	k := &picky{inbox: newInbox(), credit: 5}
	m := c.join("q", kernel.MemberOptions{}, nil, k)
	k.m = m
	m.Credit(5)
	k.until(t, func() bool { return k.asked > 0 })
	m.Stop()
	eventually(t, "all are back", func() bool { info, err := c.Queue("q"); return err == nil && info.Ready == 5 })
	m.Leave()
}

// TestPools: members share a pool's units, those that were there before it, too.
func TestPools(t *testing.T) {
	c := filled(t, open(t), 100, 1)
	before := newInbox()
	first := c.join("q", kernel.MemberOptions{}, nil, before)
	first.Credit(3)
	got := before.wait(t, 3)
	first.Settle(kernel.Accept, 0, got[0].Offset, got[0].Offset) // before the pool: it is no unit of it
	pool := c.NewPool(10)
	first.Pool(pool, func() int { return 2 })
	in := newInbox()
	second := c.join("q", kernel.MemberOptions{}, pool, in)
	second.Credit(50)
	first.Credit(1)
	total := func() int {
		in.mu.Lock()
		defer in.mu.Unlock()
		before.mu.Lock()
		defer before.mu.Unlock()
		return len(in.got) + len(before.got) - 1
	}
	eventually(t, "the pool is used up", func() bool { return total() == 10 })
	first.Settle(kernel.Accept, 0, got[1].Offset, got[2].Offset)
	pool.Put(2)
	eventually(t, "two more", func() bool { return total() == 12 })
	pool.SetLimit(15)
	eventually(t, "five more", func() bool { return total() == 17 })
	pool.Add(5)
	pool.Put(6)
	eventually(t, "one more", func() bool { return total() == 18 })
	if _, err := c.Join(soon(t), kernel.QueueAddress("/", "q"), kernel.MemberOptions{}, &pool2{}, in); kernel.CodeOf(err) != kernel.CodeInternal {
		t.Error(err)
	}
	second.Leave()
	first.Leave()
}

type pool2 struct{ pool }

// TestAcquire: records are taken at once, large ones if the front-end admits them.
func TestAcquire(t *testing.T) {
	c := filled(t, open(t), 1, 100<<10)
	p := publishing(t, c)
	p.to("", "q", "small")
	p.settle()
	k := &picky{inbox: newInbox()}
	m := c.join("q", kernel.MemberOptions{Pull: true}, nil, k)
	k.m = m
	called := 0
	take := func(batch []kernel.Delivery, ready int64) {
		called++
		k.inbox.Deliver(batch)
		if ready != int64(2-called) {
			t.Errorf("%d are ready after %d", ready, called)
		}
	}
	if err := m.Acquire(1, take); err != nil || called != 0 {
		t.Fatal(err, called)
	}
	if info, _ := c.Queue("q"); info.Ready != 2 || info.Members != 0 {
		t.Errorf("%+v", info)
	}
	k.room = true
	for range 2 {
		if err := m.Acquire(1, take); err != nil {
			t.Fatal(err)
		}
	}
	got := k.wait(t, 2)
	if len(got[0].Record.Value) != 100<<10 || got[0].Failed > 0 || string(got[1].Record.Value) != "small" || called != 2 {
		t.Errorf("%+v", got)
	}
	empty := false
	if err := m.Acquire(1, func(batch []kernel.Delivery, ready int64) { empty = len(batch) == 0 && ready == 0 }); err != nil || !empty {
		t.Error(err, empty)
	}
	m.Settle(kernel.Accept, 0, 0, 1)
	if _, err := c.DeleteQueue(soon(t), "q", false, false); err != nil {
		t.Fatal(err)
	}
	k.until(t, func() bool { return k.ended != nil })
	wantCode(t, k.ended, kernel.CodeDropped)
	wantCode(t, m.Acquire(1, take), kernel.CodeDropped)
	m.Leave()
}
