package placement

// Partition reads one partition's log. Safe for concurrent use.
type Partition struct{}

// Bounds returns the first readable offset and the next offset to be given.
func (p *Partition) Bounds() (start, end int64) { panic("unfinished") }

// Read appends whole stored batches to dst, beginning with the one that
// contains offset, until maxBytes is reached; at least one batch if there is
// any, even if larger. Nothing is appended at end. CodeOutOfRange,
// CodeCorrupt, CodeDropped.
func (p *Partition) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	panic("unfinished")
}

// TimeOffset returns the first offset whose record timestamp (ms) is at least
// ts, with that timestamp; ok is false when there is none.
func (p *Partition) TimeOffset(ts int64) (offset, timestamp int64, ok bool) { panic("unfinished") }

// Watch sends on ready (without blocking; give it capacity 1) as soon as end >
// offset, or the partition is dropped, at once if that is so already. cancel
// ends the watch.
func (p *Partition) Watch(offset int64, ready chan<- struct{}) (cancel func()) { panic("unfinished") }
