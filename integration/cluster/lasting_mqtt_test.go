package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	mqtt311 "github.com/eclipse/paho.mqtt.golang"

	"github.com/trivium-mq/trivium/integration/harness"
)

// hearer is an MQTT client of one node that has a session and never connects again.
type hearer struct {
	t      *testing.T
	name   string
	node   *harness.Node
	doomed atomic.Bool // its node is killed
	left   atomic.Bool // it is about to go

	mu    sync.Mutex
	last  map[string]int          // by topic: the last number that has come
	seen  map[string]map[int]bool // all of them
	again int                     // that came with QoS 1 more than once
	loose bool                    // publishers have lost connections: see hear
}

func newHearer(t *testing.T, n *harness.Node, version string) *hearer {
	return &hearer{t: t, name: fmt.Sprintf("hearer-%s-%d", version, n.ID), node: n, last: map[string]int{}, seen: map[string]map[int]bool{}}
}

// hear notes a message: those of a publisher come in their order, with QoS 2 once. A
// publisher of version 3.1.1 that has lost its connection is let off: its library then
// publishes again what it has released, and what is new in between.
func (h *hearer) hear(topic string, payload []byte) {
	var n int
	if _, err := fmt.Sscan(string(payload), &n); err != nil {
		h.t.Errorf("%s: %q", h.name, payload)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen[topic] == nil {
		h.seen[topic] = map[int]bool{}
		h.last[topic] = -1
	}
	last, once := h.last[topic], strings.HasSuffix(topic, "/2")
	switch {
	case n == last+1, once && h.loose:
		h.last[topic] = n
	case n <= last && !once:
		h.again++
	default:
		h.t.Errorf("%s: %d of %s came after %d", h.name, n, topic, last)
	}
	h.seen[topic][n] = true
}

func (h *hearer) lost(reason any) {
	if !h.doomed.Load() && !h.left.Load() {
		h.t.Errorf("%s has lost its connection: %v", h.name, reason)
	}
}

// has waits until so many messages of a topic have come.
func (h *hearer) has(topic string, n int) {
	h.t.Helper()
	for until := time.Now().Add(healed); ; pause(context.Background(), 20*time.Millisecond) {
		h.mu.Lock()
		got := len(h.seen[topic])
		h.mu.Unlock()
		if got >= n {
			return
		}
		if time.Now().After(until) {
			h.t.Errorf("%s has %d of %d messages of %s", h.name, got, n, topic)
			return
		}
	}
}

// hearV5 is a hearer of version 5, with QoS 2.
func hearV5(t *testing.T, n *harness.Node) *hearer {
	t.Helper()
	h := newHearer(t, n, "v5")
	conn, err := net.Dial("tcp", n.MQTT)
	harness.Must(t, err)
	c := paho.NewClient(paho.ClientConfig{
		ClientID: h.name, Conn: conn, PacketTimeout: healed,
		OnClientError:      func(err error) { h.lost(err) },
		OnServerDisconnect: func(d *paho.Disconnect) { h.lost(fmt.Sprintf("0x%02x", d.ReasonCode)) },
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){func(p paho.PublishReceived) (bool, error) {
			h.hear(p.Packet.Topic, p.Packet.Payload)
			return true, nil
		}},
	})
	forever := uint32(3600)
	_, err = c.Connect(context.Background(), &paho.Connect{
		ClientID: h.name, CleanStart: true, KeepAlive: 10, Properties: &paho.ConnectProperties{SessionExpiryInterval: &forever},
		UsernameFlag: true, Username: harness.ClusterUser, PasswordFlag: true, Password: []byte(harness.ClusterPassword),
	})
	harness.Must(t, err)
	_, err = c.Subscribe(context.Background(), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "work/#", QoS: 2}}})
	harness.Must(t, err)
	t.Cleanup(func() { h.left.Store(true); leave(c) })
	return h
}

func options311(n *harness.Node, id string) *mqtt311.ClientOptions {
	return mqtt311.NewClientOptions().AddBroker("tcp://" + n.MQTT).SetClientID(id).SetCleanSession(false).
		SetUsername(harness.ClusterUser).SetPassword(harness.ClusterPassword).SetProtocolVersion(4).
		SetKeepAlive(10 * time.Second).SetPingTimeout(10 * time.Second).SetStore(mqtt311.NewOrderedMemoryStore())
}

// done waits for the end of what a client of version 3.1.1 does.
func done(t *testing.T, token mqtt311.Token) {
	t.Helper()
	if !token.WaitTimeout(healed) {
		t.Fatal("there is no answer")
	}
	harness.Must(t, token.Error())
}

// hear311 is a hearer of version 3.1.1, with QoS 2.
func hear311(t *testing.T, n *harness.Node) *hearer {
	t.Helper()
	h := newHearer(t, n, "v311")
	o := options311(n, h.name).SetAutoReconnect(false)
	o.SetConnectionLostHandler(func(_ mqtt311.Client, err error) { h.lost(err) })
	c := mqtt311.NewClient(o)
	done(t, c.Connect())
	done(t, c.Subscribe("work/#", 2, func(_ mqtt311.Client, m mqtt311.Message) { h.hear(m.Topic(), m.Payload()) }))
	t.Cleanup(func() { h.left.Store(true); c.Disconnect(100) })
	return h
}

// speaker publishes numbers to a topic of its own, each until it is confirmed.
type speaker struct {
	t      *testing.T
	node   *harness.Node
	topic  string
	mayEnd atomic.Bool // the node that serves is killed: what was under way has no outcome
	gone   atomic.Bool // its own node is
	count  atomic.Int64
}

// moves waits until more is confirmed.
func (s *speaker) moves() {
	s.t.Helper()
	for n, until := s.count.Load()+30, time.Now().Add(healed); s.count.Load() < n; pause(context.Background(), 10*time.Millisecond) {
		if time.Now().After(until) {
			s.t.Fatalf("%s: nothing is confirmed any more", s.topic)
		}
	}
}

// speak311 publishes with QoS 2, twenty at a time; the client repeats what has no outcome.
func (s *speaker) speak311(ctx context.Context) {
	o := options311(s.node, s.topic).SetMaxReconnectInterval(200 * time.Millisecond)
	o.SetConnectionLostHandler(func(_ mqtt311.Client, err error) {
		if !s.mayEnd.Load() {
			s.t.Errorf("%s has lost its connection: %v", s.topic, err)
		}
	})
	c := mqtt311.NewClient(o)
	done(s.t, c.Connect())
	defer c.Disconnect(100)
	window := make(chan struct{}, 20)
	var waiting sync.WaitGroup
	for n := 0; ctx.Err() == nil && !s.gone.Load(); n++ {
		select {
		case window <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		token := c.Publish(s.topic, 2, false, fmt.Sprint(n))
		waiting.Go(func() {
			for !token.WaitTimeout(100 * time.Millisecond) {
				if s.gone.Load() {
					break
				}
			}
			<-window
			switch err := token.Error(); {
			case s.gone.Load():
			case err != nil:
				s.t.Errorf("%s: %d: %v", s.topic, n, err)
			default:
				s.count.Add(1)
			}
		})
	}
	waiting.Wait()
}

// speakV5 publishes with QoS 1, one after the other, and repeats what is refused or has
// no outcome.
func (s *speaker) speakV5(ctx context.Context) {
	for n := 0; ctx.Err() == nil && !s.gone.Load(); {
		c, broken, err := dialMQTT(ctx, s.node, s.topic, nil)
		if err != nil {
			if !s.mayEnd.Load() {
				s.t.Errorf("%s: %v", s.topic, err)
			}
			pause(ctx, retry)
			continue
		}
		for ctx.Err() == nil && !isClosed(broken) {
			try, cancel := context.WithTimeout(context.Background(), healed)
			answer, err := c.Publish(try, &paho.Publish{Topic: s.topic, QoS: 1, Payload: []byte(fmt.Sprint(n))})
			cancel()
			if answer != nil && answer.ReasonCode >= 0x80 {
				pause(ctx, retry)
				continue // certainly not done
			}
			if err != nil {
				if !s.mayEnd.Load() {
					s.t.Errorf("%s: %d: %v", s.topic, n, err)
				}
				break
			}
			n++
			s.count.Add(1)
		}
		leave(c)
	}
}

// TestMQTTOutlastsTheLeader: MQTT clients of all nodes keep their connections when the
// node that serves is drained, or another one is asked to lead, with every publish
// confirmed. When it is killed, clients of the other nodes that have nothing under way
// keep theirs. Nothing that was confirmed is missing, all comes in the order of its
// publisher, and with QoS 2 once.
func TestMQTTOutlastsTheLeader(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var hearers []*hearer
	var speakers []*speaker
	var speaking sync.WaitGroup
	for _, n := range c.Nodes {
		hearers = append(hearers, hearV5(t, n), hear311(t, n))
	}
	for _, n := range c.Nodes {
		one, two := &speaker{t: t, node: n, topic: fmt.Sprintf("work/%d/1", n.ID)}, &speaker{t: t, node: n, topic: fmt.Sprintf("work/%d/2", n.ID)}
		speakers = append(speakers, one, two)
		speaking.Go(func() { one.speakV5(ctx) })
		speaking.Go(func() { two.speak311(ctx) })
	}
	all := func() {
		t.Helper()
		for _, s := range speakers {
			if !s.gone.Load() {
				s.moves()
			}
		}
	}
	all()
	for range 2 {
		leader, err := c.Leader(healed)
		harness.Must(t, err)
		harness.Must(t, leader.Drain())
		_, err = c.NextLeader(leader, healed)
		harness.Must(t, err)
		all()
		harness.Must(t, leader.Undrain())
		harness.Must(t, c.Whole(healed))
	}
	leader, err := c.Leader(healed)
	harness.Must(t, err)
	for _, n := range c.Nodes {
		if n != leader {
			harness.Must(t, n.Lead())
			break
		}
	}
	all()
	leader, err = c.Leader(healed)
	harness.Must(t, err)
	for _, s := range speakers {
		s.mayEnd.Store(true)
		s.gone.Store(s.node == leader)
	}
	for _, h := range hearers {
		h.doomed.Store(h.node == leader)
		h.mu.Lock()
		h.loose = true
		h.mu.Unlock()
	}
	leader.Kill()
	all()
	stop()
	speaking.Wait()
	for _, h := range hearers {
		if h.doomed.Load() {
			continue
		}
		for _, s := range speakers {
			h.has(s.topic, int(s.count.Load()))
		}
		t.Logf("%s: %d messages with QoS 1 came again", h.name, h.again)
	}
	for _, s := range speakers {
		t.Logf("%s: %d confirmed", s.topic, s.count.Load())
	}
}

// TestNoMajorityHoldsMQTT: when two of three nodes are gone MQTT clients of the third keep
// their connections; what they publish is refused after a while, and goes on when one is
// back.
func TestNoMajorityHoldsMQTT(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	last := c.Nodes[0]
	five, old := hearV5(t, last), hear311(t, last)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	p, broken, err := dialMQTT(ctx, last, "work/9/1", nil)
	harness.Must(t, err)
	defer leave(p)
	publish := func(n int) error {
		try, cancel := context.WithTimeout(ctx, healed)
		defer cancel()
		answer, err := p.Publish(try, &paho.Publish{Topic: "work/9/1", QoS: 1, Payload: []byte(fmt.Sprint(n))})
		if answer != nil && answer.ReasonCode == 0x97 {
			return errRefused
		}
		return err
	}
	harness.Must(t, publish(0))
	for _, n := range c.Nodes[1:] {
		n.Kill()
	}
	// What is published before the node has noticed is under way when it loses its
	// leadership: then the connection would end, as nobody knows what has become of it.
	harness.Wait(t, healed, "the node serves nobody", func() bool { return servesNobody(t, last) })
	for until := time.Now().Add(healed); ; {
		err := publish(1)
		if errors.Is(err, errRefused) {
			break
		}
		if err == nil || time.Now().After(until) {
			t.Fatalf("it is not refused: %v", err)
		}
	}
	if isClosed(broken) {
		t.Fatal("the connection has ended")
	}
	harness.Must(t, c.Nodes[1].Run())
	for until := time.Now().Add(healed); ; {
		err := publish(1)
		if err == nil {
			break
		}
		if !errors.Is(err, errRefused) || time.Now().After(until) {
			t.Fatal(err)
		}
	}
	for _, h := range []*hearer{five, old} {
		h.has("work/9/1", 2)
	}
}

// servesNobody reports whether a node says so.
func servesNobody(t *testing.T, n *harness.Node) bool {
	t.Helper()
	answer, err := http.Get("http://" + n.HTTP + "/health/ready")
	if err != nil {
		return false
	}
	harness.Must(t, answer.Body.Close())
	return answer.StatusCode == http.StatusServiceUnavailable
}

var errRefused = errors.New("refused for now")
