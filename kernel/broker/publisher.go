package broker

import "github.com/trivium-mq/trivium/kernel"

// Publisher publishes for one connection or channel. It remembers recent
// routes. Not safe for concurrent use; Completed calls come from elsewhere.
type Publisher struct{}

// Publisher returns a publisher whose outcomes go to done (nil: nobody asks).
func (c *Conn) Publisher(done kernel.Completion) *Publisher { panic("unfinished") }

// ToExchange routes r by an exchange and stores it in every target. It returns
// how many targets matched. An error (exchange missing: CodeNotFound, internal:
// CodeAccessRefused, record too large: CodeTooLarge) means nothing was stored
// and no Completed call comes. It may wait, bounded, while the node is over its
// budget of bytes in flight or the queue is being created.
// The record's Key is the routing key unless the caller set another.
func (p *Publisher) ToExchange(exchange, key string, r *kernel.Record, opt kernel.PublishOptions, token uint64) (matched int, err error) {
	panic("unfinished")
}

// ToTopic publishes under a name with levels: to the topic of exactly that
// name, to the filters it matches, to the bindings of amq.topic, and to
// session-less subscribers.
func (p *Publisher) ToTopic(name string, r *kernel.Record, token uint64) (matched int, err error) {
	panic("unfinished")
}

// ToPartition appends one ready RecordBatch v2, checked by the caller with
// kernel record validation, to a partition. The batch is copied.
func (p *Publisher) ToPartition(t *kernel.Topic, partition int32, batch []byte, token uint64) error {
	panic("unfinished")
}

// Close ends the publisher: after it returns no Completed call comes. Publishes
// under way still happen.
func (p *Publisher) Close() { panic("unfinished") }
