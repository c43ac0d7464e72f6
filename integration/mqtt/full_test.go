package mqtt

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// TestFullQueueAmongOthers: a queue that is full and rejects is left out of a publish
// with QoS 1, which is answered with 0x97 and may come twice to the others when it is
// published again. With QoS 2 nobody gets it, retained or not (4.3.3): the client may
// publish it again, and everybody has it once.
func TestFullQueueAmongOthers(t *testing.T) {
	for _, kept := range []bool{true, false} {
		for _, durable := range []bool{true, false} {
			t.Run(fmt.Sprintf("session kept %v, full queue durable %v", kept, durable), func(t *testing.T) {
				req := clean(wire.V5)
				if kept {
					req = v5(name("client"))
				}
				testFullQueue(t, open(t, shared, req), durable)
			})
		}
	}
}

func testFullQueue(t *testing.T, p *peer, durable bool) {
	base := name("full")
	full, other := base+"-full", base+"-other"
	_, ch := shared.DialAMQP(t)
	_, err := ch.QueueDeclare(full, durable, false, false, false, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	must(t, err)
	must(t, ch.QueueBind(full, base+".x", "amq.topic", false, nil))
	harness.Declare(t, ch, other, base+".x")
	count := func(queue string, durable bool) int {
		t.Helper()
		q, err := ch.QueueDeclarePassive(queue, durable, false, false, false, nil)
		must(t, err)
		return q.Messages
	}
	wantCounts := func(step string, inFull, inOther int) {
		t.Helper()
		if a, b := count(full, durable), count(other, true); a != inFull || b != inOther {
			t.Errorf("%s: %d and %d messages, want %d and %d", step, a, b, inFull, inOther)
		}
	}
	topic := base + "/x"
	if code := p.publish(topic, "1"); code != wire.Success {
		t.Fatalf("0x%02x", code)
	}
	wantCounts("room", 1, 1)
	if code := p.publish(topic, "2"); code != wire.QuotaExceeded {
		t.Errorf("PUBACK 0x%02x", code)
	}
	wantCounts("QoS 1", 1, 2)
	pubrec := func(retain byte) wire.Code {
		t.Helper()
		b := packet(wire.V5, 2, 5, topic, "3")
		b[0] |= retain
		p.send(b)
		_, code, err := wire.ParseAck(wire.Pubrec, wire.V5, p.want(wire.Pubrec))
		must(t, err)
		return code
	}
	for retain := range byte(2) {
		if code := pubrec(retain); code != wire.QuotaExceeded {
			t.Errorf("PUBREC 0x%02x", code)
		}
		wantCounts(fmt.Sprint("QoS 2, retain ", retain), 1, 2)
	}
	q := open(t, shared, clean(wire.V5))
	q.subscribe(wire.Filter{Name: topic, QoS: 1})
	q.quiet() // nothing is retained
	q.bye()
	_, err = ch.QueuePurge(full, false)
	must(t, err)
	if code := pubrec(0); code != wire.Success {
		t.Errorf("PUBREC 0x%02x", code)
	}
	p.ack(wire.Pubrel, 5, wire.Success)
	p.want(wire.Pubcomp)
	wantCounts("again", 1, 3)
}
