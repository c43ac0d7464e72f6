package mqtt

import (
	"bytes"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// 3.1.3.1: an empty client identifier.
func TestEmptyClientID(t *testing.T) {
	_, a := connect(t, shared, wire.ConnectRequest{Version: wire.V5})
	if a.Code != 0 || a.AssignedClientID == "" {
		t.Errorf("%+v", a)
	}
	if _, a = connect(t, shared, wire.ConnectRequest{Version: wire.V311, Clean: true}); a.Code != 0 {
		t.Errorf("%+v", a)
	}
	if _, a = connect(t, shared, wire.ConnectRequest{Version: wire.V311}); a.Code != 2 {
		t.Errorf("%+v", a)
	}
}

func TestPasswordsAreChecked(t *testing.T) {
	for _, c := range []struct {
		version        byte
		user, password string
		want           wire.Code
	}{
		{wire.V5, "guest", "guest", 0},
		{wire.V5, "/:guest", "guest", 0},
		{wire.V5, "guest", "wrong", wire.BadCredentials},
		{wire.V311, "guest", "guest", 0},
		{wire.V311, "nobody", "x", 4},
	} {
		req := clean(c.version)
		req.HasUser, req.User, req.HasPassword, req.Password = true, c.user, true, []byte(c.password)
		if _, a := connect(t, shared, req); a.Code != c.want {
			t.Errorf("%d %s: %+v", c.version, c.user, a)
		}
	}
}

// 3.1.2.11, 4.1: sessions in both versions: present or not, what is kept.
func TestSessionKept(t *testing.T) {
	for _, version := range []byte{wire.V311, wire.V5} {
		id, topic := name("kept"), name("t")
		req := wire.ConnectRequest{Version: version, ClientID: id, SessionExpiry: 600}
		p, a := connect(t, shared, req)
		if a.SessionPresent {
			t.Error("session present the first time")
		}
		p.subscribe(wire.Filter{Name: topic + "/#", QoS: 1}, wire.Filter{Name: topic, QoS: 1})
		p.bye()
		pub := open(t, shared, clean(wire.V5))
		for _, s := range series(0, 50) {
			pub.publish(topic+"/x", s)
		}
		pub.publish(topic, "exact")
		p, a = connect(t, shared, req)
		if !a.SessionPresent {
			t.Error("session not present")
		}
		got := map[string]int{}
		next := 0
		for range 52 { // topic/# matches topic too
			m := p.message()
			p.puback(m, wire.Success)
			got[string(m.Topic)]++
			if string(m.Topic) == topic+"/x" {
				if string(m.Payload) != series(next, next+1)[0] {
					t.Fatalf("got %q, want %d", m.Payload, next)
				}
				next++
			}
		}
		if got[topic] != 2 || got[topic+"/x"] != 50 {
			t.Errorf("%v", got)
		}
		p.quiet()
		p.bye()
		req.Clean = true
		if p, a = connect(t, shared, req); a.SessionPresent {
			t.Error("session present after a clean start")
		}
		pub.publish(topic, "nobody")
		p.quiet()
	}
}

// 3.14.2.2.2: DISCONNECT may change how long the session is kept.
func TestDisconnectShortensExpiry(t *testing.T) {
	req := v5(name("short"))
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: name("t"), QoS: 1})
	p.send([]byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 0})
	p.wantEnd(0)
	if _, a := connect(t, shared, req); a.SessionPresent {
		t.Error("session present")
	}
}

// 3.1.4-3: takeover tells the old connection and keeps the session.
func TestTakeover(t *testing.T) {
	req := v5(name("taken"))
	topic := name("t")
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	open(t, shared, clean(wire.V5)).publish(topic, "held")
	p.wantMessages(false, "held")
	for range 10 {
		q, a := connect(t, shared, req)
		if !a.SessionPresent {
			t.Error("session not present")
		}
		p.wantEnd(wire.SessionTakenOver)
		if m := q.wantMessages(false, "held")[0]; !m.Dup {
			t.Error("redelivered without DUP")
		}
		p = q
	}
}

// 4.4.0-1, 4.6.0-1: what was not acknowledged comes again, on reconnect only,
// in order and with DUP.
func TestRedelivery(t *testing.T) {
	req := v5(name("again"))
	req.ReceiveMaximum = 10
	topic := name("t")
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	pub := open(t, shared, clean(wire.V5))
	for _, s := range series(0, 20) {
		pub.publish(topic, s)
	}
	ms := p.wantMessages(false, series(0, 10)...)
	p.quiet()
	for _, i := range []int{0, 1, 4} {
		p.puback(ms[i], wire.Success)
	}
	p.wantMessages(false, series(10, 13)...)
	p.quiet()
	_ = p.c.Close()
	p = open(t, shared, req)
	want := append([]string{"2", "3"}, append(series(5, 13), series(13, 20)...)...)
	for i, s := range want {
		m := p.message()
		if string(m.Payload) != s || m.Dup != (i < 10) {
			t.Fatalf("%d: got %s (DUP %v), want %s", i, m.Payload, m.Dup, s)
		}
		p.puback(m, wire.Success)
	}
	p.quiet()
}

// 3.3.1.1: what may have been sent before has DUP, also when the node was killed
// or stopped in between; what certainly was not has none.
func TestRedeliveryAfterRestart(t *testing.T) {
	b := harness.Start(t)
	for name, restart := range map[string]func(){"killed": b.Kill, "stopped": func() { b.Stop() }} {
		t.Run(name, func(t *testing.T) {
			reqs := []wire.ConnectRequest{v5(name + "-five"), {Version: wire.V311, ClientID: name + "-four"}, v5(name + "-shared")}
			filters := []string{name + "/+", name + "/x", "$share/" + name + "/" + name + "/x"}
			pub := open(t, b.Addresses, clean(wire.V5))
			var sent []*peer
			for i, req := range reqs {
				sent = append(sent, open(t, b.Addresses, req))
				sent[i].subscribe(wire.Filter{Name: filters[i], QoS: 1})
			}
			for _, s := range series(0, 5) {
				pub.publish(name+"/x", s)
			}
			for _, p := range sent {
				p.wantMessages(false, series(0, 5)...)
				_ = p.c.Close()
			}
			for _, req := range reqs {
				p := open(t, b.Addresses, req)
				for _, m := range p.wantMessages(false, series(0, 5)...) {
					if !m.Dup {
						t.Errorf("%s: %s without DUP", req.ClientID, m.Payload)
					}
				}
				p.bye()
			}
			for _, s := range series(5, 8) {
				pub.publish(name+"/x", s)
			}
			restart()
			b.Run()
			for _, req := range reqs {
				p := open(t, b.Addresses, req)
				for i, m := range p.wantMessages(true, series(0, 8)...) {
					if m.Dup != (i < 5) {
						t.Errorf("%s: %s after the restart: DUP %v", req.ClientID, m.Payload, m.Dup)
					}
				}
				p.bye()
			}
		})
	}
}

// Sessions, subscriptions and queued messages outlive the node.
func TestRestart(t *testing.T) {
	b := harness.Start(t)
	reqs := []wire.ConnectRequest{v5("five"), {Version: wire.V311, ClientID: "four"}}
	for _, req := range reqs {
		p := open(t, b.Addresses, req)
		p.subscribeID(0, wire.Filter{Name: "a/+", QoS: 1}, wire.Filter{Name: "$share/g/jobs", QoS: 1})
	}
	pub := open(t, b.Addresses, clean(wire.V5))
	watch := open(t, b.Addresses, v5("watch"))
	for _, s := range series(0, 100) {
		pub.publish("a/x", s)
	}
	if code := b.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	pub.wantEnd(wire.ServerShuttingDown)
	watch.wantEnd(wire.ServerShuttingDown)

	b.Run()
	for _, req := range reqs {
		p, a := connect(t, b.Addresses, req)
		if !a.SessionPresent {
			t.Errorf("%s: session not present", req.ClientID)
		}
		p.wantMessages(true, series(0, 100)...)
		p.quiet()
	}
}

// 3.1.2.10: one and a half times the keep alive, then the will.
func TestKeepAlive(t *testing.T) {
	topic := name("will")
	watch := open(t, shared, clean(wire.V5))
	watch.subscribe(wire.Filter{Name: topic, QoS: 1})
	req := clean(wire.V5)
	req.KeepAlive = 1
	req.Will = &wire.Will{Topic: topic, Payload: []byte("gone"), QoS: 1}
	p := open(t, shared, req)
	begin := time.Now()
	p.wantEnd(wire.KeepAliveTimeout)
	// The tests of protocols/mqtt are exact; here the machine may be busy.
	if d := time.Since(begin); d < 1400*time.Millisecond || d > 8*time.Second {
		t.Errorf("ended after %v", d)
	}
	watch.wantMessages(true, "gone")
}

// 3.1.3.2: the will with all its properties, on a lost connection, not after a
// normal DISCONNECT, after one with code 4; live and for a session that is away.
func TestWill(t *testing.T) {
	topic := name("will")
	away := v5(name("away"))
	p := open(t, shared, away)
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	p.bye()
	watch := open(t, shared, clean(wire.V5))
	watch.subscribe(wire.Filter{Name: topic, QoS: 1})

	section := wire.AppendFlag(nil, wire.PropPayloadFormat, 1)
	section = wire.AppendText(section, wire.PropContentType, "text/x")
	section = wire.AppendText(section, wire.PropResponseTopic, "re")
	section = wire.AppendText(section, wire.PropCorrelationData, "c\x00")
	section = wire.AppendUser(wire.AppendUser(section, "b", "1"), "a", "2")
	willed := func() *peer {
		req := clean(wire.V5)
		req.Will = &wire.Will{Topic: topic, Payload: []byte("gone"), QoS: 1}
		req.Will.SetProperties(section)
		return open(t, shared, req)
	}
	const shown = "1:1 3:text/x 8:re 9:c\x00 b=1 a=2"
	willed().bye()
	_ = willed().c.Close()
	if m := watch.wantMessages(true, "gone")[0]; props(t, m) != shown || m.Retain || m.QoS != 1 {
		t.Errorf("%+v %q", m, props(t, m))
	}
	q := willed()
	q.send(wire.AppendDisconnect(nil, wire.V5, wire.DisconnectWithWill, ""))
	q.wantEnd(0)
	watch.wantMessages(true, "gone")
	q = willed()
	q.send([]byte{0, 0})
	q.wantEnd(wire.MalformedPacket)
	watch.wantMessages(true, "gone")
	watch.quiet()
	p = open(t, shared, away)
	for range 3 {
		if m := p.wantMessages(true, "gone")[0]; props(t, m) != shown {
			t.Errorf("%q", props(t, m))
		}
	}
	p.quiet()
}

// 3.1.3.2.2: Will Delay Interval.
func TestWillDelay(t *testing.T) {
	topic := name("will")
	watch := open(t, shared, clean(wire.V5))
	watch.subscribe(wire.Filter{Name: topic, QoS: 1})
	req := v5(name("delayed"))
	req.Will = &wire.Will{Topic: topic, Payload: []byte("late"), QoS: 1, Delay: 3}
	_ = open(t, shared, req).c.Close()
	p := open(t, shared, req) // in time
	begin := time.Now()
	_ = p.c.Close()
	watch.wantMessages(true, "late")
	if d := time.Since(begin); d < 2900*time.Millisecond {
		t.Errorf("published after %v", d)
	}
	watch.quiet()
}

// 3.1.2-24: a packet larger than the client takes is not sent, and the flow
// goes on as if it had been.
func TestMaximumPacketSizeOut(t *testing.T) {
	topic := name("t")
	req := v5(name("small"))
	req.MaximumPacketSize, req.ReceiveMaximum = 200, 2
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: topic, QoS: 1}, wire.Filter{Name: topic + "/live", QoS: 0})
	pub := open(t, shared, clean(wire.V5))
	for range 5 {
		pub.publish(topic, string(bytes.Repeat([]byte("x"), 300)))
	}
	pub.send(packet(wire.V5, 0, 0, topic+"/live", string(bytes.Repeat([]byte("x"), 300))))
	pub.publish(topic, "small")
	p.wantMessages(true, "small")
	p.quiet()
}

// An acknowledgement counts although DISCONNECT comes right behind it.
func TestAckThenDisconnect(t *testing.T) {
	req, topic := v5(name("last")), name("t")
	p := open(t, shared, req)
	p.subscribe(wire.Filter{Name: topic, QoS: 1})
	pub := open(t, shared, clean(wire.V5))
	for _, s := range series(0, 5) {
		pub.publish(topic, s)
	}
	var last []byte
	for _, m := range p.wantMessages(false, series(0, 5)...) {
		last = wire.AppendAck(last, wire.Puback, wire.V5, m.ID, wire.Success)
	}
	p.send(wire.AppendDisconnect(last, wire.V5, wire.Success, ""))
	p.wantEnd(0)
	open(t, shared, req).quiet()
}
