package forward

import (
	"encoding/binary"
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

var _ edge.LogPublisher = (*publisher)(nil)

// batchHead is an upper bound on what a frame holds beside a batch.
const batchHead = headSize + 3*binary.MaxVarintLen64 + len(kernel.TopicID{})

// ToPartition implements edge.LogPublisher. A refusal that comes later, as edge.Decliner or
// as the outcome, concerns that batch alone. Short of disk or memory it is refused with
// CodePressure, and waits for nothing.
func (p *publisher) ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error {
	l, o := p.link, &p.link.out
	size := batchHead + len(batch)
	if size > maxFrame {
		return kernel.Errorf(kernel.CodeTooLarge, "topic", t.Name, "a batch of %d bytes is too large", len(batch))
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := l.admit(size+publishCost, true); err != nil {
		return err
	}
	number := p.next
	records, payload := broker.BatchPayload(batch)
	p.begin(flight{token: token, size: size + publishCost, records: int32(records), payload: int32(payload), batch: true}, false)
	o.grow(size)
	start := o.begin(kindBatch)
	b := codec.AppendUint(codec.AppendUint(o.buf, p.id), number)
	o.buf = append(appendPlaceOf(b, t.ID, partition), batch...)
	o.end(start)
	return nil
}

// onStored handles the outcome of a batch.
func (l *link) onStored(r *reader) error {
	id, n, offset, reason := r.Uint(), r.Uint(), r.Int(), r.error()
	if err := r.done(kindStored); err != nil {
		return err
	}
	l.out.mu.Lock()
	p := l.publishers[id]
	if p == nil || reason == errUnmatched || n < p.base || n >= p.next || p.at(n).state != flying || !p.at(n).batch {
		l.out.mu.Unlock()
		return fmt.Errorf("%w: the outcome of no batch", errMalformed)
	}
	l.finished = append(l.finished[:0], finished{token: p.at(n).token, err: reason, batch: true, offset: offset})
	l.took(p.at(n))
	p.land(p.at(n))
	l.changed.Broadcast()
	l.out.mu.Unlock()
	l.recall.doubt(reason)
	p.tellAll(l.finished)
	clear(l.finished)
	return nil
}

// ofBatch is the bit by which the broker's outcomes of batches are told from those of other
// publishes.
const ofBatch = 1 << 63

// batch handles a batch for a partition. It is given to the broker on the stream's reader,
// as it is given on the reader of a client's socket where that is at the node that serves.
func (c *session) batch(body []byte) error {
	r := read(body)
	id, n, topic, partition := r.Uint(), r.Uint(), r.topicID(), int32(r.int())
	if r.Err() != nil || n >= ofBatch {
		return fmt.Errorf("%w: a batch", errMalformed)
	}
	f, _, err := c.publishes(id)
	if err != nil {
		return err
	}
	if err := c.pressure.batch(f, n, topic, partition, r.B); err != nil {
		f.refuse(n, err)
	}
	return nil
}

// batch gives a batch to the broker, or returns why that does not take it. It is not held
// back, and not put before what is.
func (h *pressure) batch(f *feeder, number uint64, topic kernel.TopicID, partition int32, batch []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.over:
		return errGone()
	case len(h.list) > 0:
		return errPressed
	}
	if err := kernel.Batch(batch).Validate(); err != nil {
		return err
	}
	t, err := h.session.conn.FindTopicByID(topic)
	if err != nil {
		return err
	}
	return f.p.ToPartition(t, partition, batch, number|ofBatch)
}

// stored tells the outcome of a batch, after those that came before. The caller holds
// out.mu.
func (f *feeder) stored(number uint64, res kernel.Result) {
	f.flush()
	f.done++
	o := &f.session.out
	start := o.begin(kindStored)
	o.buf = codec.AppendInt(codec.AppendUint(codec.AppendUint(o.buf, f.id), number), res.Offset)
	o.buf = appendError(o.buf, res.Err)
	o.end(start)
	f.retire()
}
