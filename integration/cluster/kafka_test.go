package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/trivium-mq/trivium/integration/cluster/history"
	"github.com/trivium-mq/trivium/integration/harness"
)

func consume(topic string) []kgo.Opt { return []kgo.Opt{kgo.ConsumeTopics(topic)} }

// kafkaClient makes a client that finds the cluster by any of the nodes.
func kafkaClient(nodes []*harness.Node, opts ...kgo.Opt) (*kgo.Client, error) {
	var seeds []string
	for _, n := range nodes {
		seeds = append(seeds, n.Kafka)
	}
	return kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.SASL(plain.Auth{User: harness.ClusterUser, Pass: harness.ClusterPassword}.AsMechanism()),
		kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(5 * time.Second), kgo.FetchMaxWait(time.Second),
		kgo.RequestTimeoutOverhead(3 * time.Second), kgo.DialTimeout(3 * time.Second), kgo.RetryTimeout(20 * time.Second),
	}, opts...)...)
}

// produceKafka produces with acks=all as an idempotent producer, which goes on as
// the same one through all connections, until its sequence is lost.
func (l *load) produceKafka(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		c.epoch++
		producer, err := kafkaClient(l.nodes(), kgo.DefaultProduceTopic("events"), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.MaxBufferedRecords(4*window), kgo.ProducerLinger(2*time.Millisecond), kgo.RecordDeliveryTimeout(60*time.Second))
		if err != nil {
			l.t.Errorf("%s: %v", c.name, err)
			return
		}
		l.produceOn(ctx, c, producer)
		producer.Close()
	}
}

func (l *load) produceOn(ctx context.Context, c *client, producer *kgo.Client) {
	failed := make(chan error, 1)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for seq := 0; ctx.Err() == nil && len(failed) == 0; seq++ {
		<-tick.C
		payload := c.payload()
		outcome := l.events.Publish(payload, c.name, c.epoch, seq)
		producer.Produce(context.Background(), &kgo.Record{Value: []byte(payload)}, func(_ *kgo.Record, err error) {
			if err == nil {
				outcome(history.OK)
				c.done.Add(1)
				return
			}
			outcome(history.Unknown)
			if !errors.Is(err, kgo.ErrRecordTimeout) && !errors.Is(err, kgo.ErrClientClosed) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
				l.t.Logf("%s: %v", c.name, err)
			}
			select {
			case failed <- err:
			default:
			}
		})
	}
	flush, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := producer.Flush(flush); err != nil {
		l.t.Logf("%s: flush: %v", c.name, err)
	}
}
