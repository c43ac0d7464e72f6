package broker

import (
	"context"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// LogRead asks for what follows offsets in partitions of topics, and holds what was read.
type LogRead struct {
	Parts []LogPart
	// MaxBytes bounds what is read of all parts; one batch is read even if it is larger.
	MaxBytes int
	// MinBytes is how much there has to be before Wait is over. A part that fails, or has
	// more than may be read, is answered at once.
	MinBytes int
	Wait     time.Duration
	// Admit is told how many bytes are about to be read, and returns how many may be; 0
	// says that nothing is held while it waits. nil = as many as asked for.
	Admit func(bytes int) int

	// Epoch numbers the leadership that has read; the batches carry it as their leader
	// epoch.
	Epoch int32
	// Data are whole batches as stored, in the order of the parts' chunks. What is read is
	// appended: the buffer is the caller's.
	Data []byte
}

// LogPart is a partition of a LogRead.
type LogPart struct {
	Topic    kernel.TopicID
	Index    int32
	Offset   int64 // to read from; afterwards, to read on from
	MaxBytes int

	Start, End int64    // of the log; -1 where Err is set
	Chunks     [][2]int // what was read of it, as places in Data
	Bytes      int      // in them
	Records    int      // in them
	Err        error    // CodeNotFound, CodeAccessRefused, and those of Partition.Read
}

// logReader runs a LogRead.
type logReader struct {
	r     *LogRead
	parts []logSource // nil where a part has failed
	total int         // bytes read
}

// logSource is a partition's log: of a connection, or of a replica.
type logSource interface {
	Bounds() (start, end int64)
	Read(offset int64, maxBytes int, dst []byte) ([]byte, error)
	Around(offset int64) (next int64)
	Watch(offset int64, ready chan<- struct{}) (cancel func())
}

// ReadLogs reads what follows the offsets of the parts, as far as the user may: when
// there is enough, Wait is over, or ctx ends; CodeUnavailable if the connection is closed
// meanwhile. Records that are lost to damage are an error
// once, and then a hole. The answer of a part that fails has nothing of it in Data that
// counts.
func (c *Conn) ReadLogs(ctx context.Context, r *LogRead) error {
	if err := c.begin(); err != nil {
		return err
	}
	defer c.end()
	r.Epoch = int32(c.b.Epoch())
	l := &logReader{r: r, parts: make([]logSource, len(r.Parts))}
	for i := range r.Parts {
		p := &r.Parts[i]
		p.Start, p.End = -1, -1
		source, err := c.partitionByID(p.Topic, p.Index)
		if p.Err = err; err == nil {
			l.parts[i] = source
		}
	}
	if !l.read() {
		l.poll(ctx, c.stop)
	}
	if l.total == 0 && c.isClosed() { // another host may have what is waited for
		return kernel.Errorf(kernel.CodeUnavailable, "", "", "the connection is closed")
	}
	return nil
}

// partitionByID is Partition of a topic that is known by its id.
func (c *Conn) partitionByID(id kernel.TopicID, index int32) (*Partition, error) {
	t, err := c.FindTopicByID(id)
	if err != nil {
		return nil, err
	}
	return c.Partition(t, index)
}

// poll reads again after every append, until there is enough or it is over.
func (l *logReader) poll(ctx context.Context, stop <-chan struct{}) {
	timer := time.NewTimer(l.r.Wait)
	defer timer.Stop()
	ready := make(chan struct{}, 1)
	for enough := false; !enough; enough = l.read() {
		cancel := l.watch(ready)
		select {
		case <-ready:
			cancel()
			continue
		case <-timer.C:
		case <-stop:
		case <-ctx.Done():
		}
		cancel()
		return
	}
}

// watch asks to be woken by the next append to any partition.
func (l *logReader) watch(ready chan<- struct{}) (cancel func()) {
	cancels := make([]func(), 0, len(l.parts))
	for i, p := range l.parts {
		if p != nil {
			cancels = append(cancels, p.Watch(l.r.Parts[i].Offset, ready))
		}
	}
	return func() {
		for _, cancel := range cancels {
			cancel()
		}
	}
}

// read reads on in every partition, within the limits. It reports whether that is enough.
func (l *logReader) read() (enough bool) {
	enough = l.r.Wait <= 0
	l.admit(l.r.MaxBytes)
	defer func() {
		if l.total == 0 {
			l.admit(0)
		}
	}()
	for i, p := range l.parts {
		part := &l.r.Parts[i]
		more := p != nil && l.readPart(part, p)
		if part.Err != nil {
			l.parts[i] = nil
		}
		enough = enough || part.Err != nil || more
	}
	return enough || l.total >= l.r.MinBytes
}

// admit says how much is about to be read, 0 = nothing for now.
func (l *logReader) admit(bytes int) {
	if l.r.Admit == nil {
		return
	}
	if may := l.r.Admit(bytes); bytes > 0 {
		l.r.MaxBytes = min(l.r.MaxBytes, may)
	}
}

// readPart reads on in one partition; more says that the limits have let in less than
// there is.
func (l *logReader) readPart(part *LogPart, p logSource) (more bool) {
	if part.Start, part.End = p.Bounds(); part.Offset == part.End {
		return false
	}
	room := min(part.MaxBytes-part.Bytes, l.r.MaxBytes-l.total)
	if room <= 0 && l.total > 0 {
		return true
	}
	at := len(l.r.Data)
	data, err := p.Read(part.Offset, max(room, 1), l.r.Data)
	for err != nil && kernel.CodeOf(err) == kernel.CodeCorrupt {
		next := p.Around(part.Offset)
		if next <= part.Offset {
			break
		}
		part.Offset = next // it may be the end: then there is nothing yet
		data, err = p.Read(part.Offset, max(room, 1), l.r.Data)
	}
	if err != nil {
		l.fail(part, err)
		return false
	}
	l.r.Data = data
	if len(data) == at {
		return false
	}
	next, records, ok := stampRun(data[at:], l.r.Epoch)
	if !ok || next <= part.Offset {
		l.fail(part, kernel.Errorf(kernel.CodeCorrupt, "topic", part.Topic.String(), "partition %d: what follows offset %d is no row of batches", part.Index, part.Offset))
		return false
	}
	n := len(data) - at
	part.Chunks = append(part.Chunks, [2]int{at, len(data)})
	part.Offset, part.Bytes, part.Records = next, part.Bytes+n, part.Records+records
	l.total += n
	more = part.Offset < part.End
	part.End = max(part.End, part.Offset) // appended since Bounds: nothing is read that lies beyond the end
	return more
}

// fail ends a part: what was read of it before does not count beside an error.
func (l *logReader) fail(part *LogPart, err error) {
	part.Err, part.Chunks, part.Bytes, part.Records = err, nil, 0, 0
	part.Start, part.End = -1, -1
}

// stampRun writes the leader epoch into each batch of a run. It returns the offset that
// follows the run and how many records it holds.
func stampRun(run []byte, epoch int32) (next int64, records int, ok bool) {
	for len(run) > 0 {
		batch, rest, err := kernel.SplitBatch(run)
		if err != nil {
			return 0, 0, false
		}
		batch.SetLeaderEpoch(epoch)
		next, records, run = batch.LastOffset()+1, records+batch.Count(), rest
	}
	return next, records, true
}
