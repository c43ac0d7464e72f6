package main

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/amqp"
	"github.com/trivium-mq/trivium/protocols/kafka"
	"github.com/trivium-mq/trivium/protocols/mqtt"
)

// lastingServer is a protocol's server that lasts as long as the process: it stands on
// the node's door.
type lastingServer struct {
	frontEnd
	queues map[string]*queue // of its listeners, by front's name
	older  *queue            // of clients that nodes of earlier versions carry here
}

// openLasting makes those servers, by protocol.
func (n *node) openLasting() error {
	n.lasting = make(map[string]*lastingServer)
	logger := func(protocol string) zerolog.Logger { return n.log.With().Str("listener", protocol).Logger() }
	log, err := n.openKafka(logger("kafka"))
	if err != nil {
		return err
	}
	for protocol, server := range map[string]frontEnd{"amqp": n.openAMQP(logger("amqp")), "mqtt": n.openMQTT(logger("mqtt")), "kafka": log} {
		s := &lastingServer{frontEnd: server, queues: make(map[string]*queue), older: newQueue(n.address(protocol))}
		for _, f := range n.fronts {
			if f.Protocol == protocol {
				s.queues[f.Name] = newQueue(f.l.Addr())
			}
		}
		n.lasting[protocol] = s
	}
	return nil
}

func (n *node) openAMQP(log zerolog.Logger) frontEnd {
	c := n.config
	return amqp.NewServer(amqp.Config{
		Edge: n.door.Edge, Logger: log, Version: Version, HandshakeTimeout: c.Connections.HandshakeTimeout,
		Heartbeat: c.AMQP.Heartbeat, FrameMax: int(c.AMQP.FrameMax), ChannelMax: c.AMQP.ChannelMax,
		OutTotal: int(n.memory.AMQPOut), InTotal: int(n.memory.AMQPIn), BlockedBuffer: int(c.AMQP.BlockedBuffer),
	})
}

func (n *node) openMQTT(log zerolog.Logger) frontEnd {
	c := n.config
	return mqtt.NewServer(mqtt.Config{Edge: n.door.Edge, Logger: log, CertificateFirst: c.MQTT.CertificateFirst, Limits: mqtt.Limits{
		ConnectTimeout: c.Connections.HandshakeTimeout, MaximumPacketSize: int(c.MQTT.MaxPacket), ReceiveMaximum: c.MQTT.ReceiveMaximum,
		KeepAlive: uint16(c.MQTT.MaxKeepAlive / time.Second), OutTotal: int(n.memory.MQTTOut), InTotal: int(n.memory.MQTTIn),
	}})
}

func (n *node) openKafka(log zerolog.Logger) (frontEnd, error) {
	c := n.config
	return kafka.NewServer(n.door.Edge, kafka.Config{
		NodeID: int32(c.Node.ID), Node: n.replicas.ID(), ClusterID: n.replicas.ClusterID(), Log: log, MaxBatchBytes: int(c.Kafka.MaxBatch),
		LoginTimeout: c.Connections.HandshakeTimeout, Advertise: c.Kafka.Advertise, AdvertiseTLS: c.Kafka.TLSAdvertise,
		Brokers: n.brokers, Leader: n.servingID, Spread: c.Kafka.Leaders == "spread", Epoch: n.door.leadership, Settings: c.Settings(),
		RequestMemory: int64(n.memory.KafkaRequests), FetchMemory: int64(n.memory.KafkaFetches),
	})
}

// serveLasting has the servers take the connections of the node's listeners, and those
// that nodes of earlier versions carry here, until the node stops.
func (n *node) serveLasting() {
	for protocol, s := range n.lasting {
		serve := func(name string, q net.Listener) {
			n.wg.Go(func() {
				if err := s.Serve(q); err != nil {
					n.fail(fmt.Errorf("%s: %w", name, err))
				}
			})
		}
		serve(protocol, s.older)
		for name, q := range s.queues {
			serve(name, q)
		}
	}
}

// shutLasting has the clients of those servers go, until ctx ends.
func (n *node) shutLasting(ctx context.Context) {
	var going sync.WaitGroup
	for _, s := range n.lasting {
		// A client that does not finish in time is cut off; that is no failure.
		going.Go(func() { _ = s.Shutdown(ctx) })
	}
	going.Wait()
}
