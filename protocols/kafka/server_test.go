package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/protocols/kafka/group"
	"github.com/trivium-mq/trivium/protocols/listener"
	"github.com/trivium-mq/trivium/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves a node on loopback for the duration of the test.
func start(t testing.TB, n node, change func(*Config)) (addr string, s *Server) {
	t.Helper()
	cfg := Config{NodeID: 3, ClusterID: "test-cluster", Log: zerolog.Nop(), Groups: group.Limits{InitialDelay: time.Millisecond}}
	if change != nil {
		change(&cfg)
	}
	s, err := newServer(n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := listener.Listen("127.0.0.1:0", listener.Options{})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String(), s
}

// peer is a raw client connection.
type peer struct {
	t   testing.TB
	nc  net.Conn
	num int32
}

func dial(t testing.TB, addr string) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(45 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, nc: nc}
}

func (p *peer) send(req kmsg.Request) (correlation int32) {
	p.t.Helper()
	p.num++
	p.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("tester")).AppendRequest(nil, req, p.num))
	return p.num
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.nc.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

// frame reads one answer.
func (p *peer) frame() []byte {
	p.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(p.nc, size[:]); err != nil {
		p.t.Fatalf("answer: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(p.nc, b); err != nil {
		p.t.Fatalf("answer: %v", err)
	}
	return b
}

// receive reads the answer to the request with a correlation id.
func (p *peer) receive(correlation int32, resp kmsg.Response) {
	p.t.Helper()
	b := kbin.Reader{Src: p.frame()}
	if got := b.Int32(); got != correlation {
		p.t.Fatalf("answer to request %d, want %d", got, correlation)
	}
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		kmsg.SkipTags(&b)
	}
	if err := resp.ReadFrom(b.Src); err != nil {
		p.t.Fatalf("answer to %s version %d: %v", kmsg.NameForKey(resp.Key()), resp.GetVersion(), err)
	}
}

// ask sends a request and returns its answer.
func ask[R kmsg.Response](p *peer, req kmsg.Request) R {
	p.t.Helper()
	resp := req.ResponseKind()
	p.receive(p.send(req), resp)
	return resp.(R)
}

// wantClosed checks that the server closes the connection without a word.
func (p *peer) wantClosed() {
	p.t.Helper()
	n, err := p.nc.Read(make([]byte, 1))
	if n != 0 || err == nil || errors.Is(err, context.DeadlineExceeded) {
		p.t.Fatalf("read %d bytes, error %v; want a closed connection", n, err)
	}
	if nerr, ok := errors.AsType[net.Error](err); ok && nerr.Timeout() {
		p.t.Fatal("the connection stays open")
	}
}

func (p *peer) createTopic(name string, partitions int32) [16]byte {
	p.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	qt := kmsg.NewCreateTopicsRequestTopic()
	qt.Topic, qt.NumPartitions, qt.ReplicationFactor = name, partitions, 1
	req.Topics = append(req.Topics, qt)
	resp := ask[*kmsg.CreateTopicsResponse](p, req)
	if resp.Topics[0].ErrorCode != 0 {
		p.t.Fatalf("create %s: %v", name, kerr.ErrorForCode(resp.Topics[0].ErrorCode))
	}
	return resp.Topics[0].TopicID
}

// makeBatch encodes records with the given values.
func makeBatch(values ...string) []byte {
	var b record.Builder
	b.Reset()
	for i, v := range values {
		b.Append(&record.Record{Value: []byte(v), Timestamp: int64(1000 + i)})
	}
	return b.Finish(nil)
}

func produceRequest(version int16, topic string, id [16]byte, acks int16, batch []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = version, acks
	qt := kmsg.NewProduceRequestTopic()
	qt.Topic, qt.TopicID = topic, id
	qp := kmsg.NewProduceRequestTopicPartition()
	qp.Records = batch
	qt.Partitions = append(qt.Partitions, qp)
	req.Topics = append(req.Topics, qt)
	return req
}

func (p *peer) produce(topic string, batch []byte) kmsg.ProduceResponseTopicPartition {
	p.t.Helper()
	return ask[*kmsg.ProduceResponse](p, produceRequest(9, topic, [16]byte{}, -1, batch)).Topics[0].Partitions[0]
}

func fetchRequest(version int16, topic string, id [16]byte, offset int64, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis = version, 1, 1<<20, int32(wait.Milliseconds())
	qt := kmsg.NewFetchRequestTopic()
	qt.Topic, qt.TopicID = topic, id
	qp := kmsg.NewFetchRequestTopicPartition()
	qp.FetchOffset, qp.PartitionMaxBytes = offset, 1<<20
	qt.Partitions = append(qt.Partitions, qp)
	req.Topics = append(req.Topics, qt)
	return req
}
