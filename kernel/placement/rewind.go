package placement

import (
	"context"

	"github.com/trivium-mq/trivium/kernel"
)

// Rewind moves a group to another place in every partition: what lies below is
// settled, everything else is unsettled again, and forgotten is how often it had
// failed. Members stay; what they hold is not theirs any more, and what they say
// about it is ignored. It is durable when it returns. CodeNotFound; CodeUnavailable:
// the group was moved by somebody else at the same time.
func (g *Group) Rewind(ctx context.Context, id GroupID, to kernel.Position) error {
	sh := g.machine.share(id)
	if sh == nil {
		return noGroup(id)
	}
	offsets, err := g.machine.positions(sh.topic, to)
	if err != nil {
		return err
	}
	s := sh.topic.shard
	var want []uint64
	var moved <-chan commandResult
	err = errStopped
	s.call(func() { want, moved, err = s.rewind(sh, offsets) })
	if err != nil {
		return err
	}
	if _, err := result(ctx, moved); err != nil {
		return err
	}
	err = errStopped
	s.call(func() {
		err = nil
		for i, w := range sh.windows {
			if i < len(want) && w.seeks < want[i] {
				err = kernel.Errorf(kernel.CodeUnavailable, "group", sh.spec.Address.Group, "it was moved by somebody else at the same time")
			}
		}
	})
	return err
}

// positions are the offsets of a place in the partitions of a topic.
func (m *machine) positions(t *topic, to kernel.Position) (map[int32]int64, error) {
	m.table.mu.RLock()
	parts := append([]*partition(nil), t.parts...)
	m.table.mu.RUnlock()
	out := make(map[int32]int64, len(parts))
	for _, p := range parts {
		start, end := p.log.Start(), p.log.End()
		at := start
		switch to.Kind {
		case kernel.AtEnd:
			at = end
		case kernel.AtLast:
			at = max(start, end-1)
		case kernel.AtOffset:
			at = min(max(to.Value, start), end)
		case kernel.AtTime:
			offset, _, err := (&Partition{p}).TimeOffset(to.Value)
			if err != nil {
				return nil, err
			}
			at = max(offset, start)
		}
		out[p.index] = at
	}
	return out, nil
}

// rewind hands the moves of a share's windows to the proposer, behind all that
// has been settled, and returns how often each window will have been moved when it is
// told by moved.
func (s *shard) rewind(sh *share, to map[int32]int64) (want []uint64, moved <-chan commandResult, err error) {
	if sh.gone {
		return nil, nil, noGroup(sh.id)
	}
	if s.term == 0 {
		return nil, nil, errNotLeading
	}
	s.activate(sh)
	sh.extend()
	s.touch(sh)
	s.collect()
	var section []byte
	for _, w := range sh.windows {
		want = append(want, w.seeks+1)
		at, ok := to[w.part.index]
		if !ok {
			at = w.part.log.Start() // made since
		}
		st, err := w.SeekTo(max(at, w.part.log.Start(), w.part.cut.asked)) // what lies below goes before
		if err != nil {
			return nil, nil, errNotLeading
		}
		s.encoded = st.AppendTo(s.encoded[:0])
		section = appendSettlementSection(section, sh.id, w.part.id, s.encoded)
	}
	moved, err = s.prop.move(s.term, section, sh.topic.id)
	return want, moved, err
}

// sought follows a move of a window that has been applied.
func (w *window) sought() {
	w.seeks++
	w.head, w.sizes, w.bad, w.promised = headMemo{}, nil, nil, 0
}
