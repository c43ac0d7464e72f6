package kafka

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// Produce, versions 3-13; 0-2 are advertised because old librdkafka turns
// compression off without them (KAFKA-18659), and refused.
//
// v3: RecordBatch v2, transactional id
// v5: log start offset in the answer, not filled in
// v7: zstd allowed (KIP-110)
// v8: error text per partition (KIP-467)
// v9: flexible
// v10: current leader in the answer (KIP-951), not filled in
// v11, v12: more error codes (KIP-890)
// v13: topics by id
//
// A batch is stored as it came, compressed or not, after every rule of Kafka's
// LogValidator held for it, also inside a compressed batch. Acknowledged means
// committed, with acks=1 too. With acks=0 nothing is answered, and a failure
// closes the connection, so that the client looks for the reason. The request's
// timeout is ignored: the broker has its own.
//
// Order of checks: acks, transactions, topic, form of the batch, size, content.

func (c *conn) handleProduce(req *kmsg.ProduceRequest, r *reply) {
	call := c.produce.begin(req, r)
	begin := time.Now()
	for i := range req.Topics {
		qt, rt := &req.Topics[i], &call.resp.Topics[i]
		t, code := c.produceTarget(req, qt)
		for j := range qt.Partitions {
			qp, rp := &qt.Partitions[j], &rt.Partitions[j]
			if code != 0 {
				call.failed(rp, code, nil)
				continue
			}
			if code, err := c.checkBatch(req.Version, qp.Records); code != 0 {
				call.failed(rp, code, err)
				continue
			}
			c.produce.append(call, rp, t, qp)
		}
	}
	if waited := time.Since(begin); waited >= throttled {
		call.resp.ThrottleMillis = int32(waited / time.Millisecond)
	}
	call.release(1)
}

// throttled is from which time on a request is said to have been held up, because
// too much was on its way to the log.
const throttled = 200 * time.Millisecond

// maxProduceParts bounds the topics and partitions that one request names.
const maxProduceParts = 100_000

// checkProduce walks over a request's arrays before they are decoded, because
// a request of this kind may be large and their elements small.
func checkProduce(version int16, body []byte) error {
	flexible := version >= 9
	b := kbin.Reader{Src: body}
	length, skip := b.ArrayLen, func() {}
	if flexible {
		length, skip = b.CompactArrayLen, func() { kmsg.SkipTags(&b) }
		b.UnsafeCompactNullableString()
	} else {
		b.UnsafeNullableString()
	}
	b.Int16()
	b.Int32()
	parts := int64(0)
	for topics := length(); topics > 0 && b.Ok(); topics-- {
		switch {
		case version >= 13:
			b.Uuid()
		case flexible:
			b.UnsafeCompactString()
		default:
			b.UnsafeString()
		}
		n := length()
		parts += 1 + int64(max(n, 0))
		if parts > maxProduceParts {
			return fmt.Errorf("%w: produce to more than %d partitions", errFrame, maxProduceParts)
		}
		for ; n > 0 && b.Ok(); n-- {
			b.Int32()
			if flexible {
				b.CompactNullableBytes()
			} else {
				b.NullableBytes()
			}
			skip()
		}
		skip()
	}
	if !b.Ok() {
		return fmt.Errorf("%w: produce request of %d bytes", errFrame, len(body))
	}
	return nil
}

// produceTarget makes the checks that concern a whole topic.
func (c *conn) produceTarget(req *kmsg.ProduceRequest, qt *kmsg.ProduceRequestTopic) (*kernel.Topic, int16) {
	switch {
	case req.Acks < -1 || req.Acks > 1:
		return nil, kerr.InvalidRequiredAcks.Code
	case req.TransactionID != nil:
		return nil, kerr.InvalidTxnState.Code // no transactions yet
	}
	return c.topicFor(kernel.Write, req.Version >= 13, qt.TopicID, qt.Topic)
}

// checkBatch checks one partition's records: exactly one valid batch.
func (c *conn) checkBatch(version int16, batch kernel.Batch) (int16, error) {
	if len(batch) > c.srv.cfg.MaxBatchBytes {
		return kerr.MessageTooLarge.Code, nil
	}
	if err := batch.Validate(); err != nil {
		return batchCode(err), err
	}
	if batch.Transactional() {
		return kerr.InvalidTxnState.Code, nil
	}
	codec := batch.Codec()
	if codec == kernel.Uncompressed {
		return 0, nil
	}
	if codec == kernel.Zstandard && version < 7 {
		return kerr.UnsupportedCompressionType.Code, nil
	}
	select { // bounds the memory of all decompression on the node
	case c.srv.inflate <- struct{}{}:
	case <-c.ctx.Done():
		return kerr.UnknownServerError.Code, nil
	}
	err := batch.ValidateRecords()
	<-c.srv.inflate
	if err != nil {
		return batchCode(err), err
	}
	return 0, nil
}
