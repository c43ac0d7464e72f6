package history

import (
	"strings"
	"testing"
	"time"
)

type event struct {
	who       string
	verb      Verb
	answer    Answer
	call, end float64 // seconds
	token     int64
}

// TestObjects: histories that one order explains, and others, which are found.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		events []event
		wrong  bool
	}{
		"one after the other": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Prove, Done, 3, 4, 0}, {"b", Acquire, Denied, 3, 4, 0},
			{"a", Release, Done, 5, 6, 0}, {"b", Acquire, Done, 7, 8, 0},
		}},
		"two hold": {events: []event{{"a", Acquire, Done, 1, 2, 0}, {"b", Acquire, Done, 3, 4, 0}}, wrong: true},
		"the connection of the first has gone": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"b", Acquire, Done, 3, 4, 0}, {"a", Drop, NoAnswer, 2, 5, 0},
		}},
		"an answer to a holder of before": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Drop, NoAnswer, 2, 9, 0}, {"b", Acquire, Done, 3, 4, 0}, {"a", Prove, Done, 5, 6, 0},
		}, wrong: true},
		"an answer that was asked for before": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Drop, NoAnswer, 2, 9, 0}, {"b", Acquire, Done, 3, 4, 0}, {"a", Prove, Done, 2, 6, 0},
		}},
		"denied though free": {events: []event{{"a", Acquire, Denied, 1, 2, 0}}, wrong: true},
		"perhaps acquired": {events: []event{
			{"a", Acquire, NoAnswer, 1, 2, 0}, {"b", Acquire, Denied, 3, 4, 0}, {"a", Drop, NoAnswer, 1, 5, 0}, {"b", Acquire, Done, 6, 7, 0},
		}},
		"perhaps not acquired": {events: []event{
			{"a", Acquire, NoAnswer, 1, 2, 0}, {"b", Acquire, Done, 3, 4, 0}, {"a", Drop, NoAnswer, 1, 5, 0},
		}},
		"declared and seen": {events: []event{
			{"a", Look, Denied, 0, 1, 0}, {"a", Declare, Done, 1, 2, 0}, {"b", Look, Done, 3, 4, 0}, {"b", Delete, Done, 5, 6, 0}, {"a", Look, Denied, 7, 8, 0},
		}},
		"declared and not seen": {events: []event{{"a", Declare, Done, 1, 2, 0}, {"b", Look, Denied, 3, 4, 0}}, wrong: true},
		"deleted and seen": {events: []event{
			{"a", Declare, Done, 1, 2, 0}, {"a", Delete, Done, 3, 4, 0}, {"b", Look, Done, 5, 6, 0},
		}, wrong: true},
		"perhaps deleted": {events: []event{
			{"a", Declare, Done, 1, 2, 0}, {"a", Delete, NoAnswer, 3, 4, 0}, {"b", Look, Done, 5, 6, 0}, {"b", Look, Denied, 7, 8, 0},
		}},
		"perhaps deleted, and back": {events: []event{
			{"a", Declare, Done, 1, 2, 0}, {"a", Delete, NoAnswer, 3, 4, 0}, {"b", Look, Denied, 5, 6, 0}, {"b", Look, Done, 7, 8, 0},
		}, wrong: true},
		"each holder with a later token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Prove, Done, 3, 4, 1}, {"a", Write, Done, 4, 5, 1}, {"a", Release, Done, 5, 6, 0},
			{"b", Acquire, Done, 7, 8, 0}, {"b", Take, Done, 8, 9, 3}, {"b", Prove, Done, 9, 10, 3}, {"a", Write, Denied, 10, 11, 1}, {"b", Write, Done, 12, 13, 3},
		}},
		"one token for two holders": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Release, Done, 4, 5, 0},
			{"b", Acquire, Done, 6, 7, 0}, {"b", Take, Done, 7, 8, 1},
		}, wrong: true},
		"one token for two holders, refused by what is protected": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Release, Done, 4, 5, 0},
			{"b", Acquire, Done, 6, 7, 0}, {"b", Take, Denied, 7, 8, 1},
		}, wrong: true},
		"a later holder with an earlier token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 2}, {"a", Drop, NoAnswer, 2, 20, 0},
			{"b", Acquire, Done, 6, 7, 0}, {"b", Take, Done, 7, 8, 1},
		}, wrong: true},
		"the holder is refused": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 2}, {"a", Drop, NoAnswer, 2, 5, 0},
			{"b", Acquire, Done, 6, 7, 0}, {"b", Take, Denied, 7, 8, 1}, {"b", Prove, Done, 9, 10, 1},
		}, wrong: true},
		"a former holder, who does not know it, is refused": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Drop, NoAnswer, 2, 30, 0}, {"b", Acquire, Done, 6, 7, 0},
			{"b", Take, Done, 7, 8, 2}, {"a", Take, Denied, 3, 9, 1},
		}},
		"a former holder proves with his token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Drop, NoAnswer, 3, 30, 0},
			{"b", Acquire, Done, 4, 5, 0}, {"b", Take, Done, 5, 6, 2}, {"a", Prove, Done, 7, 8, 1},
		}, wrong: true},
		"the holder proves while another one has taken a token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"b", Take, Done, 4, 5, 2}, {"a", Prove, Done, 6, 7, 1},
		}, wrong: true},
		"a former holder writes after a later token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Drop, NoAnswer, 3, 30, 0},
			{"b", Acquire, Done, 4, 5, 0}, {"b", Take, Done, 5, 6, 2}, {"a", Write, Done, 7, 8, 1},
		}, wrong: true},
		"a former holder writes before a later token": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Drop, NoAnswer, 3, 30, 0},
			{"b", Acquire, Done, 4, 5, 0}, {"a", Write, Done, 6, 7, 1}, {"b", Take, Done, 8, 9, 2},
		}},
		"a write that is refused for no reason": {events: []event{
			{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 1}, {"a", Drop, NoAnswer, 3, 30, 0}, {"a", Write, Denied, 7, 8, 1},
		}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewObjects()
			for _, e := range c.events {
				o.add(action{"x", e.who, e.verb, e.token}, e.answer, time.Duration(e.call*1e9), time.Duration(e.end*1e9))
			}
			if wrong, undecided := o.Check(time.Minute); undecided || (len(wrong) > 0) != c.wrong {
				t.Errorf("wrong %v, undecided %v", wrong, undecided)
			}
		})
	}
}

// TestObjectsExplained: what is wrong is told with the operation that begins it.
func TestObjectsExplained(t *testing.T) {
	o := NewObjects()
	for i, e := range []event{
		{"a", Acquire, Done, 1, 2, 0}, {"a", Take, Done, 2, 3, 7}, {"b", Acquire, Denied, 3, 4, 0},
		{"b", Acquire, Done, 5, 6, 0}, {"a", Release, Done, 7, 8, 0},
	} {
		o.add(action{"x", e.who, e.verb, e.token}, e.answer, time.Duration(e.call*1e9), time.Duration(e.end*1e9))
		if wrong, _ := o.Check(time.Minute); (len(wrong) == 1) != (i >= 3) {
			t.Errorf("step %d: %q", i, wrong)
		}
	}
	wrong, _ := o.Check(time.Minute)
	if len(wrong) != 1 || !strings.Contains(wrong[0], "no order has room for "+o.tell(o.ops[3])) || !strings.Contains(wrong[0], "\n* "+o.tell(o.ops[1])) {
		t.Errorf("%q", wrong)
	}
}
