package placement

import (
	"context"
	"encoding/binary"

	"github.com/trivium-mq/trivium/kernel"
)

var (
	errNotEmpty = &kernel.Error{Code: kernel.CodePrecondition, Detail: "it is not empty"}
	errChanging = &kernel.Error{Code: kernel.CodePrecondition, Detail: "its groups change"}
)

// end is how far a partition had got.
type end struct {
	partition PartitionID
	offset    int64
}

// dropEmptyTries bounds how often DropEmpty begins again because records came
// and went in the meantime.
const dropEmptyTries = 16

// DropEmpty is DropTopic under the condition that a group of the topic has
// neither records ready nor held: the log decides, so that what was published
// before the topic goes is seen. CodePrecondition: it has.
func (g *Group) DropEmpty(ctx context.Context, topic kernel.TopicID, id GroupID, revision uint64) error {
	for range dropEmptyTries {
		sh := g.machine.share(id)
		if sh == nil {
			return noGroup(id)
		}
		var done <-chan commandResult
		err := error(errStopped)
		sh.topic.shard.call(func() { done, err = sh.topic.shard.dropEmpty(sh, revision) })
		switch err {
		case nil:
			if _, err = result(ctx, done); kernel.CodeOf(err) != kernel.CodePrecondition {
				return err
			}
		case errChanging: // it may be moved back
			if _, err = g.do(ctx, barrierCommand()); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return errNotEmpty
}

// dropEmpty proposes to drop the topic of a share in which nothing is, and returns where
// it is told what has come of it.
func (s *shard) dropEmpty(sh *share, revision uint64) (<-chan commandResult, error) {
	ends, empty := sh.emptyAt()
	if !empty {
		return nil, errNotEmpty
	}
	topic := sh.topic.id
	return s.prop.unlessChanging(dropEmptyCommand(topic, ends, revision), topic)
}

// emptyAt says up to where there is nothing in the share. The shard calls it.
func (s *share) emptyAt() ([]end, bool) {
	if s.gone {
		return nil, false
	}
	s.extend()
	s.publish()
	ends := make([]end, len(s.windows))
	for i, w := range s.windows {
		ends[i] = end{w.part.id, w.known}
	}
	return ends, s.stat.ready.Load()+s.stat.held.Load() == 0
}

func dropEmptyCommand(topic kernel.TopicID, ends []end, revision uint64) []byte {
	b := topicCommand(cmdDropEmpty, topic, revision)
	b = binary.AppendUvarint(b, uint64(len(ends)))
	for _, e := range ends {
		b = binary.AppendUvarint(b, uint64(e.partition))
		b = binary.AppendUvarint(b, uint64(e.offset))
	}
	return b
}

// dropEmpty drops a topic, unless something came to it in the meantime.
func (m *machine) dropEmpty(d *decoder) (res commandResult) {
	id := d.topicID()
	d.uvarint()
	for n := d.count(2); n > 0 && d.err == nil; n-- {
		p := m.parts[PartitionID(d.uvarint())]
		if offset := d.offset(); p != nil && p.topic.id == id && p.log.End() != offset {
			res.err = errNotEmpty
		}
	}
	if d.err == nil && res.err == nil {
		m.dropTopic(id)
	}
	return res
}
