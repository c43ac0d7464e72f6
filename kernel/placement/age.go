package placement

import (
	"encoding/binary"
	"sync"
	"time"
)

// ageMarks remembers roughly when the records of a partition were appended, by
// the times of their entries: below marks[i].offset all is older than
// marks[i].time. The machine adds, the shard that decides on retention reads.
type ageMarks struct {
	mu    sync.Mutex
	marks []ageMark
	last  int64 // time of the last append, ms
}

type ageMark struct {
	time   int64 // ms since 1970
	offset int64
}

// maxMarks bounds the memory of a partition, and the precision of its
// retention: a record stays up to a 32nd of the age longer.
const maxMarks = 64

// append notes that offset is appended at time, under a retention of age.
func (a *ageMarks) append(time int64, offset int64, age time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time
	step := max(age.Milliseconds()/(maxMarks/2), 1)
	if n := len(a.marks); n > 0 && time < a.marks[n-1].time+step {
		return
	}
	if len(a.marks) == maxMarks { // the age was lengthened: keep every other one
		for i := range maxMarks / 2 {
			a.marks[i] = a.marks[2*i]
		}
		a.marks = a.marks[:maxMarks/2]
	}
	a.marks = append(a.marks, ageMark{time, offset})
}

// older returns the offset below which everything was appended at or before
// time; end if that is everything.
func (a *ageMarks) older(time, end int64) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last <= time {
		return end
	}
	for i := len(a.marks) - 1; i >= 0; i-- {
		if a.marks[i].time <= time {
			return a.marks[i].offset
		}
	}
	return 0
}

// trim forgets the marks that start has passed.
func (a *ageMarks) trim(start int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for n < len(a.marks) && a.marks[n].offset <= start {
		n++
	}
	a.marks = append(a.marks[:0], a.marks[n:]...)
}

func (a *ageMarks) appendTo(dst []byte) []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	dst = binary.AppendVarint(dst, a.last)
	return appendMarks(dst, a.marks)
}

func (a *ageMarks) decode(d *decoder) {
	a.last = d.varint()
	a.marks = d.marks(a.marks, maxMarks)
}

func appendMarks(dst []byte, marks []ageMark) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(marks)))
	for _, m := range marks {
		dst = binary.AppendVarint(dst, m.time)
		dst = binary.AppendUvarint(dst, uint64(m.offset))
	}
	return dst
}

// marks appends what appendMarks wrote, at most that many.
func (d *decoder) marks(marks []ageMark, most int) []ageMark {
	for n := d.int(most); n > 0 && d.err == nil; n-- {
		marks = append(marks, ageMark{d.varint(), d.offset()})
	}
	return marks
}
