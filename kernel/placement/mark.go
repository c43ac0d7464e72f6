package placement

// watch notes that a share has reserved more than it has handed out. The ticks
// look after it until its marks are exact.
func (s *shard) watch(sh *share) {
	if !sh.watched {
		sh.watched = true
		s.watched = append(s.watched, sh)
	}
}

// calm makes the marks exact where hand-outs have become few.
func (s *shard) calm() {
	now := s.clock.mono()
	list := s.watched
	s.watched = s.watched[:0]
	for _, sh := range list {
		sh.watched = false
		for _, w := range sh.windows {
			if w.Calm(now); w.Ahead() {
				s.watch(sh)
				s.touch(sh)
			}
		}
	}
	clear(list[len(s.watched):])
}

// finish ends hand-outs before a planned end and makes all marks exact. What is to
// be logged for that is with the proposer after the step.
func (s *shard) finish() {
	s.finished = true
	for _, sh := range s.line {
		sh.queued = false
	}
	clear(s.line)
	s.line = s.line[:0]
	for _, t := range s.topics {
		for _, sh := range t.lane.shares {
			if sh.group != nil {
				sh.group.Exact()
				s.touch(sh)
			}
		}
	}
}
