package faults

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/integration/harness"
	amqpwire "github.com/trivium-mq/trivium/protocols/amqp/wire"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// TestRow28HalfOpen: a peer that has gone without a word is noticed after two missed
// heartbeats (AMQP) or one and a half keep alives (MQTT); what it held goes to
// others, and its will is published. The sockets stay open and silent.
func TestRow28HalfOpen(t *testing.T) {
	s := newStand(t, 32<<20)
	_, ch := s.DialAMQP(t)
	must(t, ch.Confirm(false))
	harness.Declare(t, ch, "held")
	for i := range 10 {
		harness.Confirmed(t, ch, "", "held", amqp.Publishing{Body: []byte(strconv.Itoa(i))})
	}
	watch := s.connected(wire.ConnectRequest{Version: wire.V5, ClientID: "watch", SessionExpiry: 60})
	watch.subscribe(wire.Filter{Name: "wills", QoS: 1})

	began := time.Now()
	gone := s.rawOpen(1)
	gone.send(1, &amqpwire.BasicConsume{Queue: "held"})
	want[amqpwire.BasicConsumeOk](gone)
	harness.Wait(t, harness.Patience, "all to be held", func() bool { return s.count("held") == 0 })
	req := fresh(wire.V5)
	req.KeepAlive = 1
	req.Will = &wire.Will{Topic: "wills", Payload: []byte("gone"), QoS: 1}
	silent := s.connected(req)

	watch.message("gone")
	if took := time.Since(began); took < 1400*time.Millisecond || took > 8*time.Second {
		t.Errorf("the will came after %v", took)
	}
	silent.ended(wire.KeepAliveTimeout)
	deliveries, err := ch.Consume("held", "", false, false, false, false, nil)
	must(t, err)
	for i := range 10 {
		d := harness.Receive(t, deliveries)
		if string(d.Body) != strconv.Itoa(i) || !d.Redelivered {
			t.Fatalf("%q, redelivered %v; want %d", d.Body, d.Redelivered, i)
		}
		must(t, d.Ack(false))
	}
	if took := time.Since(began); took < 1500*time.Millisecond || took > 10*time.Second {
		t.Errorf("the messages came back after %v", took)
	}
	gone.gone()
}

// dropped is how many messages to subscribers without a session were dropped.
func (s *stand) dropped() float64 {
	s.t.Helper()
	resp, err := http.Get("http://" + s.HTTP + "/metrics")
	must(s.t, err)
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	must(s.t, err)
	for line := range strings.Lines(string(all)) {
		if rest, ok := strings.CutPrefix(line, `trivium_messages_dropped_total{protocol="mqtt"} `); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			must(s.t, err)
			return v
		}
	}
	return 0
}

// TestRow29SlowReaders: readers whose windows are shut cost a bounded amount each,
// whatever their prefetch, and lose nothing but QoS 0 messages, which are counted;
// those that read get all of a long log at the same time.
func TestRow29SlowReaders(t *testing.T) {
	const batches, each, size, readers = 100, 15, 64 << 10, 13 // 96 MB, each reader wants all of it
	const messages = batches * each
	s := newStand(t, 640<<20) // answers to fetches alone may take 256 MiB
	end := s.log("long")
	var groups []*raw
	for i := range readers { // a group each, without acknowledgement and without prefetch
		r := s.rawOpen(0)
		group := fmt.Sprintf("$share/g%d/long", i)
		r.send(1, &amqpwire.QueueDeclare{Queue: group, Durable: true})
		want[amqpwire.QueueDeclareOk](r)
		r.send(1, &amqpwire.BasicConsume{Queue: group, NoAck: true})
		want[amqpwire.BasicConsumeOk](r)
		groups = append(groups, r)
	}
	for range readers {
		d := s.connected(fresh(wire.V5))
		must(t, d.c.(*net.TCPConn).SetReadBuffer(4096))
		d.subscribe(wire.Filter{Name: "long", QoS: 0})
	}
	p := s.producer()
	for i := range batches {
		values := make([]string, each)
		for j := range values {
			values[j] = string(binary.BigEndian.AppendUint64(nil, uint64(i*each+j))) + strings.Repeat("x", size)
		}
		if got := p.produce("long", -1, batch(values...)); got.ErrorCode != 0 {
			t.Fatalf("error %d", got.ErrorCode)
		}
	}
	if n := end(); n != messages {
		t.Errorf("%d messages", n)
	}
	for range readers { // and fetches whose answers nobody reads
		c := s.producer()
		must(t, c.nc.(*net.TCPConn).SetReadBuffer(4096))
		for i := range 16 {
			c.send(fetch("long", int64(i*50)))
		}
	}
	if s.dropped() == 0 {
		t.Error("no QoS 0 message was dropped, and the buffers are not that large")
	}
	last := make(chan error)
	for _, r := range groups { // all at once, from the beginning
		go func() { last <- r.sequence(messages) }()
	}
	for range groups {
		must(t, <-last)
	}
}

// fetch is a request for 8 MiB from an offset.
func fetch(topic string, offset int64) []byte {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MinBytes, req.MaxBytes, req.MaxWaitMillis = 11, 1, 8<<20, 100
	qt := kmsg.NewFetchRequestTopic()
	qt.Topic = topic
	qp := kmsg.NewFetchRequestTopicPartition()
	qp.FetchOffset, qp.PartitionMaxBytes, qp.CurrentLeaderEpoch = offset, 8<<20, -1
	qt.Partitions = append(qt.Partitions, qp)
	req.Topics = append(req.Topics, qt)
	return kmsg.NewRequestFormatter().AppendRequest(nil, req, 1)
}

// sequence reads deliveries whose bodies begin with the numbers below n, in order.
func (r *raw) sequence(n int) error {
	at, inBody := 0, false
	for at < n {
		fr, err := r.frames.Next()
		if err != nil {
			return fmt.Errorf("after %d deliveries: %w", at, err)
		}
		switch {
		case fr.Type == amqpwire.FrameHeader:
			inBody = true
		case fr.Type == amqpwire.FrameBody && inBody:
			if got := binary.BigEndian.Uint64(fr.Payload); got != uint64(at) {
				return fmt.Errorf("delivery %d is number %d", at, got)
			}
			at, inBody = at+1, false
		}
	}
	return nil
}
