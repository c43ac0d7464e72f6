package edge

import "github.com/trivium-mq/trivium/kernel"

// shift makes the offsets of a queue that lives in memory only go on from one host to the
// next, where they begin anew: else what the client settles of the one would settle other
// records of the other. A member's own, guarded by its mutex.
type shift struct {
	base int64 // added to what the present host says
	top  int64 // above all that the client has been told
	copy []kernel.Delivery
}

// next begins with a further host.
func (s *shift) next() { s.base = s.top }

// shown is what the client is told in place of batch, which is not kept.
func (s *shift) shown(batch []kernel.Delivery) []kernel.Delivery {
	if s.base > 0 {
		s.copy = append(s.copy[:0], batch...)
		for i := range s.copy {
			s.copy[i].Offset += s.base
		}
		batch = s.copy
	}
	for i := range batch {
		s.top = max(s.top, batch[i].Offset+1)
	}
	return batch
}

// meant is what the client means by a range of offsets; false if the present host has
// handed none of it out.
func (s *shift) meant(first, last int64) (int64, int64, bool) {
	return max(first-s.base, 0), last - s.base, last >= s.base
}
