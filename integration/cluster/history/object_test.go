package history

import (
	"testing"
	"time"
)

type event struct {
	who       string
	verb      Verb
	answer    Answer
	call, end float64 // seconds
}

// TestObjects: histories that one order explains, and others.
func TestObjects(t *testing.T) {
	for name, c := range map[string]struct {
		events []event
		wrong  bool
	}{
		"one after the other": {events: []event{
			{"a", Acquire, Done, 1, 2}, {"a", Prove, Done, 3, 4}, {"b", Acquire, Denied, 3, 4},
			{"a", Release, Done, 5, 6}, {"b", Acquire, Done, 7, 8},
		}},
		"two hold": {events: []event{{"a", Acquire, Done, 1, 2}, {"b", Acquire, Done, 3, 4}}, wrong: true},
		"the connection of the first has gone": {events: []event{
			{"a", Acquire, Done, 1, 2}, {"b", Acquire, Done, 3, 4}, {"a", Drop, NoAnswer, 2, 5},
		}},
		"an answer to a holder of before": {events: []event{
			{"a", Acquire, Done, 1, 2}, {"a", Drop, NoAnswer, 2, 9}, {"b", Acquire, Done, 3, 4}, {"a", Prove, Done, 5, 6},
		}, wrong: true},
		"an answer that was asked for before": {events: []event{
			{"a", Acquire, Done, 1, 2}, {"a", Drop, NoAnswer, 2, 9}, {"b", Acquire, Done, 3, 4}, {"a", Prove, Done, 2, 6},
		}},
		"denied though free": {events: []event{{"a", Acquire, Denied, 1, 2}}, wrong: true},
		"perhaps acquired": {events: []event{
			{"a", Acquire, NoAnswer, 1, 2}, {"b", Acquire, Denied, 3, 4}, {"a", Drop, NoAnswer, 1, 5}, {"b", Acquire, Done, 6, 7},
		}},
		"perhaps not acquired": {events: []event{
			{"a", Acquire, NoAnswer, 1, 2}, {"b", Acquire, Done, 3, 4}, {"a", Drop, NoAnswer, 1, 5},
		}},
		"declared and seen": {events: []event{
			{"a", Look, Denied, 0, 1}, {"a", Declare, Done, 1, 2}, {"b", Look, Done, 3, 4}, {"b", Delete, Done, 5, 6}, {"a", Look, Denied, 7, 8},
		}},
		"declared and not seen": {events: []event{{"a", Declare, Done, 1, 2}, {"b", Look, Denied, 3, 4}}, wrong: true},
		"deleted and seen": {events: []event{
			{"a", Declare, Done, 1, 2}, {"a", Delete, Done, 3, 4}, {"b", Look, Done, 5, 6},
		}, wrong: true},
		"perhaps deleted": {events: []event{
			{"a", Declare, Done, 1, 2}, {"a", Delete, NoAnswer, 3, 4}, {"b", Look, Done, 5, 6}, {"b", Look, Denied, 7, 8},
		}},
		"perhaps deleted, and back": {events: []event{
			{"a", Declare, Done, 1, 2}, {"a", Delete, NoAnswer, 3, 4}, {"b", Look, Denied, 5, 6}, {"b", Look, Done, 7, 8},
		}, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewObjects()
			for _, e := range c.events {
				o.add(action{"x", e.who, e.verb}, e.answer, time.Duration(e.call*1e9), time.Duration(e.end*1e9))
			}
			if wrong, undecided := o.Check(time.Minute); undecided || (len(wrong) > 0) != c.wrong {
				t.Errorf("wrong %v, undecided %v", wrong, undecided)
			}
		})
	}
}
