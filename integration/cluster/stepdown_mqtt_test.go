package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	packet "github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// windowOf is how many publishes a streamer has under way.
const windowOf = 20

// streamer is an MQTT 5 client that publishes numbers, many at a time, as common libraries
// do: what has an answer is done, whatever that says, and what has none is sent again
// by the next connection of the session.
type streamer struct {
	t     *testing.T
	node  *harness.Node
	topic string
	qos   byte

	next     int
	under    []streamed // in the order of their numbers
	answered []int
	count    atomic.Int64

	mu      sync.Mutex
	refused map[string]int // answers that are no success
	ended   map[string]int // how connections have ended
}

type streamed struct {
	id       uint16
	n        int
	released bool // PUBREC has come
}

// run publishes until ctx ends, and then until all is answered.
func (s *streamer) run(ctx context.Context) {
	for ctx.Err() == nil || len(s.under) > 0 {
		if err := s.connection(ctx); err != nil {
			s.mu.Lock()
			s.ended[err.Error()]++
			s.mu.Unlock()
			pause(ctx, retry)
		}
	}
}

// connection is one connection of the session.
func (s *streamer) connection(ctx context.Context) error {
	conn, err := net.DialTimeout("tcp", s.node.MQTT, 3*time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rd := packet.NewReader(conn, 1<<20)
	connect := packet.ConnectRequest{
		Version: packet.V5, ClientID: s.topic, SessionExpiry: 600, HasUser: true, User: harness.ClusterUser,
		HasPassword: true, Password: []byte(harness.ClusterPassword),
	}
	out := connect.Append(nil)
	for i := range s.under {
		out = s.appendTo(out, &s.under[i], true)
	}
	for {
		for ctx.Err() == nil && len(s.under) < windowOf {
			s.under = append(s.under, streamed{id: uint16(s.next%1000 + 1), n: s.next})
			s.next++
			out = s.appendTo(out, &s.under[len(s.under)-1], false)
		}
		if len(s.under) == 0 {
			_, err = conn.Write(packet.AppendDisconnect(nil, packet.V5, packet.Success, ""))
			return err
		}
		if _, err := conn.Write(out); err != nil {
			return err
		}
		if out, err = s.read(conn, rd); err != nil {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// appendTo appends what is to be sent of a publish.
func (s *streamer) appendTo(b []byte, p *streamed, again bool) []byte {
	if p.released {
		return packet.AppendAck(b, packet.Pubrel, packet.V5, p.id, packet.Success)
	}
	f := packet.Frame{
		Version: packet.V5, QoS: s.qos, Dup: again, ID: p.id, Topic: []byte(s.topic), Payload: fmt.Appendf(nil, "%s:%d", s.topic, p.n),
	}
	whole, _, _ := f.Append(nil)
	return append(b, whole...)
}

// read takes in what has come, and returns the answers to it.
func (s *streamer) read(conn net.Conn, rd *packet.Reader) (out []byte, err error) {
	if err := conn.SetReadDeadline(time.Now().Add(healed)); err != nil {
		return nil, err
	}
	if _, err := rd.Fill(); err != nil {
		return nil, errors.New("cut off")
	}
	for {
		first, body, ok, err := rd.Take()
		if err != nil || !ok {
			return out, err
		}
		switch pt := first >> 4; pt {
		case packet.Connack:
			a, err := packet.ParseConnack(packet.V5, body)
			if err != nil {
				return nil, err
			}
			if a.Code != packet.Success {
				return nil, fmt.Errorf("CONNACK 0x%02x", a.Code)
			}
		case packet.Disconnect:
			d, err := packet.ParseDisconnect(packet.V5, body)
			if err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("DISCONNECT 0x%02x", d.Code)
		case packet.Puback, packet.Pubrec, packet.Pubcomp:
			id, code, err := packet.ParseAck(pt, packet.V5, body)
			if err != nil {
				return nil, err
			}
			out = s.answer(out, pt, id, code)
		default:
			return nil, fmt.Errorf("packet %d", pt)
		}
	}
}

// answer takes in an answer to a publish.
func (s *streamer) answer(out []byte, pt byte, id uint16, code packet.Code) []byte {
	i := slices.IndexFunc(s.under, func(p streamed) bool { return p.id == id })
	if i < 0 {
		s.t.Errorf("%s: an answer to no publish", s.topic)
		return out
	}
	if code >= packet.UnspecifiedError && (pt != packet.Pubcomp || code != packet.PacketIDNotFound) {
		s.mu.Lock()
		s.refused[fmt.Sprintf("0x%02x", code)]++
		s.mu.Unlock()
	}
	p := &s.under[i]
	if pt == packet.Pubrec && code < packet.UnspecifiedError {
		p.released = true
		return s.appendTo(out, p, false)
	}
	s.answered = append(s.answered, p.n)
	s.count.Add(1)
	s.under = slices.Delete(s.under, i, i+1)
	return out
}

// moves waits until more is answered.
func (s *streamer) moves() {
	s.t.Helper()
	from := s.count.Load()
	harness.Wait(s.t, healed, s.topic+" goes on", func() bool { return s.count.Load() > from+2*windowOf })
}

// TestStepDownRefusesNoMQTTPublish: the node that serves loses its majority for a moment, and
// then hangs until another one serves. No publish of QoS 1 or 2 is refused, also of clients
// of that node: what waits is published by whoever serves next, and where something was under
// way the connection ends, so that the client, which takes every answer for a success, repeats
// it. All that was answered is stored, with QoS 2 once.
func TestStepDownRefusesNoMQTTPublish(t *testing.T) {
	full(t)
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3})
	harness.Must(t, c.Whole(healed))
	leader, err := c.Leader(healed)
	harness.Must(t, err)
	q := openAMQP(t, leader, false)
	_, err = q.ch.QueueDeclare("q", true, false, false, false, nil)
	harness.Must(t, err)
	harness.Must(t, q.ch.QueueBind("q", "down.#", "amq.topic", false, nil))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var list []*streamer
	var running sync.WaitGroup
	for _, n := range c.Nodes {
		for qos := byte(1); qos <= 2; qos++ {
			s := &streamer{t: t, node: n, topic: fmt.Sprintf("down/%d/%d", n.ID, qos), qos: qos, refused: map[string]int{}, ended: map[string]int{}}
			list = append(list, s)
			running.Go(func() { s.run(ctx) })
		}
	}
	all := func() {
		t.Helper()
		for _, s := range list {
			s.moves()
		}
	}
	all()
	loseMajority(t, c)
	all()
	harness.Must(t, c.Whole(healed))
	leader, err = c.Leader(healed)
	harness.Must(t, err)
	harness.Must(t, leader.Pause())
	_, err = c.NextLeader(leader, healed)
	harness.Must(t, err)
	harness.Must(t, leader.Continue())
	all()
	stop()
	running.Wait()
	ended := 0
	for _, s := range list {
		t.Logf("%s: %d answered, ended: %v", s.topic, len(s.answered), s.ended)
		if len(s.refused) > 0 {
			t.Errorf("%s was refused: %v", s.topic, s.refused)
		}
		ended += s.ended["DISCONNECT 0x80"]
	}
	if ended == 0 {
		t.Error("nothing was under way")
	}
	checkStreams(t, c.Nodes[0], list)
}

// loseMajority stops all other nodes until the one that serves does so no more.
func loseMajority(t *testing.T, c *harness.Cluster) {
	t.Helper()
	leader, err := c.Leader(healed)
	harness.Must(t, err)
	others := slices.DeleteFunc(slices.Clone(c.Nodes), func(n *harness.Node) bool { return n == leader })
	for _, n := range others {
		harness.Must(t, n.Pause())
	}
	harness.Wait(t, healed, "the node serves nobody", func() bool { return servesNobody(t, leader) })
	for _, n := range others {
		harness.Must(t, n.Continue())
	}
	_, err = c.Leader(healed)
	harness.Must(t, err)
}

// checkStreams looks for what was answered in the queue.
func checkStreams(t *testing.T, n *harness.Node, list []*streamer) {
	t.Helper()
	c := openAMQP(t, n, false)
	stored := map[string]map[int]int{}
	q, err := c.ch.QueueDeclarePassive("q", true, false, false, false, nil)
	harness.Must(t, err)
	messages, err := c.ch.Consume("q", "", true, false, false, false, nil)
	harness.Must(t, err)
	for range q.Messages {
		m := harness.Receive(t, messages)
		topic, number, _ := strings.Cut(string(m.Body), ":")
		i, err := strconv.Atoi(number)
		harness.Must(t, err)
		if stored[topic] == nil {
			stored[topic] = map[int]int{}
		}
		stored[topic][i]++
	}
	for _, s := range list {
		for _, i := range s.answered {
			if n := stored[s.topic][i]; n == 0 || n > 1 && s.qos == 2 {
				t.Errorf("%s: %d, which was answered, is there %d times", s.topic, i, n)
			}
		}
	}
}
