package kafka

import "github.com/trivium-mq/trivium/storage/record"

// producerBatch encodes a batch of an idempotent producer.
func producerBatch(id int64, epoch int16, sequence int32, values ...string) []byte {
	var b record.Builder
	b.Reset()
	b.SetProducer(id, epoch, sequence)
	for _, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: 1})
	}
	return b.Finish(nil)
}
