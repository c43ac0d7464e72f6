package mqtt

import (
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// Members of a shared subscription and the clients of a session that are cut
// off again and again, with messages unacknowledged: each message is
// acknowledged by somebody in the end, and the session sees them in order.
func TestClientsCutOffLoseNothing(t *testing.T) {
	const total = 3000
	topic := name("t")
	share, session := "$share/churn/"+topic, v5(name("churn"))
	holder := open(t, shared, v5(name("holder"))) // keeps the group while members come and go
	holder.subscribe(wire.Filter{Name: share, QoS: 1})
	open(t, shared, session).subscribe(wire.Filter{Name: topic, QoS: 1})

	var mu sync.Mutex
	acked := map[string]map[int]bool{"share": {}, "session": {}}
	note := func(kind string, payload []byte) {
		n, err := strconv.Atoi(string(payload))
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		acked[kind][n] = true
		mu.Unlock()
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked["share"]) == total && len(acked["session"]) == total
	}
	var late atomic.Bool
	over := func() bool { return late.Load() || all() }
	defer late.Store(true)
	var clients sync.WaitGroup
	for i := range 4 {
		kind, req := "share", func() wire.ConnectRequest { return clean(wire.V5) }
		if i == 3 {
			kind, req = "session", func() wire.ConnectRequest { return session }
		}
		clients.Go(func() {
			for seed := uint64(i); !over(); seed += 4 {
				life(t, req(), share, kind, rand.New(rand.NewPCG(seed, 0)), note)
			}
		})
	}
	clients.Go(func() {
		for m := range poll(holder, time.Now().Add(time.Hour), over) {
			note("share", m.Payload)
			holder.puback(m, wire.Success)
		}
	})
	pub := open(t, shared, clean(wire.V5))
	for n := range total {
		if code := pub.publish(topic, strconv.Itoa(n)); code != 0 {
			t.Fatalf("PUBACK 0x%02x", code)
		}
	}
	// From here: publishing takes as long as the disk does.
	defer time.AfterFunc(2*harness.Patience, func() { late.Store(true) }).Stop()
	clients.Wait()
	if !all() {
		t.Errorf("acknowledged: share %d, session %d of %d", len(acked["share"]), len(acked["session"]), total)
	}
}

// life is one connection: some messages, some of them acknowledged, then cut.
func life(t *testing.T, req wire.ConnectRequest, share, kind string, rnd *rand.Rand, note func(string, []byte)) {
	c, err := net.Dial("tcp", shared.MQTT)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	p := &peer{t: t, c: c, rd: wire.NewReader(c, 1<<20), version: wire.V5}
	p.send(req.Append(nil))
	if kind == "share" {
		sub := wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: share, QoS: 1}}}
		p.send(sub.Append(nil, wire.V5))
	}
	last := -1
	budget := rnd.IntN(300)
	for m := range poll(p, time.Now().Add(time.Duration(50+rnd.IntN(100))*time.Millisecond), func() bool { budget--; return budget < 0 }) {
		n, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			t.Error(err)
			return
		}
		if kind == "session" && n <= last {
			t.Errorf("%d after %d", n, last)
		}
		last = n
		if kind == "session" || rnd.IntN(3) > 0 {
			note(kind, m.Payload)
			p.puback(m, wire.Success)
		}
	}
}

// poll yields the messages that come until a deadline or until done.
func poll(p *peer, deadline time.Time, done func() bool) func(yield func(wire.Message) bool) {
	return func(yield func(wire.Message) bool) {
		for !done() && time.Now().Before(deadline) {
			first, body, ok, err := p.rd.Take()
			if err != nil {
				p.t.Error(err)
				return
			}
			if !ok {
				_ = p.c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				if _, err := p.rd.Fill(); err != nil {
					if ne, ok := err.(net.Error); !ok || !ne.Timeout() {
						return
					}
				}
				continue
			}
			if first>>4 != wire.Publish {
				continue
			}
			var m wire.Message
			if err := m.Parse(wire.V5, first, slices.Clone(body)); err != nil {
				p.t.Error(err)
				return
			}
			if !yield(m) {
				return
			}
		}
	}
}
