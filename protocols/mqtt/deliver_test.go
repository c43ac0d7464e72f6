package mqtt

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

func rec(topic, payload string, headers ...string) kernel.Record {
	r := kernel.Record{Key: []byte(topic), Value: []byte(payload), Timestamp: 1_700_000_000_000}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Headers = append(r.Headers, kernel.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

func recs(n int, headers ...string) (out []kernel.Record) {
	for i := range n {
		out = append(out, rec("t", fmt.Sprint(i), headers...))
	}
	return out
}

// durable connects a session that is kept.
func (r *rig) durable(id string, receiveMaximum uint16) *peer {
	req := v5(id)
	req.SessionExpiry, req.ReceiveMaximum = 1000, receiveMaximum
	p, _ := r.connect(req)
	return p
}

func (p *peer) puback(m wire.Message, code wire.Code) {
	p.t.Helper()
	p.send(wire.AppendAck(nil, wire.Puback, p.version, m.ID, code))
}

func TestDeliverAndSettle(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 10)
	if codes := p.subscribe(wire.Filter{Name: "t", QoS: 1}); !slices.Equal(codes, []byte{1}) {
		t.Fatalf("granted % x", codes)
	}
	m := r.member("a", "t")
	m.wait(t, "credit is given", func() bool { return m.credit == 10 })
	m.deliver(t, 40, true, recs(10, "mq.qos", "1")...)
	var got []wire.Message
	for i := range 10 {
		msg := p.wantMessage()
		if string(msg.Payload) != fmt.Sprint(i) || msg.QoS != 1 || !msg.Dup || string(msg.Topic) != "t" {
			t.Errorf("%+v", msg)
		}
		got = append(got, msg)
	}
	var acks []byte
	for i, msg := range got {
		code := wire.Success
		if i == 5 {
			code = wire.UnspecifiedError
		}
		acks = wire.AppendAck(acks, wire.Puback, wire.V5, msg.ID, code)
	}
	p.send(acks)
	m.wait(t, "all is settled", func() bool { return len(m.settled) == 3 })
	want := []settlement{{first: 40, last: 44}, {first: 45, last: 45, refuse: true}, {first: 46, last: 49}}
	if !slices.Equal(m.settled, want) {
		t.Errorf("settled %+v", m.settled)
	}
	m.wait(t, "credit is back", func() bool { return m.credit == 10 })
	p.puback(got[0], wire.Success) // twice: of no effect
	p.send(wire.AppendPingreq(nil))
	p.want(wire.Pingresp)
	if len(m.settled) != 3 {
		t.Errorf("settled %+v", m.settled)
	}
}

// A QoS 0 record on a QoS 1 subscription, one that has expired and one that is
// too large for the client need no acknowledgement.
func TestDeliverWithoutAck(t *testing.T) {
	r := newRig(t, Limits{})
	req := v5("a")
	req.SessionExpiry, req.ReceiveMaximum, req.MaximumPacketSize = 1000, 5, 100
	p, _ := r.connect(req)
	p.subscribe(wire.Filter{Name: "t", QoS: 1})
	m := r.member("a", "t")
	m.wait(t, "credit is given", func() bool { return m.credit == 5 })
	m.deliver(t, 0, true,
		rec("t", "plain", "mq.qos", "0"),
		rec("t", "expired", "mq.qos", "1", "mq.expires-at", "1000"),
		rec("t", string(make([]byte, 200)), "mq.qos", "1"),
		rec("t", "last", "mq.qos", "1", "mq.expires-at", fmt.Sprint(time.Now().UnixMilli()+9500)))
	if msg := p.wantMessage(); string(msg.Payload) != "plain" || msg.QoS != 0 || msg.Dup {
		t.Errorf("%+v", msg)
	}
	msg := p.wantMessage()
	if string(msg.Payload) != "last" || msg.QoS != 1 {
		t.Errorf("%+v", msg)
	}
	if msg.Properties.Next(); msg.Properties.ID != wire.PropMessageExpiry || msg.Properties.Num < 9 || msg.Properties.Num > 10 {
		t.Errorf("expiry %d", msg.Properties.Num)
	}
	m.wait(t, "three are settled", func() bool { return slices.Equal(m.settled, []settlement{{first: 0, last: 2}}) })
	if n := r.node.counters.Dropped.Load(); n > 1 {
		t.Errorf("%d dropped", n)
	}
}

// The client's Receive Maximum holds over all its subscriptions, whichever of
// them is busy, and a busy one is not held up by idle ones.
func TestWindowIsShared(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 3)
	for i := range 8 {
		p.subscribe(wire.Filter{Name: fmt.Sprint("t", i), QoS: 1})
	}
	go func() { // every member delivers whenever it may
		for n := range 40 {
			m := r.member("a", fmt.Sprint("t", n%4))
			m.wait(t, "credit is given", func() bool { return m.credit > 0 })
			m.deliver(t, int64(n), false, rec("t", fmt.Sprint(n), "mq.qos", "1"))
		}
	}()
	seen := 0
	var open []wire.Message
	for seen < 40 {
		msg := p.wantMessage()
		seen++
		if open = append(open, msg); len(open) == 3 || seen > 37 {
			if len(open) == 3 {
				p.send(wire.AppendPingreq(nil))
				p.want(wire.Pingresp) // and not a fourth message
			}
			for _, o := range open {
				p.puback(o, wire.Success)
			}
			open = nil
		}
	}
}

// TestFullWindowTakesCreditBack: of several subscriptions that may deliver, the
// first to fill the window leaves nothing to the others that would have to wait.
func TestFullWindowTakesCreditBack(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 1)
	var members []*fakeMember
	for i := range 3 {
		name := fmt.Sprint("t", i)
		p.subscribe(wire.Filter{Name: name, QoS: 1})
		m := r.member("a", name)
		m.wait(t, "credit is given", func() bool { return m.credit > 0 })
		members = append(members, m)
	}
	for round := range 3 {
		m := members[round]
		m.wait(t, "credit is given", func() bool { return m.credit > 0 })
		m.deliver(t, int64(round), false, rec("t", "x", "mq.qos", "1"))
		for _, m := range members {
			m.wait(t, "credit is taken back", func() bool { return m.credit == 0 })
		}
		p.puback(p.wantMessage(), wire.Success)
	}
}

// TestCreditFollowsSize: a member whose messages become large keeps little of
// the credit it got for small ones.
func TestCreditFollowsSize(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 1000)
	p.subscribe(wire.Filter{Name: "t", QoS: 1})
	m := r.member("a", "t")
	m.wait(t, "credit is given", func() bool { return m.credit > 10 })
	m.deliver(t, 0, false, rec("t", string(make([]byte, 4<<20)), "mq.qos", "1"))
	m.wait(t, "credit is taken back", func() bool { return m.credit <= 1 })
	p.puback(p.wantMessage(), wire.Success)
}

func TestSessionResumes(t *testing.T) {
	r := newRig(t, Limits{})
	p := r.durable("a", 10)
	p.subscribe(wire.Filter{Name: "t", QoS: 1}, wire.Filter{Name: "$share/g/t", QoS: 1})
	p.send([]byte{0xE0, 7, 0, 5, 0x11, 0, 0, 0, 60}) // shortens the expiry
	p.wantEnd(0)
	req := v5("a")
	req.SessionExpiry = 10
	p, a := r.connect(req)
	if !a.SessionPresent {
		t.Fatal("session not present")
	}
	m := r.member("a", "$share/g/t")
	m.wait(t, "credit is given", func() bool { return m.credit > 0 })
	m.deliver(t, 1, true, rec("t", "again", "mq.qos", "1"))
	if msg := p.wantMessage(); !msg.Dup || string(msg.Payload) != "again" {
		t.Errorf("%+v", msg)
	}
	u := wire.UnsubscribeRequest{ID: 3, Filters: []string{"t", "nothing"}}
	p.send(u.Append(nil, wire.V5))
	if _, codes, err := wire.ParseSuback(wire.Unsuback, wire.V5, p.want(wire.Unsuback)); err != nil || !slices.Equal(codes, []byte{0, 0x11}) {
		t.Errorf("% x %v", codes, err)
	}
}

func TestSubackReasons(t *testing.T) {
	for code, want := range map[kernel.Code]wire.Code{
		kernel.CodeNotFound:      wire.UnspecifiedError,
		kernel.CodeAccessRefused: wire.NotAuthorized,
		kernel.CodeInvalidName:   wire.TopicFilterInvalid,
		kernel.CodeLimit:         wire.QuotaExceeded,
	} {
		r := newRig(t, Limits{})
		r.node.subErr = kernel.Errorf(code, "queue", "q", "no")
		p, _ := r.connect(v5("a"))
		if got := p.subscribe(wire.Filter{Name: "$queue/q", QoS: 1}); !slices.Equal(got, []byte{byte(want)}) {
			t.Errorf("code %d: % x", code, got)
		}
		p, _ = r.connect(v4("b"))
		if got := p.subscribe(wire.Filter{Name: "$queue/q", QoS: 1}); !slices.Equal(got, []byte{0x80}) {
			t.Errorf("code %d: % x", code, got)
		}
	}
}

// A client that sends and never reads is cut off before its answers pile up.
func TestAnswersNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Limits{})
		p, _ := r.connect(v4("a"))
		pings := bytes.Repeat(wire.AppendPingreq(nil), 16<<10)
		for n := 0; ; n++ {
			if n > 2*maxControl/len(pings) {
				t.Fatal("still served")
			}
			_ = p.c.SetWriteDeadline(time.Now().Add(2 * lastWrite))
			if _, err := p.c.Write(pings); err != nil {
				break
			}
		}
		begin := time.Now()
		// What was on its way when the client was cut off may still come.
		if _, err := io.Copy(io.Discard, p.c); time.Since(begin) > lastWrite {
			t.Errorf("cut off after %v: %v", time.Since(begin), err)
		}
	})
}

// When all connections together have too much waiting, each keeps less.
func TestTotalBacklog(t *testing.T) {
	r := newRig(t, Limits{OutBuffer: 1 << 20, OutTotal: 1 << 20})
	p, _ := r.connect(v5("a"))
	p.subscribe(wire.Filter{Name: "x", QoS: 0})
	q, _ := r.connect(v5("b"))
	q.subscribe(wire.Filter{Name: "x", QoS: 0})
	big := string(make([]byte, 1<<10))
	for range 2000 {
		live(t, r, "a", "x", 0, rec("x", big, "mq.qos", "0"))
	}
	queued := func(id string) int {
		s := &r.member(id, "x").feed.conn.out
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.backlog()
	}
	if n := queued("a"); n < 900<<10 || n > 1<<20 {
		t.Errorf("a has %d bytes waiting", n)
	}
	r.srv.queued.Add(1 << 20) // others
	for range 2000 {
		live(t, r, "b", "x", 0, rec("x", big, "mq.qos", "0"))
	}
	if n := queued("b"); n > tightBytes {
		t.Errorf("b has %d bytes waiting", n)
	}
	r.srv.queued.Add(-1 << 20)
	_, _ = p.c.Close(), q.c.Close()
	r.wg.Wait()
	if n := r.srv.queued.Used(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}
