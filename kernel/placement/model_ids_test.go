package placement

import "github.com/trivium-mq/trivium/kernel"

// namer is the publisher whose messages have ids: it publishes them again, sure or not
// of what became of them, so that their order is not that of the tokens.
const namer = 4

// publishNamed publishes a message with an id, or one of the last again: the model
// sees to it that no partition has a record twice (checkPartition), and that one which was
// confirmed is there.
func (m *model) publishNamed(parts []PartitionID) {
	var s *sent
	if n := len(m.named); n > 0 && m.h.rng.Intn(3) > 0 {
		s = m.named[max(0, n-1-m.h.rng.Intn(8))]
	}
	switch {
	case s == nil:
		s = m.newSent(namer, parts)
		m.named = append(m.named, s)
	case !s.answered:
		m.h.seen.beside++
	default:
		m.h.seen.repeats++
	}
	var id kernel.DedupID
	id[0], id[1], id[2] = byte(s.token), byte(s.token>>8), 1
	to := &namedOutcome{m: m, s: s}
	if err := m.h.g.AppendOnce(m.h.g.Targets(s.parts...), numbered(s.token), kernel.Once{ID: id}, to, 0); err != nil {
		to.Completed(0, kernel.Result{Offset: -1, Err: err})
	}
}

// namedOutcome is the outcome of one of the publishes of a message with an id: it is there
// when one of them was confirmed, and may be there when one of them was not.
type namedOutcome struct {
	m    *model
	s    *sent
	told bool
}

// Completed implements kernel.Completion.
func (o *namedOutcome) Completed(_ uint64, res kernel.Result) {
	if o.told {
		o.m.h.failf("a publish of %d is answered twice", o.s.token)
	}
	o.told = true
	o.m.h.note(int(o.s.token), int(res.Offset), int(kernel.CodeOf(res.Err)))
	switch {
	case res.Err == nil:
		o.s.answered, o.s.result = true, kernel.Result{Offset: -1}
	case !o.s.answered:
		o.s.answered = true
		o.s.result = kernel.Result{Offset: -1, Err: kernel.Errorf(kernel.CodeUnknown, "", "", "%v", res.Err)}
	}
}

// Flush implements kernel.Completion.
func (o *namedOutcome) Flush() {}
