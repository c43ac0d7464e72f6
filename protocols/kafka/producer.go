package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// producer is a connection's publishing side: it matches the kernel's
// completions to the produce requests they belong to. Several requests may be
// under way; the completion of a request's last batch answers it.
type producer struct {
	conn *conn
	to   publisher // used by the reader only
	// broken: it is not known what became of a batch, so that nothing more is stored of
	// this connection. What came after it would be a gap in the producer's sequence, or
	// overtake it.
	broken atomic.Bool

	mu    sync.Mutex
	slots []produceSlot // indexed by the publish's token
	free  []uint32
}

// produceSlot is one batch on its way.
type produceSlot struct {
	call    *produceCall
	part    *kmsg.ProduceResponseTopicPartition
	records int
	bytes   int
}

// produceCall is one produce request on its way.
type produceCall struct {
	conn   *conn
	reply  *reply
	resp   *kmsg.ProduceResponse
	silent bool // acks=0
	left   atomic.Int32
	errors atomic.Bool
	// pressed: the node is short of disk or memory and has refused a batch.
	pressed atomic.Bool
}

func (p *producer) init(c *conn) { p.conn = c }

// begin lays out the answer to req, in which every partition has failed until
// said otherwise. The handler holds one share of the call and gives it back
// with release.
func (p *producer) begin(req *kmsg.ProduceRequest, r *reply) *produceCall {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	call := &produceCall{conn: p.conn, reply: r, resp: resp, silent: req.Acks == 0}
	call.left.Store(1)
	for i := range req.Topics {
		qt, rt := &req.Topics[i], &resp.Topics[i]
		rt.Default()
		rt.Topic, rt.TopicID = qt.Topic, qt.TopicID
		rt.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(qt.Partitions))
		for j := range qt.Partitions {
			rp := &rt.Partitions[j]
			rp.Default()
			rp.Partition, rp.BaseOffset = qt.Partitions[j].Partition, -1
		}
	}
	return call
}

// append publishes one checked batch, whose outcome goes to part.
func (p *producer) append(call *produceCall, part *kmsg.ProduceResponseTopicPartition, t *kernel.Topic, q *kmsg.ProduceRequestTopicPartition) {
	token := p.take(produceSlot{call: call, part: part, records: kernel.Batch(q.Records).Count(), bytes: len(q.Records)})
	call.left.Add(1)
	if err := p.publish(t, q, token); err != nil {
		p.give(token)
		call.failed(part, produceCode(err), err)
		call.release(1)
	}
}

// publish publishes a batch. While nobody serves it waits, and so does all that the
// connection sends after it: what was sent before is stored before. Once the outcome of one
// is unknown nothing more is: the connection ends, as it would with a broker that has died,
// and the client sends all of that again, in order.
func (p *producer) publish(t *kernel.Topic, q *kmsg.ProduceRequestTopicPartition, token uint64) error {
	for !p.broken.Load() {
		err := p.to.ToPartition(t, q.Partition, q.Records, token)
		if err != error(edge.ErrUnlinked) || p.conn.client.Await(p.conn.drain) != nil {
			return err
		}
	}
	return errBehind
}

// errBehind refuses what comes behind a batch whose outcome is not known.
var errBehind = kernel.Errorf(kernel.CodeUnavailable, "", "", "it is not known what became of a batch before this one: the connection ends")

// Completed takes the outcome of one batch. It implements kernel.Completion.
func (p *producer) Completed(token uint64, res kernel.Result) {
	s := p.give(token)
	if kernel.CodeOf(res.Err) == kernel.CodeUnknown && res.Err != nil {
		p.broken.Store(true)
		p.conn.finish()
	}
	if res.Err != nil {
		s.call.failed(s.part, produceCode(res.Err), res.Err)
	} else {
		s.part.BaseOffset = res.Offset
	}
	s.call.release(1)
}

// Flush implements kernel.Completion; answers are coalesced by the writer.
func (p *producer) Flush() {}

// close ends publishing: no Completed call comes afterwards.
func (p *producer) close() {
	if p.to != nil {
		p.to.Close()
	}
}

func (p *producer) take(s produceSlot) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		p.slots[i] = s
		return uint64(i)
	}
	p.slots = append(p.slots, s)
	return uint64(len(p.slots) - 1)
}

func (p *producer) give(token uint64) produceSlot {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.slots[token]
	p.slots[token] = produceSlot{}
	p.free = append(p.free, uint32(token))
	return s
}

// failed records why a partition's batch was not stored. Each partition has
// one outcome, written by one goroutine.
func (call *produceCall) failed(part *kmsg.ProduceResponseTopicPartition, code int16, err error) {
	part.ErrorCode, part.ErrorMessage = code, message(err)
	if err != nil && kernel.CodeOf(err) == kernel.CodePressure {
		call.pressed.Store(true)
	}
	call.errors.Store(true)
}

// release gives back n shares of the call; the last one answers it.
func (call *produceCall) release(n int32) {
	if call.left.Add(-n) != 0 {
		return
	}
	if !call.silent && call.pressed.Load() {
		call.resp.ThrottleMillis = int32(pressedPause / time.Millisecond)
		call.reply.later(call.answerLate)
		return
	}
	if !call.silent {
		call.reply.send(call.resp)
		return
	}
	call.reply.silent(false)
	if call.errors.Load() {
		call.conn.end(errSilentFailure)
	}
}

// pressedPause is how long the answer to a producer is kept back whose batch the
// node could not take for want of disk or memory. The error is one after which
// producers try again, and this is how often they do.
const pressedPause = 500 * time.Millisecond

// answerLate answers after a pause.
func (call *produceCall) answerLate(ctx context.Context, w *writer) error {
	return w.answerAfter(ctx, pressedPause, call.conn.drain, &reply{correlation: call.reply.correlation, resp: call.resp})
}

// errSilentFailure ends the connection of a client that does not want answers
// and has to be told of a failure.
var errSilentFailure = errors.New("kafka: produce with acks=0 failed")
