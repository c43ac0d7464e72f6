package mqtt

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

func live(t *testing.T, r *rig, id, filter string, origin kernel.ConnectionID, rc kernel.Record) (*kernel.LiveMessage, bool) {
	t.Helper()
	lm := &kernel.LiveMessage{Name: string(rc.Key), Record: &rc, Origin: origin}
	return lm, r.member(id, filter).feed.Live(lm, 0)
}

func TestLive(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(v5("a"))
	p.send((&wire.SubscribeRequest{ID: 7, Identifier: 300, Filters: []wire.Filter{
		{Name: "x/#", QoS: 1}, {Name: "own", QoS: 0, Options: wire.OptionNoLocal}}}).Append(nil, wire.V5))
	p.want(wire.Suback)
	origin := r.node.lastID
	if _, ok := live(t, r, "a", "own", origin, rec("own", "mine", "mq.qos", "0")); !ok {
		t.Error("own message not taken")
	}
	for i, qos := range []string{"0", "1"} {
		if _, ok := live(t, r, "a", "x/#", 99, rec("x/y", "p"+qos, "mq.qos", qos)); !ok {
			t.Error("not taken")
		}
		m := p.wantMessage()
		if string(m.Payload) != "p"+qos || m.QoS != byte(i) || string(m.Topic) != "x/y" {
			t.Errorf("%+v", m)
		}
		if m.Properties.Next(); m.Properties.ID != wire.PropSubscriptionIdentifier || m.Properties.Num != 300 {
			t.Errorf("identifier %d", m.Properties.Num)
		}
	}
}

// Several subscribers share the encoded forms of one message, each with its own
// packet identifier.
func TestLiveShared(t *testing.T) {
	r := newRig(t, Limits{})
	var peers []*peer
	for i := range 6 {
		req := v5(fmt.Sprint(i))
		if i%2 == 1 {
			req = v4(fmt.Sprint(i))
		}
		p, _ := r.connect(req)
		p.subscribe(wire.Filter{Name: "x", QoS: byte(i / 4)})
		peers = append(peers, p)
	}
	for range 3 {
		rc := rec("x", "hello", "mq.qos", "1", "k", "v", "mq.expires-at", fmt.Sprint(time.Now().UnixMilli()+5000))
		lm := &kernel.LiveMessage{Name: "x", Record: &rc}
		for i := range peers {
			if !r.member(fmt.Sprint(i), "x").feed.Live(lm, 0) {
				t.Fatal("not taken")
			}
		}
		if sh := lm.Frame.(*shared); len(sh.forms) != 4 {
			t.Errorf("%d forms", len(sh.forms))
		}
	}
	for n := range 3 {
		for i, p := range peers {
			m := p.wantMessage()
			if string(m.Payload) != "hello" || m.QoS != byte(i/4) || m.QoS == 1 && m.ID != uint16(n+1) {
				t.Errorf("%+v", m)
			}
			if p.version == wire.V5 {
				var got []string
				for m.Properties.Next() {
					got = append(got, fmt.Sprintf("%d %d %s=%s", m.Properties.ID, m.Properties.Num, m.Properties.Data, m.Properties.Val))
				}
				if len(got) != 2 || got[0] != "38 0 k=v" || got[1] != "2 5 k=v" {
					t.Errorf("%q", got)
				}
			}
		}
	}
}

// A client that does not read: QoS 0 is dropped beyond a number of bytes, QoS 1
// is not taken, and room is announced when it reads again.
func TestLiveSlow(t *testing.T) {
	r := newRig(t, Limits{OutBuffer: 1 << 16, LiveBuffer: 1 << 16})
	p, _ := r.connect(v5("a"))
	p.subscribe(wire.Filter{Name: "x", QoS: 1})
	big := string(make([]byte, 1<<10))
	taken := 0
	for range 1000 {
		if _, ok := live(t, r, "a", "x", 0, rec("x", big, "mq.qos", "0")); !ok {
			t.Fatal("QoS 0 not taken")
		}
	}
	dropped := r.node.counters.Dropped.Load()
	if dropped < 800 || dropped > 990 {
		t.Errorf("%d dropped", dropped)
	}
	for range 1000 - int(dropped) {
		p.wantMessage()
	}
	out := &r.member("a", "x").feed.conn.out
	for booked := false; !booked; runtime.Gosched() { // what was read last may just be
		out.mu.Lock()
		booked = out.backlog() == 0
		out.mu.Unlock()
	}
	for {
		if _, ok := live(t, r, "a", "x", 0, rec("x", big, "mq.qos", "1")); !ok {
			break
		}
		taken++
	}
	if taken < 50 || taken > 130 {
		t.Errorf("%d taken", taken)
	}
	room := r.member("a", "x").feed.Room()
	select {
	case <-room:
		t.Error("room at once")
	default:
	}
	for range taken {
		p.puback(p.wantMessage(), wire.Success)
	}
	<-room
	if _, ok := live(t, r, "a", "x", 0, rec("x", big, "mq.qos", "1")); !ok {
		t.Error("not taken with room")
	}
}
