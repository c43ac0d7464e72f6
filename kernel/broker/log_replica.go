package broker

import "github.com/trivium-mq/trivium/kernel/placement"

// ReadReplica reads from the replica of this node, which need not serve, what readers of
// logs have left far behind: it reports whether every part had more there than the limits
// let in, else it leaves r as it was. So nobody takes the end of the replica, which lags,
// for that of the log. What is committed never changes; that the user may read the topics
// is the caller's to know.
func (n *Node) ReadReplica(r *LogRead) bool {
	parts := make([]logSource, len(r.Parts))
	for i := range r.Parts {
		p, err := n.durable.PartitionOf(r.Parts[i].Topic, r.Parts[i].Index)
		if err != nil {
			return false
		}
		if start, end := p.Bounds(); r.Parts[i].Offset < start || r.Parts[i].Offset >= end-1 {
			return false
		}
		parts[i] = replicated{p}
	}
	before, data, limit := append([]LogPart(nil), r.Parts...), r.Data, r.MaxBytes
	_, epoch := n.Leadership()
	r.Epoch = int32(epoch)
	l := &logReader{r: r, parts: parts}
	l.read()
	behind := len(r.Parts) > 0
	for i := range r.Parts {
		p := &r.Parts[i]
		behind = behind && p.Err == nil && p.Offset < p.End
	}
	if !behind {
		l.admit(0)
		copy(r.Parts, before)
		r.Data, r.MaxBytes = data, limit
	}
	return behind
}

// replicated is a partition of a replica. What is damaged there is not passed over: who
// serves may have it.
type replicated struct{ *placement.Partition }

// Around implements logSource.
func (replicated) Around(offset int64) int64 { return offset }
