package kernel

import (
	"fmt"
	"strings"
	"testing"
)

// TestDeathsAreBounded: what is remembered of a record's deaths is bounded, and a
// circle that is too long to be remembered is one all the same.
func TestDeathsAreBounded(t *testing.T) {
	for _, name := range []string{"q%d", strings.Repeat("n", 200) + "%d"} {
		var list []Death
		die := func(i int, reason DeathReason) {
			list = AddDeath(list, Death{Queue: fmt.Sprintf(name, i), Reason: reason, RoutingKeys: []string{"key"}})
			list = ReadDeaths(AppendDeaths(nil, list))
			if n := len(AppendDeaths(nil, list)); len(list) == 0 || len(list) > MaxDeaths || n > MaxDeathBytes {
				t.Fatalf("%d deaths in %d bytes", len(list), n)
			}
		}
		const forgotten = 0
		for i := range 100 {
			die(i, DiedExpired)
		}
		if len(list) != 100 || DeathCycle(list, "other") || !DeathCycle(list, fmt.Sprintf(name, forgotten)) {
			t.Fatalf("%d deaths, in a circle: %v", len(list), DeathCycle(list, "other"))
		}
		for i := range 2 * MaxDeaths {
			die(i, DiedExpired)
		}
		if !DeathCycle(list, fmt.Sprintf(name, forgotten)) {
			t.Error("a circle is forgotten")
		}
		die(len(list)/2, DiedExpired) // the one at the end moves
		if !list[len(list)-1].Cut || list[0].Cut {
			t.Error("the last one does not say that some are missing")
		}
		die(5000, DiedRejected)
		die(5001, DiedExpired)
		if DeathCycle(list, fmt.Sprintf(name, forgotten)) {
			t.Error("it was refused: that is no circle")
		}
	}
}
