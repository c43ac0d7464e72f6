package history

import (
	"slices"
	"testing"
	"time"
)

// story is a history that a test writes by hand; times are seconds.
type story struct{ *Topic }

func at(s float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

func (s story) sent(payload string, epoch, seq int, begin, end float64, o Outcome) {
	m := s.message(payload)
	m.attempts = append(m.attempts, &Attempt{"p", epoch, seq, at(begin), at(end), o})
}

// held takes 0 for "never".
func (s story) held(payload, member string, marked bool, begin, settled, over float64) {
	h := &Holding{Group: "g", Member: member, Marked: marked, Begin: at(begin)}
	if settled > 0 {
		h.Settled = at(settled)
	}
	if over > 0 {
		h.Over = at(over)
	}
	m := s.message(payload)
	m.held = append(m.held, h)
}

// TestCheck: each kind of violation is found where it is, and only there.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		rules Rules
		tell  func(story)
		want  []string
	}{
		"all is well": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.sent("b", 0, 1, 1, 9, Unknown)
			s.sent("c", 1, 0, 10, 11, OK)
			s.sent("gone", 1, 1, 10, 11, Refused)
			s.held("a", "x", false, 3, 0, 4)
			s.held("a", "y", true, 5, 6, 0)
			s.Replayed([]string{"a", "b", "c"})
		}},
		"an unknown one may be missing, and may be there twice after a second attempt": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, Unknown)
			s.sent("b", 0, 1, 1, 2, Unknown)
			s.sent("b", 1, 0, 3, 4, OK)
			s.Replayed([]string{"b", "b"})
		}},
		"lost": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.Replayed(nil)
		}, want: []string{"lost"}},
		"delivered, then lost": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, Unknown)
			s.held("a", "x", false, 3, 4, 0)
			s.Replayed(nil)
		}, want: []string{"lost"}},
		"invented in the log": {tell: func(s story) { s.Replayed([]string{"a"}) }, want: []string{"invented"}},
		"invented in a delivery": {tell: func(s story) {
			s.held("a", "x", false, 3, 4, 0)
			s.Replayed(nil)
		}, want: []string{"invented"}},
		"duplicate": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.Replayed([]string{"a", "a"})
		}, want: []string{"duplicate"}},
		"stored though refused": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, Refused)
			s.Replayed([]string{"a"})
		}, want: []string{"duplicate"}},
		"duplicate of an idempotent producer": {rules: Rules{Once: true}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, Unknown)
			s.sent("a", 1, 0, 3, 4, OK)
			s.Replayed([]string{"a", "a"})
		}, want: []string{"duplicate"}},
		"order in real time": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.sent("b", 1, 0, 3, 4, OK)
			s.Replayed([]string{"b", "a"})
		}, want: []string{"order"}},
		"order on a connection": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 9, OK)
			s.sent("b", 0, 1, 1, 9, OK)
			s.Replayed([]string{"b", "a"})
		}, want: []string{"order"}},
		"no order between connections": {tell: func(s story) {
			s.sent("a", 0, 0, 1, 9, Unknown)
			s.sent("b", 1, 0, 2, 9, OK)
			s.Replayed([]string{"b", "a"})
		}},
		"settled, and back": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", false, 3, 4, 20)
			s.held("a", "y", true, 10, 11, 0)
			s.Replayed([]string{"a"})
		}, want: []string{"again"}},
		"settled as the connection went": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", false, 3, 4, 4.5)
			s.held("a", "y", true, 10, 11, 0)
			s.Replayed([]string{"a"})
		}},
		"two have it": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", false, 3, 0, 20)
			s.held("a", "y", true, 10, 11, 0)
			s.Replayed([]string{"a"})
		}, want: []string{"twice"}},
		"unmarked": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", false, 3, 0, 4)
			s.held("a", "y", false, 10, 11, 0)
			s.Replayed([]string{"a"})
		}, want: []string{"unmarked"}},
		"the second overtakes the first": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", true, 3, 0, 4)
			s.held("a", "y", false, 3.5, 0, 4)
			s.Replayed([]string{"a"})
		}},
		"the first comes much later": {rules: Rules{Grace: time.Second}, tell: func(s story) {
			s.sent("a", 0, 0, 1, 2, OK)
			s.held("a", "x", true, 3, 0, 4)
			s.held("a", "y", false, 10, 11, 0)
			s.Replayed([]string{"a"})
		}, want: []string{"unmarked"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := story{NewTopic("t")}
			c.tell(s)
			var kinds []string
			for _, v := range s.Check(c.rules) {
				kinds = append(kinds, v.Kind)
			}
			if !slices.Equal(kinds, c.want) {
				t.Errorf("found %v, want %v", s.Check(c.rules), c.want)
			}
		})
	}
}

// TestRecorder: what clients tell arrives in the history.
func TestRecorder(t *testing.T) {
	topic := NewTopic("t")
	done := topic.Publish("a", "p", 0, 0)
	done(OK)
	done(Unknown) // too late to matter
	topic.Publish("b", "p", 0, 1)(Refused)
	topic.Publish("c", "p", 0, 2)(Unknown)
	topic.Publish("d", "p", 0, 3) // still on its way
	if left := topic.Undelivered("g"); !slices.Equal(left, []string{"a"}) {
		t.Errorf("undelivered: %v", left)
	}
	d := topic.Deliver("a", "g", "x", false)
	d.Settle()
	d.End()
	if left := topic.Undelivered("g"); len(left) > 0 {
		t.Errorf("undelivered: %v", left)
	}
	topic.Replayed([]string{"a"})
	if got, want := topic.Counts(), (Counts{Messages: 4, Confirmed: 1, Unknown: 1, Refused: 1, Deliveries: 1, Settled: 1, Logged: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
