package mqtt

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// crowd are clients with one subscription each that do not read.
func crowd(r *rig, n int, f wire.Filter, expiry uint32) (peers []*peer) {
	for i := range n {
		req := v5(fmt.Sprint("c", i))
		req.SessionExpiry = expiry
		p, _ := r.connect(req)
		p.subscribe(f)
		peers = append(peers, p)
	}
	return peers
}

// TestLargeDeliveriesWaitForRoom: what is large is handed to no more clients that do
// not read than fit the total of all; credit comes back when there is room again.
func TestLargeDeliveriesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, size, limit = 30, 256 << 10, 4 << 20
		r := newRig(t, Limits{OutTotal: limit, WriteTimeout: time.Hour})
		peers := crowd(r, clients, wire.Filter{Name: "t", QoS: 1}, 1000)
		body := string(make([]byte, size))
		var took, refused []int
		for i := range clients {
			m := r.member(fmt.Sprint("c", i), "t")
			synctest.Wait()
			if m.deliver(t, 0, false, rec("t", body, "mq.qos", "1")) == 1 {
				took = append(took, i)
			} else {
				refused = append(refused, i)
			}
		}
		if used := r.srv.queued.Used(); used < limit || used > limit+2*size {
			t.Errorf("%d bytes wait, the limit is %d", used, limit)
		}
		if len(refused) == 0 {
			t.Fatal("nothing was refused")
		}
		credit := func() (n int) {
			synctest.Wait()
			for _, i := range refused {
				m := r.member(fmt.Sprint("c", i), "t")
				m.mu.Lock()
				n += max(m.credit, 0)
				m.mu.Unlock()
			}
			return n
		}
		pass(time.Minute)
		if n := credit(); n != 0 {
			t.Errorf("%d credit without room", n)
		}
		for _, i := range took {
			peers[i].wantMessage()
		}
		pass(2 * pollTime)
		if n := credit(); n < len(refused) {
			t.Errorf("%d credit for %d clients although there is room", n, len(refused))
		}
		m := r.member(fmt.Sprint("c", refused[0]), "t")
		if m.deliver(t, 0, false, rec("t", body, "mq.qos", "1")) != 1 {
			t.Error("refused although there is room")
		}
		peers[refused[0]].wantMessage()
	})
}

// TestLargeLiveMessagesWaitForRoom: so do those that are fed from memory; who reads
// gets them meanwhile.
func TestLargeLiveMessagesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, size, limit = 30, 256 << 10, 4 << 20
		r := newRig(t, Limits{OutTotal: limit, WriteTimeout: time.Hour})
		reader, _ := r.connect(v5("reader"))
		reader.subscribe(wire.Filter{Name: "x", QoS: 1})
		peers := crowd(r, clients, wire.Filter{Name: "x", QoS: 1}, 0)
		body := string(make([]byte, size))
		send := func(id string) bool {
			synctest.Wait()
			_, ok := live(t, r, id, "x", 0, rec("x", body, "mq.qos", "1"))
			return ok
		}
		if !send("reader") {
			t.Error("the first one is refused")
		}
		reader.wantMessage()
		taken := 0
		for i := range clients {
			if send(fmt.Sprint("c", i)) {
				taken++
			}
		}
		if used := r.srv.queued.Used(); taken == clients || used > limit+2*size {
			t.Errorf("%d bytes wait, %d messages taken", used, taken)
		}
		if !send("reader") {
			t.Error("a client that reads is held up")
		}
		reader.wantMessage()
		last := fmt.Sprint("c", clients-1)
		room := r.member(last, "x").feed.Room()
		for _, p := range peers[:taken] {
			p.wantMessage()
		}
		<-room
		if !send(last) {
			t.Error("refused although there is room")
		}
		peers[clients-1].wantMessage()
	})
}

// TestLargeMessageIsSentAgainWithRoom: what a session has under way waits for room,
// too, and keeps its identifier.
func TestLargeMessageIsSentAgainWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4 << 20
		r := newRig(t, Limits{OutTotal: limit})
		p := r.durable("a", 10)
		p.subscribe(wire.Filter{Name: "t", QoS: 1})
		m := r.member("a", "t")
		m.wait(t, "credit is given", func() bool { return m.credit > 0 })
		m.deliver(t, 0, false, rec("t", string(make([]byte, 256<<10)), "mq.qos", "1"))
		first := p.wantMessage()
		_ = p.c.Close()
		<-r.session("a").detached
		r.srv.queued.Add(2 * limit)
		r.session("a").records = map[int64]kernel.Record{0: rec("t", string(make([]byte, 256<<10)), "mq.qos", "1")}
		req := v5("a")
		req.SessionExpiry = 1000
		p, _ = r.connect(req)
		p.quiet()
		r.srv.queued.Add(-2 * limit)
		if again := p.wantMessage(); again.ID != first.ID || !again.Dup {
			t.Errorf("%d, dup %v, after %d", again.ID, again.Dup, first.ID)
		}
	})
}
