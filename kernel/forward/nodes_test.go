package forward

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

func freePort(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// nodes opens a node that serves, and another one of its cluster.
func nodes(t testing.TB, change ...func(*broker.Config)) (b *broker.Broker, first, second *broker.Node) {
	t.Helper()
	at := freePort(t)
	openNode := func(id, listen string, join ...string) *broker.Node {
		cfg := broker.Config{DataDir: t.TempDir(), NodeID: id, Logger: zerolog.Nop(), Cluster: broker.Cluster{Listen: listen, Join: join, Heartbeat: 4 * time.Second, Fronts: map[string]string{"kafka": "127.0.0.1:1"}}}
		for _, fn := range change {
			fn(&cfg)
		}
		n, err := broker.OpenNode(soon(t), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first = openNode("1", at)
	b, err := first.Serve(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	second = openNode("2", freePort(t), at)
	eventually(t, "the second node follows", func() bool { return second.Leader() == first.ID() && len(first.Members()) == 2 })
	server := NewServer(func() *broker.Broker { return b }, zerolog.New(zerolog.NewTestWriter(t)))
	first.OnClients(server)
	t.Cleanup(func() {
		now, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Close(now); err != nil {
			t.Error(err)
		}
		server.Close()
		for _, n := range []*broker.Node{second, first} {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return b, first, second
}

// across is a client of the second node.
func across(t testing.TB, first, second *broker.Node) *client {
	t.Helper()
	c := &client{t: t, ended: make(chan error, 1)}
	h := NewHost(second, first.ID())
	id, err := h.Authenticate(soon(t), "", "guest", "guest", loopback)
	if err != nil {
		t.Fatal(err)
	}
	c.Link, err = h.Connect(id, kernel.ConnectionInfo{Protocol: "test"}, func(reason error) { c.ended <- reason })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// TestAcrossNodes: clients of one node are served by another one, each with messages of all
// sizes; when that stops they are told, and all outcomes are known.
func TestAcrossNodes(t *testing.T) {
	b, first, second := nodes(t, largeRecords)
	var work sync.WaitGroup
	var clients []*client
	for i := range 8 {
		clients = append(clients, across(t, first, second))
		work.Go(func() { exchange(t, clients[i], fmt.Sprint("q", i), i) })
	}
	work.Wait()
	now, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	work.Go(func() {
		if err := b.Close(now); err != nil {
			t.Error(err)
		}
	})
	for _, c := range clients {
		work.Go(func() {
			wantCode(t, <-c.ended, kernel.CodeUnavailable)
			c.Close()
		})
	}
	work.Wait()
}

// exchange sends and receives messages through a queue.
func exchange(t *testing.T, c *client, queue string, seed int) {
	c.declare(queue)
	in := newInbox()
	m := c.join(queue, kernel.MemberOptions{}, nil, in)
	rnd := rand.New(rand.NewPCG(1, uint64(seed)))
	source := rand.NewChaCha8([32]byte{byte(seed)})
	var sums [][32]byte
	p := publishing(t, c)
	for i := range 200 {
		size := rnd.IntN(2000)
		if i%50 == 0 {
			size = rnd.IntN(1 << 20)
		}
		if i == 100 && seed == 0 {
			size = 8 << 20
		}
		value := make([]byte, size)
		source.Read(value)
		sums = append(sums, sha256.Sum256(value))
		p.to("", queue, string(value))
	}
	p.settle()
	for i := range sums {
		m.Credit(1)
		in.until(t, func() bool { return len(in.got) > i })
		in.mu.Lock()
		d := in.got[i]
		in.mu.Unlock()
		if sha256.Sum256(d.Record.Value) != sums[i] || d.Offset != int64(i) {
			t.Errorf("%s: message %d is another one", queue, i)
		}
		m.Settle(kernel.Accept, d.Partition, d.Offset, d.Offset)
	}
	m.Leave()
	if info, err := c.Queue(queue); err != nil || info.Ready != 0 || info.Held != 0 {
		t.Errorf("%+v %v", info, err)
	}
}

// TestNodeDies: a node that goes without a word leaves unknown outcomes, told once.
func TestNodeDies(t *testing.T) {
	_, first, second := nodes(t)
	c := across(t, first, second)
	c.declare("q")
	p := publishing(t, c)
	var work sync.WaitGroup
	accepted := 0
	for i := uint64(1); ; i++ {
		if i == 1000 {
			work.Go(func() { _ = first.Close() })
		}
		if _, err := p.p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, i); err != nil {
			wantCode(t, err, kernel.CodeUnavailable)
			break
		}
		accepted++
	}
	if err := <-c.ended; kernel.CodeOf(err) != kernel.CodeUnknown && kernel.CodeOf(err) != kernel.CodeUnavailable && kernel.CodeOf(err) != kernel.CodeInternal {
		t.Error(err)
	}
	c.Close()
	p.done.wait(t, accepted)
	work.Wait()
}

// TestLogsAcrossNodes: a client of one node writes and reads logs that another one serves,
// and both coordinate groups.
func TestLogsAcrossNodes(t *testing.T) {
	b, first, second := nodes(t)
	c := across(t, first, second)
	kt := c.logTopic("log", 1)
	done := newStored()
	p := c.Publisher(done)
	source := rand.NewChaCha8([32]byte{1})
	var sums [][32]byte
	for i := range uint64(60) {
		value := make([]byte, 200<<10)
		source.Read(value)
		sums = append(sums, sha256.Sum256(value))
		if err := p.ToPartition(kt, 0, batchOf(string(value)), i); err != nil {
			t.Fatal(err)
		}
	}
	for i, err := range done.wait(t, len(sums)) {
		if err != nil || done.offsets[i] != int64(i) {
			t.Errorf("%d: at %d, %v", i, done.offsets[i], err)
		}
	}
	for next := int64(0); next < int64(len(sums)); {
		q := reads(kt, patience, 0)
		q.MaxBytes, q.Parts[0].Offset = 1<<20, next
		if err := c.ReadLogs(soon(t), q); err != nil || q.Parts[0].Err != nil || q.Parts[0].Offset <= next || len(q.Data) > 1<<20 {
			t.Fatalf("%+v, %d bytes, %v", q.Parts, len(q.Data), err)
		}
		for i, v := range values(t, q, 0) {
			if at := next + int64(i); sha256.Sum256([]byte(v)) != sums[at] {
				t.Errorf("record %d is another one", at)
			}
		}
		next = q.Parts[0].Offset
	}
	eventually(t, "both coordinate", func() bool {
		list, err := NewHost(second, first.ID()).Coordinators(soon(t), "kafka")
		own, wrong := b.Coordinators(soon(t), "kafka")
		return err == nil && wrong == nil && len(list.Nodes) == 2 && reflect.DeepEqual(list, own)
	})
}
