package broker

import (
	"fmt"
	"sync"
	"testing"
)

// TestNameLocks takes overlapping sets of locks in all orders at once: no
// deadlock, no two writers, nothing left behind.
func TestNameLocks(t *testing.T) {
	var l nameLocks
	var wg sync.WaitGroup
	var held [3]int
	for w := range 6 {
		wg.Go(func() {
			for i := range 200 {
				a, b := (w+i)%3, (w+i*2+1)%3
				unlock := l.lock(claim{fmt.Sprint(a), true}, claim{fmt.Sprint(b), false}, claim{fmt.Sprint(a), false})
				held[a]++ // the race detector looks on
				unlock()
			}
		})
	}
	wg.Wait()
	if held[0]+held[1]+held[2] != 1200 || len(l.m) != 0 {
		t.Errorf("%v, %d locks left", held, len(l.m))
	}
	// Readers share.
	first := l.lock(claim{"x", false})
	second := l.lock(claim{"x", false})
	second()
	first()
}

func TestCovers(t *testing.T) {
	held := []claim{{"t", true}, {"x", false}}
	for _, tc := range []struct {
		want []claim
		ok   bool
	}{
		{nil, true},
		{[]claim{{"t", true}}, true},
		{[]claim{{"t", false}, {"x", false}}, true},
		{[]claim{{"x", true}}, false},
		{[]claim{{"y", false}}, false},
	} {
		if covers(held, tc.want) != tc.ok {
			t.Errorf("covers %v: %v", tc.want, !tc.ok)
		}
	}
}
