package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// choosy admits one call only.
type choosy struct {
	*sink
	m     *Member
	asked int
}

func (c *choosy) Admit(records, bytes int) bool {
	if c.asked++; c.asked == 1 {
		return true
	}
	c.m.Credit(-1) // all that is left of 3, two came at once
	return false
}

// TestRefusedBeforeHandOut: what a consumer does not admit goes to others in its
// order, not counted as failed, and the credit taken back is not used later.
func TestRefusedBeforeHandOut(t *testing.T) {
	parts := func(t *testing.T, g *Group) {
		ps, id := queue(t, g, 1, 1, kernel.RetainDay)
		set, done := g.Targets(ps[0]), newAnswers()
		for n := range uint64(5) {
			if err := g.Append(set, large(n), done, n); err != nil {
				t.Fatal(err)
			}
		}
		done.wait(t, 5)
		a, b := &choosy{sink: newSink()}, newSink()
		a.m = join(t, g, id, kernel.MemberOptions{}, a)
		a.m.Credit(3)
		a.wait(t, 2)
		settleDown(a.m)
		if n := len(a.wait(t, 0)); n != 2 {
			t.Errorf("%d records were handed over, 2 admitted", n)
		}
		join(t, g, id, kernel.MemberOptions{}, b).Credit(10)
		for i, d := range b.wait(t, 3) {
			if d.offset != int64(2+i) || d.failed != 0 {
				t.Errorf("record %d is %+v", i, d)
			}
		}
	}
	both(t, parts)
}

// unwilling admits nothing at first.
type unwilling struct {
	*sink
	asked int
}

func (u *unwilling) Admit(records, bytes int) bool {
	u.asked++
	return u.asked > 1
}

// TestAcquireIsAdmitted: what the consumer of a pull member does not admit is not
// taken, nor counted as failed, and goes to who asks next.
func TestAcquireIsAdmitted(t *testing.T) {
	both(t, func(t *testing.T, g *Group) {
		ps, id := queue(t, g, 1, 1, kernel.RetainDay)
		done := newAnswers()
		for n := range uint64(2) {
			if err := g.Append(g.Targets(ps[0]), large(n), done, n); err != nil {
				t.Fatal(err)
			}
		}
		done.wait(t, 2)
		u := &unwilling{sink: newSink()}
		m := join(t, g, id, kernel.MemberOptions{Pull: true}, u)
		take := func() (got []kernel.Delivery) {
			t.Helper()
			must(t, m.Acquire(1, func(batch []kernel.Delivery, _ int64) { got = append(got, batch...) }))
			return got
		}
		if got := take(); got != nil {
			t.Errorf("%+v was taken", got)
		}
		if r, h, _ := g.Count(id); r != 2 || h != 0 {
			t.Errorf("%d ready, %d held", r, h)
		}
		for i := range int64(2) {
			if got := take(); len(got) != 1 || got[0].Offset != i || got[0].Failed != 0 {
				t.Errorf("%+v, want record %d", got, i)
			}
		}
	})
}
