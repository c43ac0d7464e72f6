package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/storage/record"
)

// leaderEpoch is that of the server in these tests.
const leaderEpoch = 3

func ofEpoch(cfg *Config) { cfg.Epoch = func() int32 { return leaderEpoch } }

func TestOffsetForLeaderEpoch(t *testing.T) {
	addr, _ := start(t, newFake(), ofEpoch)
	p := dial(t, addr)
	p.createTopic("t", 1)
	p.produce("t", makeBatch("a", "b"))
	for _, c := range []struct {
		current, epoch, wantEpoch int32
		end                       int64
		code                      int16
	}{
		{3, 3, 3, 2, 0}, {3, 1, 1, 2, 0}, {-1, 0, 0, 2, 0}, {3, 5, -1, -1, 0}, {4, 0, -1, -1, kerr.UnknownLeaderEpoch.Code},
		{2, 0, -1, -1, kerr.FencedLeaderEpoch.Code},
	} {
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.Version = 3
		qt := kmsg.NewOffsetForLeaderEpochRequestTopic()
		qt.Topic = "t"
		qp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		qp.CurrentLeaderEpoch, qp.LeaderEpoch = c.current, c.epoch
		qt.Partitions = append(qt.Partitions, qp)
		req.Topics = append(req.Topics, qt)
		got := ask[*kmsg.OffsetForLeaderEpochResponse](p, req).Topics[0].Partitions[0]
		if got.EndOffset != c.end || got.LeaderEpoch != c.wantEpoch || got.ErrorCode != c.code {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

// Whatever a producer has stamped on its batch, all answers name one epoch: a
// consumer that saw another would take the log for truncated (KIP-320).
func TestLeaderEpochsAgree(t *testing.T) {
	n := newFake()
	n.epoch = leaderEpoch
	addr, _ := start(t, n, ofEpoch)
	p := dial(t, addr)
	id := p.createTopic("t", 1)
	batch := makeBatch("a")
	record.Stamp(batch, 0, 7)
	p.produce("t", batch)

	name := "t"
	meta := kmsg.NewPtrMetadataRequest()
	meta.Version, meta.Topics = 9, []kmsg.MetadataRequestTopic{{Topic: &name}}
	if got := ask[*kmsg.MetadataResponse](p, meta).Topics[0].Partitions[0].LeaderEpoch; got != leaderEpoch {
		t.Errorf("metadata: epoch %d", got)
	}
	fetched := ask[*kmsg.FetchResponse](p, fetchRequest(13, "t", id, 0, time.Second)).Topics[0].Partitions[0]
	if got := record.LeaderEpoch(fetched.RecordBatches); got != leaderEpoch {
		t.Errorf("fetched batch: epoch %d", got)
	}
	list := kmsg.NewPtrListOffsetsRequest()
	list.Version = 7
	lt := kmsg.NewListOffsetsRequestTopic()
	lt.Topic = "t"
	lp := kmsg.NewListOffsetsRequestTopicPartition()
	lp.CurrentLeaderEpoch, lp.Timestamp = leaderEpoch, -1
	lt.Partitions = append(lt.Partitions, lp)
	list.Topics = append(list.Topics, lt)
	if got := ask[*kmsg.ListOffsetsResponse](p, list).Topics[0].Partitions[0]; got.LeaderEpoch != leaderEpoch || got.ErrorCode != 0 {
		t.Errorf("list offsets: %+v", got)
	}
}
