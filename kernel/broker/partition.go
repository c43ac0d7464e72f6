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
	dst, err := p.Partition.Read(offset, maxBytes, dst)
	if err != nil && kernel.CodeOf(err) == kernel.CodeCorrupt {
		if last, ok := p.Damaged(offset); ok {
			p.conn.b.damages.met(&p.conn.b.log, p.topic.Name, p.Index(), offset, last)
		}
	}
	return dst, err
}
