package cluster

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/trivium-mq/trivium/integration/cluster/history"
	"github.com/trivium-mq/trivium/integration/harness"
)

func memberName(c *client) string { return fmt.Sprintf("%s#%d", c.name, c.epoch) }

// dialMQTT connects a client without a session that is kept. broken is closed when
// its connection has ended.
func dialMQTT(ctx context.Context, n *harness.Node, id string, set func(*paho.ClientConfig)) (c *paho.Client, broken <-chan struct{}, err error) {
	conn, err := net.DialTimeout("tcp", n.MQTT, 3*time.Second)
	if err != nil {
		return nil, nil, err
	}
	gone, once := make(chan struct{}), sync.Once{}
	end := func() { once.Do(func() { close(gone) }) }
	config := paho.ClientConfig{
		ClientID: id, Conn: conn, PacketTimeout: 5 * time.Second,
		OnClientError: func(error) { end() }, OnServerDisconnect: func(*paho.Disconnect) { end() },
	}
	if set != nil {
		set(&config)
	}
	c = paho.NewClient(config)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	window := uint16(20)
	answer, err := c.Connect(ctx, &paho.Connect{
		ClientID: id, CleanStart: true, KeepAlive: 3, Properties: &paho.ConnectProperties{ReceiveMaximum: &window},
		UsernameFlag: true, Username: harness.ClusterUser, PasswordFlag: true, Password: []byte(harness.ClusterPassword),
	})
	if err == nil && answer.ReasonCode != 0 {
		err = fmt.Errorf("CONNACK 0x%02x", answer.ReasonCode)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return c, gone, nil
}

// leave ends a connection without waiting for anybody.
func leave(c *paho.Client) { _ = c.Disconnect(&paho.Disconnect{}) }

// publishMQTT publishes with QoS 1, one after the other, to the topic of the queue.
func (l *load) publishMQTT(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		c.epoch++
		m, broken, err := dialMQTT(ctx, c.node(), memberName(c), nil)
		if err != nil {
			pause(ctx, retry)
			continue
		}
		for n := 100 + c.rng.IntN(1000); n > 0 && ctx.Err() == nil; n-- {
			payload := c.payload()
			if len(c.pending) > 0 {
				payload, c.pending = c.pending[0], c.pending[1:]
			}
			outcome := l.work.Publish(payload, c.name, c.epoch, -n)
			try, cancel := context.WithTimeout(ctx, 10*time.Second)
			answer, err := m.Publish(try, &paho.Publish{Topic: "work", QoS: 1, Payload: []byte(payload)})
			cancel()
			switch {
			case err == nil && answer.ReasonCode < 0x80:
				outcome(history.OK)
				c.done.Add(1)
			case err == nil && answer.ReasonCode == 0x97: // quota: certainly not stored
				outcome(history.Refused)
				c.pending = append(c.pending, payload)
			default:
				outcome(history.Unknown)
				c.pending = append(c.pending, payload)
			}
			if err != nil || isClosed(broken) {
				break
			}
			pause(ctx, pace)
		}
		leave(m)
		if len(c.pending) > 0 {
			pause(ctx, retry)
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// consumerMQTT is a member of a share group with QoS 1.
func (l *load) consumerMQTT(topic *history.Topic, group, filter string) func(context.Context, *client) {
	return func(ctx context.Context, c *client) {
		for ctx.Err() == nil {
			c.epoch++
			if err := l.subscribeOn(ctx, c, topic, group, filter); err != nil {
				pause(ctx, retry)
			}
		}
	}
}

func (l *load) subscribeOn(ctx context.Context, c *client, topic *history.Topic, group, filter string) error {
	member := memberName(c)
	var mu sync.Mutex
	var held []*history.Delivery
	receive := func(p paho.PublishReceived) (bool, error) {
		h := topic.Deliver(string(p.Packet.Payload), group, member, true) // MQTT marks nothing for another client
		mu.Lock()
		held = append(held, h)
		mu.Unlock()
		h.Settle()
		if err := p.Client.Ack(p.Packet); err == nil {
			c.done.Add(1)
		}
		return true, nil
	}
	m, broken, err := dialMQTT(ctx, c.node(), member, func(config *paho.ClientConfig) {
		config.EnableManualAcknowledgment = true
		config.OnPublishReceived = []func(paho.PublishReceived) (bool, error){receive}
	})
	if err != nil {
		return err
	}
	defer func() {
		leave(m)
		mu.Lock()
		defer mu.Unlock()
		for _, d := range held {
			d.End()
		}
	}()
	try, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := m.Subscribe(try, &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: 1}}}); err != nil {
		return err
	}
	long := time.NewTimer(c.lifetime())
	defer long.Stop()
	select {
	case <-ctx.Done():
	case <-broken:
	case <-long.C:
	}
	return nil
}
