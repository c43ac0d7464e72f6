package kafka

import (
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// TestBrokersOfACluster: clients are told of all nodes, the one that they are
// connected to with the address that they have used, and that the leader is the node
// that serves.
func TestBrokersOfACluster(t *testing.T) {
	_, s := start(t, newFake(), func(cfg *Config) {
		cfg.Brokers = func() []Broker {
			return []Broker{{5, "5-b", "10.0.0.5:9092", ""}, {3, "3", "10.0.0.3:9092", ""}, {4, "4-a", "", ""}}
		}
	})
	for _, test := range []struct {
		via, want string
	}{
		{"", "3@192.0.2.1:777 5@10.0.0.5:9092"}, {"5-b", "3@10.0.0.3:9092 5@10.0.0.5:9092"}, {"4-a", "3@10.0.0.3:9092 4@192.0.2.1:777 5@10.0.0.5:9092"},
	} {
		client, server := net.Pipe()
		open := atomic.Int64{}
		carrier := listener.Carrier{Open: &open}
		nc, err := carrier.Carry(server, listener.Peer{Remote: "192.0.2.9:1", Local: "192.0.2.1:777", Node: test.via})
		if err != nil {
			t.Fatal(err)
		}
		c := &conn{srv: s, net: nc}
		got := ""
		for i, b := range c.brokers() {
			if i > 0 {
				got += " "
			}
			got += fmt.Sprintf("%d@%s:%d", b.id, b.host, b.port)
		}
		if got != test.want {
			t.Errorf("via %q: %s, want %s", test.via, got, test.want)
		}
		_ = nc.Close()
		_ = client.Close()
	}
}

// TestReplicationFactorOfACluster: as many replicas as there are nodes may be asked for.
func TestReplicationFactorOfACluster(t *testing.T) {
	addr, _ := start(t, newFake(), func(cfg *Config) {
		cfg.Brokers = func() []Broker {
			return []Broker{{3, "3", "10.0.0.3:9092", ""}, {5, "5-b", "10.0.0.5:9092", ""}}
		}
	})
	p := dial(t, addr)
	for factor, ok := range map[int16]bool{-1: true, 1: true, 2: true, 3: false, 0: false} {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 5
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = fmt.Sprint("t", factor+1), 1, factor
		req.Topics = append(req.Topics, topic)
		got := ask[*kmsg.CreateTopicsResponse](p, req).Topics[0]
		if (got.ErrorCode == 0) != ok {
			t.Errorf("replication factor %d: error %d", factor, got.ErrorCode)
		}
	}
}
