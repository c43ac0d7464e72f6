package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	// explainTime bounds the search for the longest order that explains something.
	explainTime = 20 * time.Second
	// around is how much of the history before the operation that nothing explains is told
	// at least.
	around = 3 * time.Second
	// told is how many operations are told at most, the last ones.
	told = 200
)

// explain says where the operations on an object begin to make no sense: the one to end
// first of those that the longest order leaves out, and what happened around it. Those
// in that order have an asterisk.
func (o *Objects) explain(model porcupine.Model, ops []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, ops, explainTime)
	ordered := map[int]bool{}
	for _, lists := range info.PartialLinearizations() {
		for _, list := range lists {
			if len(list) > len(ordered) {
				clear(ordered)
				for _, i := range list {
					ordered[i] = true
				}
			}
		}
	}
	first := -1
	for i, op := range ops {
		if !ordered[i] && (first < 0 || op.Return < ops[first].Return) {
			first = i
		}
	}
	if first < 0 {
		return "nothing is left out"
	}
	near, from := []int(nil), ops[first].Call-int64(around)
	for _, op := range ops { // what was under way then may have taken effect long before
		if op.Call <= ops[first].Return && op.Return >= ops[first].Call {
			from = min(from, op.Call)
		}
	}
	for i, op := range ops {
		if op.Call <= ops[first].Return && op.Return >= from {
			near = append(near, i)
		}
	}
	slices.SortFunc(near, func(a, b int) int { return int(ops[a].Call - ops[b].Call) })
	lines := []string{"no order has room for " + o.tell(ops[first])}
	for _, i := range near[max(0, len(near)-told):] {
		mark := "  "
		if ordered[i] {
			mark = "* "
		}
		lines = append(lines, mark+o.tell(ops[i]))
	}
	return strings.Join(lines, "\n")
}

// tell writes an operation with the times of day of its begin and its end.
func (o *Objects) tell(op porcupine.Operation) string {
	a := op.Input.(action)
	at := func(t int64) string { return clock(o.begin.Add(time.Duration(t))) }
	return fmt.Sprintf("%s to %s: %s %s %d: %s", at(op.Call), at(op.Return), a.who, a.verb, a.token, op.Output)
}
