package broker

import "golang.org/x/sync/semaphore"

// SmallRead is what may be read of logs, in bytes, where there is no more room.
const SmallRead = 64 << 10

// ReadRoom is what one LogRead holds of a node's memory for what is read of logs. Not safe
// for concurrent use.
type ReadRoom struct {
	Of   *semaphore.Weighted // bytes
	held int64
}

// Set changes how many bytes are held, and returns how many may be read. Where there is no
// more room that is little, in place of waiting for others, which may be slow on purpose.
func (r *ReadRoom) Set(bytes int) int {
	want := int64(bytes)
	switch {
	case want < r.held:
		r.Of.Release(r.held - want)
		r.held = want
	case want > r.held && r.Of.TryAcquire(want-r.held):
		r.held = want
	case want > r.held:
		return min(bytes, SmallRead)
	}
	return bytes
}
