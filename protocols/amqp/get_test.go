package amqp

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// TestGetWaitsForRoom: clients that ask for large messages and do not read them get no
// more than fits the total of all; the others get theirs when there is room.
func TestGetWaitsForRoom(t *testing.T) { synctest.Test(t, testGetWaitsForRoom) }

func testGetWaitsForRoom(t *testing.T) {
	const clients, size, limit = 40, 256 << 10, 4 << 20
	n := newFakeNode()
	q := &fakeQueue{name: "q", node: n, failed: map[int64]int32{}}
	n.queues["q"] = q
	s := newServer(Config{OutTotal: limit}, n)
	var serving sync.WaitGroup
	var all []*raw
	end := func() {
		for _, r := range all {
			r.nc.Close()
		}
		serving.Wait()
	}
	defer end()
	n.mu.Lock()
	for range clients {
		q.append(&kernel.Record{Value: make([]byte, size)})
	}
	n.mu.Unlock()
	for range clients {
		server, client := net.Pipe()
		serving.Go(func() { s.handle(server) })
		r := newRaw(t, client)
		all = append(all, r)
		r.open(0)
		r.send(1, &wire.BasicGet{Queue: "q", NoAck: true})
	}
	synctest.Wait()
	n.mu.Lock()
	ready := len(q.ready)
	n.mu.Unlock()
	if used := s.out.Used(); ready == 0 || used < limit || used > limit+2*size {
		t.Errorf("%d bytes wait for clients that do not read, %d messages are left", used, ready)
	}
	var read sync.WaitGroup
	for _, r := range all {
		read.Go(func() { want[wire.BasicGetOk](r) })
	}
	read.Wait()
	all[0].send(1, &wire.BasicGet{Queue: "q", NoAck: true})
	want[wire.BasicGetEmpty](all[0])
	end()
	if used := s.out.Used(); used != 0 {
		t.Errorf("%d bytes are still booked", used)
	}
}
