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
