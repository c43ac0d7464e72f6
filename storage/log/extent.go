package log

import "sort"

// BytesFrom is the size of the batches from an offset on. A run that the offset lies
// in counts in proportion.
func (p *Partition) BytesFrom(offset int64) (n int64) {
	p.mu.Lock()
	runs, head := p.runs, p.head
	p.mu.Unlock()
	for i := len(runs) - 1; i >= 0 && runs[i].End > offset; i-- {
		r := &runs[i]
		if r.Base >= offset {
			n += r.Bytes
		} else {
			n += int64(float64(r.Bytes) * float64(r.End-offset) / float64(r.End-r.Base))
		}
	}
	at := sort.Search(len(head), func(i int) bool { return head[i].last() >= offset })
	for i := range head[at:] {
		n += int64(head[at+i].length)
	}
	return n
}

// EndIn is the offset after what the partition has in the given segments, which are
// the oldest: where a retention that lets them go trims to. Without any it is Start.
func (p *Partition) EndIn(segments map[uint64]bool) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := p.start.Load()
	for i := range p.runs {
		if !segments[p.runs[i].seg.meta.ID] {
			break
		}
		end = max(end, p.runs[i].End)
	}
	return end
}
