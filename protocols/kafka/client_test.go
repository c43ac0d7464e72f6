package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	saslplain "github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/trivium-mq/trivium/kernel/broker"
)

// These tests talk through franz-go to handlers on a kernel in memory.
// integration/kafka has their like on the real one.

func kgoClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addr), kgo.FetchMaxWait(time.Second), kgo.MetadataMinAge(10 * time.Millisecond), kgo.AllowAutoTopicCreation(),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestClientCodecs(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	ctx := testContext(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			cl := kgoClient(t, addr, kgo.ProducerBatchCompression(codec), kgo.ConsumeTopics(name))
			for i := range 10 {
				r := &kgo.Record{Topic: name, Value: []byte(strings.Repeat(fmt.Sprint(i), 100))}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if r.Offset != int64(i) {
					t.Errorf("offset %d, want %d", r.Offset, i)
				}
			}
			for got := 0; got < 10; {
				fetches := cl.PollFetches(ctx)
				if err := fetches.Err(); err != nil {
					t.Fatal(err)
				}
				fetches.EachRecord(func(r *kgo.Record) {
					if r.Offset != int64(got) || string(r.Value) != strings.Repeat(fmt.Sprint(got), 100) {
						t.Errorf("record %d: offset %d, %q", got, r.Offset, r.Value)
					}
					got++
				})
			}
		})
	}
}

func TestClientGroup(t *testing.T) {
	n := newFake()
	addr, _ := start(t, n, nil)
	ctx := testContext(t)
	admin := kadm.NewClient(kgoClient(t, addr))
	if _, err := admin.CreateTopics(ctx, 6, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	member := func(opts ...kgo.Opt) *kgo.Client {
		return kgoClient(t, addr, append(opts, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(50*time.Millisecond), kgo.SessionTimeout(6*time.Second))...)
	}
	var seen atomic.Int64
	consume := func(ctx context.Context, cl *kgo.Client) {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			seen.Add(int64(fetches.NumRecords()))
		}
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	a := member()
	go consume(running, a)
	b := member()
	go consume(running, b)
	until(ctx, t, "two members share six partitions", func() bool {
		gs, err := admin.DescribeGroups(ctx, "g")
		if err != nil {
			return false
		}
		g := gs["g"]
		return g.State == "Stable" && len(g.Members) == 2 && len(g.AssignedPartitions()["t"]) == 6
	})
	producer := kgoClient(t, addr, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	for i := range 60 {
		if err := producer.ProduceSync(ctx, &kgo.Record{Topic: "t", Value: []byte(fmt.Sprint(i))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	until(ctx, t, "all records are seen", func() bool { return seen.Load() >= 60 })
	for _, cl := range []*kgo.Client{a, b} {
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			t.Errorf("commit: %v", err)
		}
	}
	lag, err := admin.Lag(ctx, "g")
	if err != nil || lag["g"].Lag.Total() != 0 {
		t.Errorf("lag %d, error %v", lag["g"].Lag.Total(), err)
	}
	if _, err := admin.DeleteGroup(ctx, "g"); !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("delete a group with members: %v", err)
	}
	b.Close()
	until(ctx, t, "the other takes over", func() bool {
		gs, _ := admin.DescribeGroups(ctx, "g")
		g := gs["g"]
		return g.State == "Stable" && len(g.Members) == 1 && len(g.AssignedPartitions()["t"]) == 6
	})
	stop()
	a.Close()
	until(ctx, t, "the group is empty", func() bool {
		gs, _ := admin.ListGroups(ctx)
		return gs["g"].State == "Empty"
	})
	if _, err := admin.DeleteGroup(ctx, "g"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if gs, _ := admin.ListGroups(ctx); len(gs) != 0 {
		t.Errorf("groups left: %v", gs)
	}
}

// until waits for a condition that the server reaches by itself; each try is a
// request, which paces it.
func until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func TestClientAdmin(t *testing.T) {
	// What the client asks for in passing must not make the topic anew.
	addr, _ := start(t, newFake(), func(cfg *Config) { cfg.Settings = &broker.Settings{AutoCreatePartitions: 1} })
	ctx := testContext(t)
	cl := kgoClient(t, addr)
	admin := kadm.NewClient(cl)
	day := "86400000"
	if r, err := admin.CreateTopic(ctx, 2, -1, map[string]*string{"retention.ms": &day}, "a_b"); err != nil || r.ID == (kadm.TopicID{}) {
		t.Fatalf("create: %+v, %v", r, err)
	}
	configs, err := admin.DescribeTopicConfigs(ctx, "a_b")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range configs[0].Configs {
		if c.Key == "retention.ms" && (*c.Value != day || c.Source != kmsg.ConfigSourceDynamicTopicConfig) {
			t.Errorf("retention.ms = %s from %v", *c.Value, c.Source)
		}
	}
	if _, err := admin.ValidateCreateTopics(ctx, 1, 1, nil, "ghost"); err != nil {
		t.Errorf("validate: %v", err)
	}
	topics, err := admin.ListTopics(ctx)
	if err != nil || len(topics) != 1 || len(topics["a_b"].Partitions) != 2 {
		t.Errorf("topics %v, error %v", topics, err)
	}
	meta, err := admin.BrokerMetadata(ctx)
	if err != nil || meta.Cluster != "test-cluster" || meta.Controller != 3 {
		t.Errorf("cluster %+v, error %v", meta, err)
	}
	if _, err := admin.DeleteTopic(ctx, "a_b"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := admin.DeleteTopic(ctx, "a_b"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("delete twice: %v", err)
	}
	commit := kadm.Offsets{}
	commit.AddOffset("a_b", 0, 5, -1)
	if rs, err := admin.CommitOffsets(ctx, "reader", commit); err != nil || !errors.Is(rs["a_b"][0].Err, kerr.UnknownTopicID) {
		t.Errorf("commit for a missing topic: %+v, %v", rs, err)
	}
}

func TestClientSASL(t *testing.T) {
	n := newFake()
	n.closed = true
	addr, _ := start(t, n, nil)
	ctx := testContext(t)
	good := kgoClient(t, addr, kgo.SASL(saslplain.Auth{User: "guest", Pass: "guest"}.AsMechanism()))
	if err := good.Ping(ctx); err != nil {
		t.Errorf("with a password: %v", err)
	}
	bad := kgoClient(t, addr, kgo.SASL(saslplain.Auth{User: "guest", Pass: "wrong"}.AsMechanism()), kgo.RetryTimeout(time.Millisecond))
	if err := bad.Ping(ctx); err == nil {
		t.Error("a wrong password was accepted")
	}
}

// Clients end at once, with a reason, where they ask for what is not served.
func TestClientTransactionsAreRefused(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	cl := kgoClient(t, addr, kgo.TransactionalID("tx"))
	if err := cl.BeginTransaction(); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("begin: %v", err)
	}
}

func TestUnservedCoordinatorsAreRefusedWithText(t *testing.T) {
	addr, _ := start(t, newFake(), nil)
	for kind, want := range map[int8]struct {
		code *kerr.Error
		text string
	}{
		1: {kerr.TransactionalIDAuthorizationFailed, "transactions are not supported"},
		2: {kerr.InvalidRequest, "share groups are not supported"},
		9: {kerr.InvalidRequest, "unknown type"},
	} {
		for v := int16(1); v <= 6; v++ {
			p := dial(t, addr)
			req := kmsg.NewFindCoordinatorRequest()
			req.Version, req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = v, kind, "k", []string{"k"}
			resp := ask[*kmsg.FindCoordinatorResponse](p, &req)
			code, text, node := resp.ErrorCode, resp.ErrorMessage, resp.NodeID
			if v >= 4 {
				one := resp.Coordinators[0]
				code, text, node = one.ErrorCode, one.ErrorMessage, one.NodeID
			}
			if code != want.code.Code || text == nil || !strings.Contains(*text, want.text) || node != -1 {
				t.Errorf("type %d, version %d: code %d, text %v, node %d", kind, v, code, text, node)
			}
			_ = p.nc.Close()
		}
	}
	p := dial(t, addr)
	req := kmsg.NewInitProducerIDRequest()
	id := "tx"
	req.TransactionalID = &id
	if resp := ask[*kmsg.InitProducerIDResponse](p, &req); resp.ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("producer id: code %d", resp.ErrorCode)
	}
}
