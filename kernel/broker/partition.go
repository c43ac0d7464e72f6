package broker

import (
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/auth"
	"github.com/trivium-mq/trivium/kernel/placement"
)

// Partition reads one partition's log for a connection, as long as its user may.
type Partition struct {
	*placement.Partition
	conn  *Conn
	topic *kernel.Topic
	asked atomic.Pointer[auth.Directory] // the one that said he may
}

// allowed returns CodeAccessRefused if the user may not read the topic now. It
// costs a comparison as long as nobody's rights change.
func (p *Partition) allowed() error {
	dir := p.conn.b.directory()
	if p.asked.Load() == dir {
		return nil
	}
	if err := p.conn.allow(kernel.Read, KindTopic, p.topic.Name); err != nil {
		return err
	}
	p.asked.Store(dir)
	return nil
}

// Read is placement.Partition's, or CodeAccessRefused.
func (p *Partition) Read(offset int64, maxBytes int, dst []byte) ([]byte, error) {
	if err := p.allowed(); err != nil {
		return dst, err
	}
	return p.Partition.Read(offset, maxBytes, dst)
}

// Around returns where a reader goes on whose Read at offset has got CodeCorrupt:
// behind what is damaged there, once that is known to be lost; else it is offset, and
// the reader is to be told of the error. It notes the damage for log and metrics.
func (p *Partition) Around(offset int64) int64 {
	bad, ok := p.Damaged(offset)
	b := p.conn.b
	if !ok || !b.damages.met(&b.log, p.topic, p.Index(), bad, false) {
		return offset
	}
	b.damages.passed.Add(1)
	return bad.Last + 1
}
