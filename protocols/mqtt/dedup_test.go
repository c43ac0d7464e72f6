package mqtt

import (
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// idPublisher notes the id of the publish under way.
type idPublisher struct {
	*fakePublisher
	id kernel.DedupID
}

func (p *idPublisher) Identified(id kernel.DedupID, publish func() (int, error)) (int, error) {
	p.id = id
	return publish()
}

// TestDeduplicationID: the id is the first user property of that name, which stays one like
// any other; it names one publish only.
func TestDeduplicationID(t *testing.T) {
	n := &fakeNode{}
	c := newConn(newServer(n, Limits{}, zerolog.Nop()), sinkConn{})
	c.version = wire.V5
	c.out.init(wire.V5, 0, 1024, &c.server.limits)
	c.client = &fakeClient{node: n}
	p := &idPublisher{fakePublisher: &fakePublisher{client: c.client.(*fakeClient), done: c}}
	c.publisher = p
	send := func(qos byte, id uint16, props []byte) {
		t.Helper()
		p.id = kernel.DedupID{}
		first, body := packetOf(t, publishPacket(wire.V5, qos, id, "t", "x", props...))
		if err := c.handle(first, body); err != nil {
			t.Fatal(err)
		}
	}
	two := wire.AppendUser(wire.AppendUser(wire.AppendUser(nil, "a", "b"), kernel.HeaderDedup, "1"), kernel.HeaderDedup, "2")
	for qos := range byte(2) {
		send(qos, 7, two)
		if p.id != kernel.NewDedupID([]byte("1")) {
			t.Errorf("QoS %d: id %x", qos, p.id)
		}
		send(qos, 8, wire.AppendUser(nil, "a", "b"))
		if p.id != (kernel.DedupID{}) {
			t.Errorf("QoS %d: id %x of the one before", qos, p.id)
		}
	}
	send(0, 0, wire.AppendUser(nil, kernel.HeaderDedup, ""))
	if p.id != (kernel.DedupID{}) {
		t.Errorf("empty: id %x", p.id)
	}
	if got := n.messages(); len(got) != 5 || got[0].header(kernel.HeaderDedup) != "1" || len(got[0].rec.Headers) != 4 {
		t.Errorf("%+v", got)
	}
}
