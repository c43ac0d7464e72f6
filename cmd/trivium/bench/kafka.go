package bench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func kafkaClient(o Options, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(o.Target), kgo.ProducerBatchCompression(kgo.NoCompression())}, opts...)...)
}

// freshTopic deletes and creates the topic.
func freshTopic(ctx context.Context, c *kgo.Client, o Options) error {
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames = []string{o.Name}
	del.Topics = []kmsg.DeleteTopicsRequestTopic{{Topic: &o.Name}}
	del.TimeoutMillis = 5000
	gone, err := del.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("delete topic: %w", err)
	}
	for _, t := range gone.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return fmt.Errorf("delete topic %s: %w", o.Name, err)
		}
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.TimeoutMillis = 5000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = o.Name, int32(max(o.Partitions, 1)), 1
	create.Topics = append(create.Topics, t)
	resp, err := create.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("create topic: %w", err)
	}
	return kerr.ErrorForCode(resp.Topics[0].ErrorCode)
}

// kafkaProduce produces with acks=all; latency is from Produce to its promise.
func kafkaProduce(ctx context.Context, o Options) (Result, error) {
	c, err := kafkaClient(o)
	if err != nil {
		return Result{}, err
	}
	defer c.Close()
	if err := freshTopic(ctx, c, o); err != nil {
		return Result{}, err
	}
	var h histogram
	cpu, start := startClock(o)
	res, err := produceAll(ctx, o, &h)
	elapsed, used, cerr := stopClock(o, cpu, start)
	res.finish(res.Confirmed, o, elapsed, &h, used)
	return res, errors.Join(err, cerr)
}

// produceAll runs o.Publishers producers until the time or count is up.
func produceAll(ctx context.Context, o Options, h *histogram) (Result, error) {
	var published, confirmed atomic.Uint64
	share := o.Messages / max(o.Publishers, 1)
	err := parallel(ctx, o.Publishers, func(ctx context.Context, i int) error {
		c, err := kafkaClient(o, kgo.MaxBufferedRecords(max(o.Outstanding, 1)))
		if err != nil {
			return err
		}
		defer c.Close()
		run, cancel := context.WithTimeout(ctx, o.Duration)
		defer cancel()
		var failed atomic.Pointer[error]
		pace := newPacer(o.Rate, o.Publishers)
		for seq := 0; (share == 0 || seq < share) && failed.Load() == nil && pace.wait(run, 1) > 0; seq++ {
			value, sent := make([]byte, o.Size), now()
			stamp(value, uint32(i), uint64(seq), sent)
			published.Add(1)
			c.Produce(ctx, &kgo.Record{Topic: o.Name, Value: value}, func(_ *kgo.Record, err error) {
				if err != nil {
					failed.CompareAndSwap(nil, &err)
					return
				}
				confirmed.Add(1)
				h.add(time.Duration(now() - sent))
			})
		}
		if err := c.Flush(ctx); err != nil {
			return err
		}
		if e := failed.Load(); e != nil {
			return *e
		}
		return nil
	})
	return Result{Published: published.Load(), Confirmed: confirmed.Load()}, err
}

// kafkaConsume produces o.Messages (default: for o.Duration) and then measures
// reading them from the start.
func kafkaConsume(ctx context.Context, o Options) (Result, error) {
	admin, err := kafkaClient(o)
	if err != nil {
		return Result{}, err
	}
	defer admin.Close()
	if err := freshTopic(ctx, admin, o); err != nil {
		return Result{}, err
	}
	var h histogram
	res, err := produceAll(ctx, o, &h)
	if err != nil {
		return res, err
	}
	c, err := kafkaClient(o, kgo.ConsumeTopics(o.Name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return res, err
	}
	defer c.Close()
	l := newLedger(o.Publishers)
	cpu, start := startClock(o)
	deadline, cancel := context.WithTimeout(ctx, 30*time.Second+o.Duration)
	defer cancel()
	for l.total() < res.Confirmed && deadline.Err() == nil {
		fetches := c.PollFetches(deadline)
		if err := fetches.Err0(); err != nil && deadline.Err() == nil {
			return res, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if pub, seq, _, err := parse(r.Value); err == nil {
				l.receive(pub, seq)
			}
		})
	}
	elapsed, used, cerr := stopClock(o, cpu, start)
	res.Received, res.Duplicates, _ = l.result(nil)
	res.Lost = res.Confirmed - min(res.Confirmed, l.total())
	res.Checked = true
	res.finish(l.total(), o, elapsed, &h, used)
	res.Note = "latency is that of producing; the rate is that of reading"
	return res, cerr
}
