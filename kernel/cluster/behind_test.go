package cluster

import "testing"

// TestWhoIsBehind: a member that answers and votes, but lacks much of the log, is not
// taken for one that can stand in for another.
func TestWhoIsBehind(t *testing.T) {
	w := newWitness(nil)
	w.Acknowledged(1, "b", 4, 9000, true)
	p := w.of[witnessKey{1, "b"}]
	for _, c := range []struct {
		term, last uint64
		near       bool
	}{
		{4, 9000, true},
		{4, 9000 + nearEnough, true},
		{4, 9001 + nearEnough, false},
		{5, 9000, false}, // of this term it has taken nothing yet
	} {
		if got := p.near(c.term, c.last); got != c.near {
			t.Errorf("term %d, log up to %d: near %v", c.term, c.last, got)
		}
	}
	w.Acknowledged(1, "b", 5, 9000, true)
	if p = w.of[witnessKey{1, "b"}]; !p.near(5, 9100) {
		t.Error("it has taken the log of the new term")
	}
}
