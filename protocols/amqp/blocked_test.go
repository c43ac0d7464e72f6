package amqp

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// TestCloseWhileBlocked: connection.close is answered within moments although an alarm
// goes on, where the client is told by nacks that what it has published is not stored;
// where it cannot be told it waits, and what it has published is stored. An alarm that
// ends soon loses nothing either way.
func TestCloseWhileBlocked(t *testing.T) {
	for _, tc := range []struct {
		name     string
		confirms bool
		alarm    time.Duration
		stored   int
		waits    time.Duration
	}{
		{"confirms", true, time.Hour, 0, leaveTime},
		{"confirms, a short alarm", true, time.Second, 3, time.Second},
		{"no confirms", false, 5 * time.Second, 3, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newFakeNode()
				q := &fakeQueue{name: "q", node: n, failed: map[int64]int32{}}
				n.queues["q"] = q
				s := newServer(Config{}, n)
				server, client := net.Pipe()
				var serving sync.WaitGroup
				serving.Go(func() { s.handle(server) })
				defer serving.Wait()
				defer client.Close()
				r := newRaw(t, client)
				r.open(0)
				if tc.confirms {
					r.send(1, &wire.ConfirmSelect{})
					want[wire.ConfirmSelectOk](r)
				}
				n.alarm(true)
				for range 3 {
					r.bytes(wire.AppendMethod(nil, 1, &wire.BasicPublish{RoutingKey: "q"}))
					r.bytes(headerFrame(60, 1, 0))
					r.bytes(frame(3, 1, []byte("m")))
				}
				begin := time.Now()
				over := time.AfterFunc(tc.alarm, func() { n.alarm(false) })
				defer over.Stop()
				r.send(0, &wire.ConnectionClose{ReplyCode: 200})
				told := 0
				for {
					m, _, err := r.next()
					if err != nil {
						t.Fatal(err)
					}
					switch m := m.(type) {
					case *wire.BasicNack:
						if told = int(m.DeliveryTag); tc.stored > 0 {
							t.Errorf("%+v", m)
						}
						continue
					case *wire.BasicAck:
						told = int(m.DeliveryTag)
						continue
					case *wire.ConnectionCloseOk:
					default:
						t.Errorf("%+v", m)
					}
					break
				}
				if tc.confirms && told != 3 || !tc.confirms && told != 0 {
					t.Errorf("%d confirms or nacks", told)
				}
				if took := time.Since(begin); took < tc.waits || took > tc.waits+time.Second {
					t.Errorf("answered after %v, want %v", took, tc.waits)
				}
				n.mu.Lock()
				defer n.mu.Unlock()
				if len(q.batches) != tc.stored {
					t.Errorf("%d messages are stored, want %d", len(q.batches), tc.stored)
				}
			})
		})
	}
}

// alarm turns an alarm of the disk on or off.
func (n *fakeNode) alarm(on bool) {
	a := &broker.Alarms{}
	a.Disk.On = on
	n.alarms.Store(a)
	n.mu.Lock()
	watchers := n.watchers
	n.mu.Unlock()
	for _, fn := range watchers {
		fn()
	}
}
