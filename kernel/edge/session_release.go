package edge

import (
	"slices"

	"github.com/trivium-mq/trivium/kernel"
)

// maxReleases is how many numbers may wait for a host to release them: a client has
// 65,535, and may repeat itself.
const maxReleases = 1 << 17

// releasing is a Release on its way.
type releasing struct {
	s       *session
	numbers []uint16
	again   bool // a host may have done it before
	done    func(unknown []uint16, err error)
}

// Release is broker.Session.Release. If a host stops before it is done it is done at the
// next one; what that does not know it has been done with.
func (s *session) Release(numbers []uint16, done func(unknown []uint16, err error)) {
	r := &releasing{s: s, numbers: numbers, done: done}
	s.mu.Lock()
	waiting := len(numbers)
	if s.inner == nil {
		for _, o := range s.releases {
			waiting += len(o.numbers)
		}
	}
	if s.over || waiting > maxReleases {
		s.mu.Unlock()
		done(nil, kernel.Errorf(kernel.CodeLimit, "session", s.state.ClientID, "too many publishes wait to be released"))
		return
	}
	s.releases = append(s.releases, r)
	in := s.inner
	s.mu.Unlock()
	if in != nil {
		r.release(in)
	}
}

// release asks a host.
func (r *releasing) release(in Session) {
	in.Release(r.numbers, func(unknown []uint16, err error) { r.completed(in, unknown, err) })
}

// completed is the outcome at a host.
func (r *releasing) completed(in Session, unknown []uint16, err error) {
	s := r.s
	s.mu.Lock()
	i := slices.Index(s.releases, r)
	passes := again(err) || kernel.CodeOf(err) == kernel.CodeFenced && s.inner != in // which had given it back
	if i < 0 || passes && !s.over {
		s.mu.Unlock()
		return
	}
	s.releases = slices.Delete(s.releases, i, i+1)
	if r.again {
		unknown = nil
	}
	s.mu.Unlock()
	r.done(unknown, err)
}
