package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/storage/record"
)

// wire is a connection of a Kafka client to one node that is never opened again.
type wire struct {
	t    *testing.T
	node *harness.Node
	conn net.Conn
	last int32 // number of the latest request
}

// dialWire connects and logs in.
func dialWire(t *testing.T, n *harness.Node) *wire {
	t.Helper()
	w := &wire{t: t, node: n, conn: dialRaw(t, n.Kafka, "")}
	handshake := kmsg.NewPtrSASLHandshakeRequest()
	handshake.Mechanism = "PLAIN"
	if code := exchange[*kmsg.SASLHandshakeResponse](w, handshake, 1).ErrorCode; code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	login := kmsg.NewPtrSASLAuthenticateRequest()
	login.SASLAuthBytes = []byte("\x00" + harness.ClusterUser + "\x00" + harness.ClusterPassword)
	if code := exchange[*kmsg.SASLAuthenticateResponse](w, login, 2).ErrorCode; code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	return w
}

// exchange sends a request and waits for its answer.
func exchange[R kmsg.Response](w *wire, q kmsg.Request, version int16) R {
	w.t.Helper()
	q.SetVersion(version)
	w.last++
	harness.Must(w.t, w.conn.SetDeadline(time.Now().Add(harness.Patience)))
	_, err := w.conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, q, w.last))
	harness.Must(w.t, err)
	head := make([]byte, 8)
	if _, err := io.ReadFull(w.conn, head); err != nil {
		w.t.Fatalf("node %d: the connection has ended: %v", w.node.ID, err)
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-4)
	_, err = io.ReadFull(w.conn, body)
	harness.Must(w.t, err)
	if got := int32(binary.BigEndian.Uint32(head[4:])); got != w.last {
		w.t.Fatalf("node %d: answer %d to request %d", w.node.ID, got, w.last)
	}
	if q.IsFlexible() && q.Key() != int16(kmsg.ApiVersions) {
		body = body[1:] // no tags
	}
	answer := q.ResponseKind()
	answer.SetVersion(version)
	harness.Must(w.t, answer.ReadFrom(body))
	return answer.(R)
}

// look asks for versions, and for what there is: the topic has a leader and so many
// partitions.
func (w *wire) look(topic string, partitions int) {
	w.t.Helper()
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.ClientSoftwareName, versions.ClientSoftwareVersion = "wire", "1"
	if answer := exchange[*kmsg.ApiVersionsResponse](w, versions, 3); answer.ErrorCode != 0 || len(answer.ApiKeys) == 0 {
		w.t.Errorf("node %d: versions: %v", w.node.ID, kerr.ErrorForCode(answer.ErrorCode))
	}
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	answer := exchange[*kmsg.MetadataResponse](w, metadata, 12)
	if len(answer.Brokers) != 3 || len(answer.Topics) != 1 || answer.Topics[0].ErrorCode != 0 || len(answer.Topics[0].Partitions) != partitions {
		w.t.Errorf("node %d: %+v", w.node.ID, answer)
	}
}

// lasts has a client's connections fail the test when a node ends one. Those that the
// client ends do not count: kgo does, when it gives up a fetch.
func lasts(t *testing.T, name string) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("%s cannot connect: %v", name, err)
			}
			return nil, err
		}
		return &lastingConn{Conn: c, t: t, name: name}, nil
	})
}

// lastingConn is a connection that is not to be ended by the other side.
type lastingConn struct {
	net.Conn
	t      *testing.T
	name   string
	closed atomic.Bool
}

func (c *lastingConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (c *lastingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !c.closed.Load() {
		c.t.Errorf("%s has lost a connection to %v: %v", c.name, c.RemoteAddr(), err)
	}
	return n, err
}

// TestKafkaOverPlannedMoves: while nodes take over from each other as planned an
// idempotent producer and a group of readers go on, on the connections that they have:
// nothing is lost, doubled or out of order, and no rebalance begins.
func TestKafkaOverPlannedMoves(t *testing.T) {
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	s := newStream(k, "stream", 6)
	s.once = true
	const group = "readers"
	rounds := 3
	if os.Getenv("TRIVIUM_NEMESES") != "" {
		rounds = 6
	}
	patient := []kgo.Opt{kgo.RequestTimeoutOverhead(healed), kgo.ConnIdleTimeout(10 * time.Minute)}
	var wires []*wire
	for _, n := range k.c.Nodes {
		wires = append(wires, dialWire(t, n))
		wires[len(wires)-1].look(s.topic, 6)
	}
	ctx, stop := context.WithCancel(k.ctx)
	defer stop()
	reading, end := context.WithCancel(k.ctx)
	defer end()
	var writing, reads sync.WaitGroup
	var members []*kgo.Client
	for i := range 3 {
		m := s.member(group, append(patient, lasts(t, fmt.Sprint("reader ", i)))...)
		members = append(members, m)
		reads.Go(func() { s.read(reading, m) })
	}
	s.shared(group, 3)
	producer := k.client(k.c.Nodes, append(patient, lasts(t, "the producer"), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))...)
	writing.Go(func() { s.write(ctx, producer) })
	s.moves()
	begun := generations(members)
	for round := range rounds {
		k.move(group, round)
		s.moves()
		for _, w := range wires {
			w.look(s.topic, 6)
		}
	}
	stop()
	writing.Wait()
	s.complete()
	if now := generations(members); now != begun {
		t.Errorf("the group is at %s, was at %s", now, begun)
	}
	end()
	reads.Wait()
}

// TestForeignKafkaOverPlannedMoves: as TestKafkaOverPlannedMoves, with clients that are made
// of librdkafka.
func TestForeignKafkaOverPlannedMoves(t *testing.T) {
	full(t)
	harness.NeedPython(t, "confluent_kafka")
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	const topic, partitions, seconds = "foreign", 6, 10
	k.topic(k.c.Nodes[0], topic, partitions)
	moving, over := context.WithCancel(k.ctx)
	var moves sync.WaitGroup
	moves.Go(func() {
		for round := 0; moving.Err() == nil; round++ {
			k.move(topic, round)
			pause(moving, 500*time.Millisecond)
		}
	})
	out := harness.Client(t, 2*healed, harness.Python, "confluent_moves.py", k.c.Nodes[0].Kafka, harness.ClusterUser, harness.ClusterPassword, topic,
		strconv.Itoa(partitions), strconv.Itoa(seconds))
	over()
	moves.Wait()
	if !strings.HasPrefix(out, "ok ") {
		t.Errorf("confluent-kafka says %q", out)
	}
	t.Log(out)
}

// TestKafkaOverKills: while the node that serves is killed, again and again, an idempotent
// producer and a group of readers go on by way of the others: nothing is lost, and nothing
// is doubled or out of order in the log.
func TestKafkaOverKills(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3})
	k.goesOn(func(s *stream) {
		leader, err := k.c.Leader(healed)
		harness.Must(t, err)
		begin := time.Now()
		leader.Kill()
		s.moves()
		t.Logf("all goes on %v after node %d was killed", time.Since(begin).Round(time.Millisecond), leader.ID)
		harness.Must(t, leader.Run())
	})
}

// TestForeignProducersOverKills: idempotent producers that are made of librdkafka have
// batches under way when the node that serves is killed, or hangs: none of them gives up
// because of what was stored behind one that was not.
func TestForeignProducersOverKills(t *testing.T) {
	full(t)
	harness.NeedPython(t, "confluent_kafka")
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	var seeds []string
	for _, n := range c.Nodes {
		seeds = append(seeds, n.Kafka)
	}
	k := &kafkaNodes{t: t, c: c, ctx: t.Context()}
	k.cl = k.client(c.Nodes)
	topics := []string{"a", "b", "c", "d"}
	for _, topic := range topics {
		k.topic(c.Nodes[0], topic, 9)
	}
	producing, over := context.WithCancel(k.ctx)
	var faults sync.WaitGroup
	faults.Go(func() {
		for round := 0; ; round++ {
			if pause(producing, 3*time.Second); producing.Err() != nil {
				return
			}
			leader, err := c.Leader(healed)
			if err != nil {
				continue // it changes
			}
			if round%3 == 2 {
				harness.Must(t, leader.Pause())
				pause(producing, 4*time.Second)
				harness.Must(t, leader.Continue())
				continue
			}
			leader.Kill()
			pause(producing, 2*time.Second)
			harness.Must(t, leader.Run())
		}
	})
	out := harness.Client(t, 4*healed, slices.Concat([]string{harness.Python, "confluent_kills.py", strings.Join(seeds, ","),
		harness.ClusterUser, harness.ClusterPassword}, topics, []string{"9", "25"})...)
	over()
	faults.Wait()
	if !strings.HasPrefix(out, "ok ") {
		t.Errorf("confluent-kafka says %q", out)
	}
	t.Log(out)
}

// TestKafkaOverCuts: as TestKafkaOverKills, with a node that clients reach and other nodes
// do not: the one that serves, and one that does not.
func TestKafkaOverCuts(t *testing.T) {
	full(t)
	k := startKafkaNodes(t, harness.ClusterConfig{Nodes: 3, Network: true})
	leads := false
	k.goesOn(func(*stream) {
		leader, err := k.c.Leader(healed)
		harness.Must(t, err)
		lonely := leader
		if leads = !leads; !leads {
			lonely = k.others(leader)[0]
		}
		for _, n := range k.others(lonely) {
			k.c.Net.Both(lonely.ID, n.ID, harness.Link{Cut: true})
		}
		begin := time.Now()
		for _, n := range k.others(lonely) {
			harness.Wait(t, healed, "the others write", func() bool {
				p := k.produceAt(n, "probe", k.probe, 0, record.Record{Value: []byte("x")})
				return p.ErrorCode == 0
			})
		}
		t.Logf("the others write %v after node %d, serving: %v, was cut off", time.Since(begin).Round(time.Millisecond), lonely.ID, leads)
		pause(k.ctx, 5*time.Second)
		k.c.Net.Heal()
	})
}

// goesOn has a producer and a group of readers work while something happens, several times.
func (k *kafkaNodes) goesOn(happens func(*stream)) {
	k.t.Helper()
	s := newStream(k, "stream", 6)
	k.probe = k.topic(k.c.Nodes[0], "probe", 1)
	ctx, stop := context.WithCancel(k.ctx)
	defer stop()
	reading, end := context.WithCancel(k.ctx)
	defer end()
	var writing, reads sync.WaitGroup
	for range 3 {
		m := s.member("readers")
		reads.Go(func() { s.read(reading, m) })
	}
	s.shared("readers", 3)
	producer := k.client(k.c.Nodes, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(time.Millisecond))
	writing.Go(func() { s.write(ctx, producer) })
	s.moves()
	for range 3 {
		s.keeps("readers")
		happens(s)
		begin := time.Now()
		harness.Must(k.t, k.c.Whole(healed))
		s.moves()
		k.t.Logf("all is well %v later", time.Since(begin).Round(time.Millisecond))
	}
	stop()
	writing.Wait()
	s.complete()
	end()
	reads.Wait()
}

// move has another node serve: the present one is drained for it if that leaves it to
// others to coordinate the group, every other time.
func (k *kafkaNodes) move(group string, round int) {
	k.t.Helper()
	last, err := k.c.Leader(healed)
	harness.Must(k.t, err)
	begin, drained := time.Now(), round%2 == 1 && k.coordinator(group) != last
	if drained {
		harness.Must(k.t, last.Drain())
	} else {
		harness.Must(k.t, k.c.Nodes[last.ID%len(k.c.Nodes)].Lead())
	}
	next, err := k.c.NextLeader(last, healed)
	harness.Must(k.t, err)
	k.t.Logf("from node %d to %d after %v, drained: %v", last.ID, next.ID, time.Since(begin).Round(time.Millisecond), drained)
	if drained {
		harness.Must(k.t, last.Undrain())
	}
	harness.Must(k.t, k.c.Whole(healed))
}

// generations are who the members are, and in which generation.
func generations(members []*kgo.Client) (out string) {
	for _, m := range members {
		id, generation := m.GroupMetadata()
		out += fmt.Sprintf("%s: %d ", id, generation)
	}
	return out
}
