package mqtt

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/kernel/edge"
	front "github.com/trivium-mq/trivium/protocols/mqtt"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// stage is a node whose facade comes and goes behind an MQTT server that stays.
type stage struct {
	*harness.Stage
	at harness.Addresses
}

func newStage(t *testing.T, limits front.Limits) *stage {
	t.Helper()
	s := &stage{}
	s.Stage, s.at.MQTT = harness.NewStage(t, func(door *edge.Edge) harness.Server {
		return front.NewServer(front.Config{Edge: door, Logger: zerolog.Nop(), Limits: limits})
	})
	return s
}

// pump publishes with one QoS, so many at a time, until over is closed, and returns how
// many were confirmed; each must be.
func pump(p *peer, qos byte, topic string, over <-chan struct{}, progress *atomic.Int64) int {
	const window = 20
	waits, done, n := map[uint16]bool{}, 0, 0
	for {
		stop := false
		select {
		case <-over:
			stop = true
		default:
		}
		for !stop && len(waits) < window {
			id := uint16(n%60000 + 1)
			p.send(packet(p.version, qos, id, topic, fmt.Sprint(n)))
			waits[id] = true
			n++
		}
		if len(waits) == 0 {
			return done
		}
		first, body := p.next()
		switch first >> 4 {
		case wire.Puback, wire.Pubrec, wire.Pubcomp:
		default:
			p.t.Errorf("QoS %d, version %d: packet %d (% x) after %d of %d", qos, p.version, first>>4, body, done, n)
			return done
		}
		id, code, err := wire.ParseAck(first>>4, p.version, body)
		if err != nil || code >= wire.UnspecifiedError {
			p.t.Errorf("QoS %d: %d is answered 0x%02x, %v", qos, id, code, err)
		}
		if first>>4 == wire.Pubrec {
			p.send(wire.AppendAck(nil, wire.Pubrel, p.version, id, wire.Success))
			continue
		}
		delete(waits, id)
		done++
		progress.Add(1)
	}
}

// drainer takes all that comes, acknowledging it, until it has got so many different
// messages as want says.
func drainer(p *peer, want <-chan int) {
	seen, missing, most := map[string]int{}, -1, -1
	for missing < 0 || len(seen) < missing {
		if missing < 0 {
			select {
			case missing = <-want:
				continue
			default:
			}
		}
		_ = p.c.SetReadDeadline(time.Now().Add(harness.Patience))
		first, body, ok, err := p.rd.Take()
		if err != nil {
			p.t.Error(err)
			return
		}
		if !ok {
			_ = p.c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if _, err := p.rd.Fill(); err != nil {
				if ne, ok := err.(net.Error); ok && ne.Timeout() {
					continue
				}
				p.t.Errorf("after %d messages: %v", len(seen), err)
				return
			}
			continue
		}
		switch first >> 4 {
		case wire.Publish:
			var m wire.Message
			if err := m.Parse(p.version, first, body); err != nil {
				p.t.Error(err)
				return
			}
			payload := string(m.Payload)
			seen[payload]++
			if seen[payload] > 1 && (m.QoS == 2 || !m.Dup) {
				p.t.Errorf("%s with QoS %d came %d times", payload, m.QoS, seen[payload])
			}
			var n int
			if _, err := fmt.Sscan(payload, &n); err == nil && seen[payload] == 1 {
				if n < most {
					p.t.Errorf("%d came after %d", n, most)
				}
				most = max(most, n)
			}
			if m.QoS == 1 {
				p.puback(m, wire.Success)
			} else if m.QoS == 2 {
				p.send(wire.AppendAck(nil, wire.Pubrec, p.version, m.ID, wire.Success))
			}
		case wire.Pubrel:
			id, _, _ := wire.ParseAck(wire.Pubrel, p.version, body)
			p.send(wire.AppendAck(nil, wire.Pubcomp, p.version, id, wire.Success))
		default:
			p.t.Errorf("packet %d (% x) after %d messages", first>>4, body, len(seen))
			return
		}
	}
}

// TestMovesFailNoMQTTPublish: the facade moves twenty times under clients of both
// versions that publish and consume without a pause; their connections stay, every
// publish is confirmed, and each message comes in its order, with QoS 2 once.
func TestMovesFailNoMQTTPublish(t *testing.T) {
	s := newStage(t, front.Limits{})
	over := make(chan struct{})
	var progress atomic.Int64
	var publishing, consuming sync.WaitGroup
	for _, version := range []byte{wire.V311, wire.V5} {
		for qos := byte(1); qos <= 2; qos++ {
			topic := fmt.Sprintf("t/%d/%d", version, qos)
			want := make(chan int, 2)
			for _, kept := range []uint32{0, 600} {
				req := wire.ConnectRequest{Version: version, ClientID: fmt.Sprintf("c%d%d%d", version, qos, kept), Clean: kept == 0, SessionExpiry: kept}
				filter := topic
				if kept == 0 {
					filter = "$share/g/" + topic
				}
				c := open(t, s.at, req)
				c.subscribe(wire.Filter{Name: filter, QoS: qos})
				consuming.Go(func() { drainer(c, want) })
			}
			p := open(t, s.at, wire.ConnectRequest{Version: version, ClientID: fmt.Sprintf("p%d%d", version, qos), Clean: qos == 1, SessionExpiry: 600})
			publishing.Go(func() {
				n := pump(p, qos, topic, over, &progress)
				t.Logf("version %d, QoS %d: %d messages", version, qos, n)
				want <- n
				want <- n
			})
		}
	}
	for range 20 {
		tick := time.NewTicker(time.Millisecond)
		for limit, n := time.Now().Add(harness.Patience), progress.Load()+400; progress.Load() < n; <-tick.C {
			if time.Now().After(limit) {
				t.Error("nothing is confirmed any more")
				break
			}
		}
		tick.Stop()
		s.Rest()
		s.Serve()
	}
	close(over)
	publishing.Wait()
	consuming.Wait()
}

// TestNobodyServesMQTT: while no node serves clients keep their connections: pings are
// answered, and what is published or asked waits, and is refused after some seconds as
// far as the version knows how.
func TestNobodyServesMQTT(t *testing.T) {
	s := newStage(t, front.Limits{ConnectTimeout: 500 * time.Millisecond})
	c, other, old, oldest := open(t, s.at, v5("c")), open(t, s.at, v5("o")), open(t, s.at, clean(wire.V311)), open(t, s.at, clean(wire.V311))
	c.subscribe(wire.Filter{Name: "t", QoS: 1})
	s.Rest()
	for _, p := range []*peer{c, old} {
		p.quiet()
	}
	c.send(packet(wire.V5, 1, 1, "t", "waits"))
	c.quiet() // although it is held up
	oldest.send(packet(wire.V311, 0, 0, "u", "waits too"))
	if _, a := connect(t, s.at, v5("new")); a.Code != wire.ServerUnavailable {
		t.Errorf("CONNACK 0x%02x", a.Code)
	}
	if _, a := connect(t, s.at, clean(wire.V311)); a.Code != 3 {
		t.Errorf("CONNACK %d", a.Code)
	}
	s.Serve()
	if id, code, _ := wire.ParseAck(wire.Puback, wire.V5, c.want(wire.Puback)); id != 1 || code != 0 {
		t.Errorf("%d: 0x%02x", id, code)
	}
	c.wantMessages(true, "waits")
	c.quiet()
	s.Rest()
	begin := time.Now()
	old.send(packet(wire.V311, 1, 1, "t", "refused"))
	oldest.send(packet(wire.V311, 0, 0, "u", "dropped"))
	other.send((&wire.SubscribeRequest{ID: 7, Filters: []wire.Filter{{Name: "x", QoS: 1}}}).Append(nil, wire.V5))
	if code := c.publish("t", "refused"); code != wire.QuotaExceeded {
		t.Errorf("PUBACK 0x%02x", code)
	}
	if took := time.Since(begin); took < 2*time.Second || took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	begin = time.Now()
	c.send(packet(wire.V5, 2, 3, "t", "refused"))
	if id, code, _ := wire.ParseAck(wire.Pubrec, wire.V5, c.want(wire.Pubrec)); id != 3 || code != wire.QuotaExceeded {
		t.Errorf("%d: 0x%02x", id, code)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("the next one took %v", took)
	}
	c.quiet()
	oldest.quiet()
	old.wantEnd(0)
	if _, codes, err := wire.ParseSuback(wire.Suback, wire.V5, other.want(wire.Suback)); err != nil || wire.Code(codes[0]) != wire.QuotaExceeded {
		t.Errorf("%x, %v", codes, err)
	}
	s.Serve()
	for c.publish("t", "again") == wire.QuotaExceeded {
	}
	c.wantMessages(true, "again")
}
