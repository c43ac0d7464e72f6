package mqtt

import (
	"strconv"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// TestExpiryByTheClockOfTheProcess is row 11 of the faults: the clock of the machine is
// an hour ahead of the one that expiry is counted by. A message is delivered, and sent
// again after a reconnect, with the time that it has left; none is taken to be expired.
func TestExpiryByTheClockOfTheProcess(t *testing.T) {
	kernel.Follow(time.Now().Add(-time.Hour).UnixMilli())
	t.Cleanup(func() { kernel.Follow(time.Now().UnixMilli()) })
	r := newRig(t, Limits{})
	p := r.durable("a", 10)
	p.subscribe(wire.Filter{Name: "t", QoS: 2})
	m, s := r.member("a", "t"), r.session("a")
	m.wait(t, "credit is given", func() bool { return m.credit > 0 })
	expires := strconv.FormatInt(kernel.Millis()+600_000, 10)
	s.records = map[int64]kernel.Record{
		0: rec("t", "0", "mq.qos", "1", kernel.HeaderExpiresAt, expires),
		1: rec("t", "1", "mq.qos", "2", kernel.HeaderExpiresAt, expires),
	}
	left := func(p *peer, id uint16, dup bool) {
		t.Helper()
		msg := p.wantMessage()
		if msg.ID != id || msg.Dup != dup {
			t.Fatalf("%+v, want id %d, dup %v", msg, id, dup)
		}
		if msg.Properties.Next(); msg.Properties.ID != wire.PropMessageExpiry || msg.Properties.Num < 500 || msg.Properties.Num > 600 {
			t.Errorf("message %d has %d s left", id, msg.Properties.Num)
		}
	}
	m.deliver(t, 0, false, s.records[0])
	left(p, 1, false)
	m.deliver(t, 1, false, s.records[1])
	m.commit(t, 1)
	left(p, 2, false)
	s.pins = []sessionPin{{Pin: kernel.Pin{PinID: kernel.PinID{Number: 2, Count: 2}, Offset: 1}, Filter: "t"}}
	_ = p.c.Close()
	<-s.detached
	p = r.durable("a", 10)
	left(p, 1, true)
	left(p, 2, true)
}
