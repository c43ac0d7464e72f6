package mqtt

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

func offsets(places []kernel.Place) (out []int64) {
	for _, p := range places {
		out = append(out, p.Offset)
	}
	slices.Sort(out)
	return out
}

// TestHolding: what the next host is to hold is what the client has not acknowledged, but
// for what is pinned; what somebody else has got by then does not go out.
func TestHolding(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(wire.ConnectRequest{Version: wire.V5, ClientID: "c", SessionExpiry: 600})
	p.subscribe(wire.Filter{Name: "a", QoS: 1}, wire.Filter{Name: "b", QoS: 2})
	one, two := r.member("c", "a"), r.member("c", "b")
	for _, m := range []*fakeMember{one, two} {
		m.wait(t, "there is credit", func() bool { return m.credit > 2 })
	}
	one.deliver(t, 10, false, rec("a", "1", "mq.qos", "1"), rec("a", "2", "mq.qos", "1"))
	first := p.wantMessage()
	p.wantMessage()
	if got := offsets(one.feed.Holding()); !slices.Equal(got, []int64{10, 11}) {
		t.Errorf("it holds %d", got)
	}
	p.send(wire.AppendAck(nil, wire.Puback, wire.V5, first.ID, wire.Success))
	one.wait(t, "it is settled", func() bool { return len(one.settled) == 1 })
	if got := offsets(one.feed.Holding()); !slices.Equal(got, []int64{11}) {
		t.Errorf("it holds %d", got)
	}
	two.deliver(t, 20, false, rec("b", "3", "mq.qos", "2"), rec("b", "4", "mq.qos", "2"))
	two.wait(t, "both are to be pinned", func() bool { return len(two.acts) == 2 })
	if got := two.feed.Holding(); len(got) != 0 {
		t.Errorf("it holds %v", got)
	}
	two.feed.Lost([]kernel.Place{{Offset: 20}})
	two.commit(t, 2)
	if m := p.wantMessage(); string(m.Payload) != "4" {
		t.Errorf("got %q", m.Payload)
	}
	p.quiet()
}

// TestUnparkLost: of what is parked only what is lost goes, and the sums are right.
func TestUnparkLost(t *testing.T) {
	var w window
	w.init(1)
	f, other := &feed{qos: 1, member: &fakeMember{}}, &feed{qos: 1, member: &fakeMember{}}
	for i := range int64(6) {
		to := f
		if i%2 == 1 {
			to = other
		}
		w.park(parked{frame: frame{bytes: make([]byte, 10)}, feed: to, qos: 1, offset: i})
	}
	if _, ok := w.unpark(); !ok {
		t.Fatal("nothing is parked")
	}
	w.unparkLost(f, func(_ int32, offset int64) bool { return offset < 4 })
	var left []int64
	for p, ok := w.unpark(); ok; p, ok = w.unpark() {
		left = append(left, p.offset)
	}
	if !slices.Equal(left, []int64{1, 3, 4, 5}) || w.parkedMember != 0 || w.memberBytes != 0 {
		t.Errorf("%d are left; %d members, %d bytes", left, w.parkedMember, w.memberBytes)
	}
}

// TestEvictions: only the end of the node is told as one.
func TestEvictions(t *testing.T) {
	for _, c := range []struct {
		reason error
		code   wire.Code
	}{
		{errors.New("shutdown"), wire.ServerShuttingDown},
		{kernel.Errorf(kernel.CodeUnknown, "", "", "a node of an earlier version serves"), wire.ServerBusy},
		{kernel.Errorf(kernel.CodeAccessRefused, "", "", "no more"), wire.NotAuthorized},
		{kernel.Errorf(kernel.CodeFenced, "", "", "closed by hand"), wire.AdministrativeAction},
	} {
		r := newRig(t, Limits{})
		p, _ := r.connect(wire.ConnectRequest{Version: wire.V5, ClientID: "c"})
		r.node.mu.Lock()
		end := r.node.last.end
		r.node.mu.Unlock()
		end(c.reason)
		p.wantEnd(c.code)
	}
}

// TestGatheringHoldsPublishes: while the node that serves waits for others a publish
// waits, and pings are answered.
func TestGatheringHoldsPublishes(t *testing.T) {
	r := newRig(t, Limits{})
	p, _ := r.connect(wire.ConnectRequest{Version: wire.V5, ClientID: "c"})
	gather := func(on bool) {
		r.node.mu.Lock()
		r.node.alarms.Leader.On = on
		told := r.node.last.alarmed
		r.node.mu.Unlock()
		told()
	}
	gather(true)
	p.send(publishPacket(wire.V5, 1, 1, "t", "v"))
	p.quiet()
	if n := len(r.node.messages()); n != 0 {
		t.Errorf("%d are published", n)
	}
	p.send(publishPacket(wire.V5, 1, 2, "t", "w"))
	p.quiet()
	gather(false)
	for want := uint16(1); want <= 2; want++ {
		if id, code, err := wire.ParseAck(wire.Puback, wire.V5, p.want(wire.Puback)); id != want || code != wire.Success || err != nil {
			t.Errorf("PUBACK of %d: 0x%02x, %v", id, code, err)
		}
	}
	list := r.node.messages()
	if len(list) != 2 || string(list[0].rec.Value) != "v" || string(list[0].rec.Key) != "t" || list[0].header(kernel.HeaderQoS) != "1" {
		t.Errorf("%+v", list)
	}
	p.send(wire.AppendDisconnect(nil, wire.V5, wire.Success, ""))
	p.wantEnd(wire.Success)
}

// TestPublishesOutlastTheFacade: what the facade of a node refuses as that steps down, and
// before anybody has said so, waits as long as what comes while nobody serves, and is then
// taken, once; after that time it is refused, and QoS 0 is dropped and counted.
func TestPublishesOutlastTheFacade(t *testing.T) {
	for _, qos := range []byte{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Limits{})
			var serves atomic.Bool
			r.node.onPublish = func(p published) (int, error) {
				if !serves.Load() {
					return 0, kernel.Errorf(kernel.CodeUnavailable, "", "", "the placement group does not lead here")
				}
				p.done.Completed(p.token, kernel.Result{})
				p.done.Flush()
				return 1, nil
			}
			p, _ := r.connect(wire.ConnectRequest{Version: wire.V5, ClientID: "c"})
			pt := []byte{0, wire.Puback, wire.Pubrec}[qos]
			answered := func(id uint16, code wire.Code) {
				t.Helper()
				if qos == 0 {
					time.Sleep(holdTime + time.Second)
					return
				}
				if got, reason, err := wire.ParseAck(pt, wire.V5, p.want(pt)); got != id || reason != code || err != nil {
					t.Errorf("QoS %d: %d was answered 0x%02x, %v", qos, got, reason, err)
				}
			}
			begin := time.Now()
			time.AfterFunc(holdTime-time.Second, func() { serves.Store(true) })
			p.send(publishPacket(wire.V5, qos, 1, "t", "v"))
			p.send(publishPacket(wire.V5, qos, 2, "t", "w"))
			for id := range uint16(2) {
				answered(id+1, wire.Success)
			}
			list := r.node.messages()
			if len(list) < 3 || string(list[len(list)-2].rec.Value) != "v" || string(list[len(list)-1].rec.Value) != "w" {
				t.Errorf("QoS %d: %d were tried", qos, len(list))
			}
			if took := time.Since(begin); qos > 0 && took < holdTime-time.Second {
				t.Errorf("QoS %d: answered after %v", qos, took)
			}
			serves.Store(false)
			begin = time.Now()
			p.send(publishPacket(wire.V5, qos, 3, "t", "x"))
			answered(3, wire.QuotaExceeded)
			if took := time.Since(begin); qos > 0 && (took < holdTime || took > holdTime+time.Second) {
				t.Errorf("QoS %d: refused after %v", qos, took)
			}
			if n := r.node.counters.Shed.Load(); n != map[byte]uint64{0: 1}[qos] {
				t.Errorf("QoS %d: %d are shed", qos, n)
			}
			p.send(wire.AppendDisconnect(nil, wire.V5, wire.Success, ""))
			p.wantEnd(wire.Success)
		})
	}
}
